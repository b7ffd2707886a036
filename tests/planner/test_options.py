"""What a request may choose about its plan, and how a wrong choice is named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.pricing import PRICE_LEVELS
from planner.compiler.weights import PRESETS, Weights
from planner.errors import OptionsInvalid
from planner.options import KINDS, PlanOptions


def test_defaults() -> None:
    assert PlanOptions.of() == PlanOptions()
    assert PlanOptions().levels == (0.0, 1.5, 3.0)


def test_overrides_keep_the_other_weights() -> None:
    assert PlanOptions.of(weights={"lambda_l": 0.3}).weights == Weights(lambda_l=0.3)


def test_presets_by_name() -> None:
    assert PlanOptions.of(weights="fast").weights == PRESETS["fast"]


def test_levels_are_put_in_order_once_each() -> None:
    assert PlanOptions.of(levels=[3, 0, 1.5, 3]).levels == (0.0, 1.5, 3.0)


@pytest.mark.parametrize(
    ("given_options", "option"),
    [
        ({"effort": 1.5}, "effort"),
        ({"effort": float("nan")}, "effort"),
        ({"effort": True}, "effort"),
        ({"effort": 10**400}, "effort"),
        ({"effort": -(10**5000)}, "effort"),
        ({"weights": {"lambda_l": 10**400}}, "weights.lambda_l"),
        ({"weights": {"lambda_l": float("inf")}}, "weights.lambda_l"),
        ({"levels": [0, 10**400]}, "levels"),
        ({"weights": {"lambda_x": 1}}, "weights.lambda_x"),
        ({"weights": {"lambda_l": -1}}, "weights.lambda_l"),
        ({"weights": {"lambda_l": "much"}}, "weights.lambda_l"),
        ({"weights": {"beta": 1e9}}, "weights.beta"),
        ({"weights": "cheapest"}, "weights"),
        ({"levels": []}, "levels"),
        ({"levels": [-1]}, "levels"),
        ({"levels": list(range(20))}, "levels"),
        ({"bundle": "cheap"}, "bundle"),
        ({"bundle": ""}, "bundle"),
        ({"limits": {"max_cost": -1}}, "limits.max_cost"),
        ({"limits": {"max_price": 1}}, "limits.max_price"),
        ({"limits": {"calls": {"qwen3.5-4b": 1.5}}}, "limits.calls.qwen3.5-4b"),
        ({"limits": {"pin": {"a": []}}}, "limits.pin.a"),
    ],
)
def test_wrong_options_are_named(given_options: dict[str, Any], option: str) -> None:
    with pytest.raises(OptionsInvalid) as caught:
        PlanOptions.of(**given_options)
    assert list(caught.value.problems) == [option]


def test_levels_given_directly_must_be_in_order() -> None:
    with pytest.raises(OptionsInvalid, match="ascending"):
        PlanOptions(levels=(3.0, 0.0))


def test_levels_left_out_are_the_kinds() -> None:
    assert PlanOptions(bundle="priced").levels == PRICE_LEVELS
    assert PlanOptions.of(bundle="priced") == PlanOptions(bundle="priced")
    assert PlanOptions.of(bundle="priced", levels=[0.1]).levels == (0.1,)
    assert replace(PlanOptions(bundle="priced"), effort=0.1).levels == PRICE_LEVELS


def test_options_stored_before_there_were_kinds_and_limits_load() -> None:
    now = PlanOptions.of(effort=0.1, weights="fast", levels=[0, 2])
    old = {name: value for name, value in now.to_json().items() if name in ("effort", "weights", "levels")}
    assert PlanOptions.from_json(old) == now


@given(
    effort=st.floats(0, 1),
    lambda_l=st.floats(0, 1000),
    levels=st.none() | st.lists(st.floats(0, 100), min_size=1, max_size=8),
    bundle=st.sampled_from(KINDS),
    limits=st.sampled_from([{}, {"max_cost": 2.5}, {"pin": {"a b": ["*/none", "m"]}, "calls": {"m.1": 3}}]),
)
def test_json_round_trip(
    effort: float, lambda_l: float, levels: list[float] | None, bundle: str, limits: dict[str, Any]
) -> None:
    options = PlanOptions.of(effort=effort, weights={"lambda_l": lambda_l}, bundle=bundle, levels=levels, limits=limits)
    assert PlanOptions.from_json(json.loads(json.dumps(options.to_json()))) == options
