"""What a request may choose about its plan, and how a wrong choice is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.weights import PRESETS, Weights
from planner.errors import OptionsInvalid
from planner.options import PlanOptions


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
        ({"weights": {"lambda_x": 1}}, "weights.lambda_x"),
        ({"weights": {"lambda_l": -1}}, "weights.lambda_l"),
        ({"weights": {"lambda_l": "much"}}, "weights.lambda_l"),
        ({"weights": {"beta": 1e9}}, "weights.beta"),
        ({"weights": "cheapest"}, "weights"),
        ({"levels": []}, "levels"),
        ({"levels": [-1]}, "levels"),
        ({"levels": list(range(20))}, "levels"),
    ],
)
def test_wrong_options_are_named(given_options: dict[str, Any], option: str) -> None:
    with pytest.raises(OptionsInvalid) as caught:
        PlanOptions.of(**given_options)
    assert list(caught.value.problems) == [option]


def test_levels_given_directly_must_be_in_order() -> None:
    with pytest.raises(OptionsInvalid, match="ascending"):
        PlanOptions(levels=(3.0, 0.0))


@given(
    effort=st.floats(0, 1),
    lambda_l=st.floats(0, 1000),
    levels=st.lists(st.floats(0, 100), min_size=1, max_size=8),
)
def test_json_round_trip(effort: float, lambda_l: float, levels: list[float]) -> None:
    options = PlanOptions.of(effort=effort, weights={"lambda_l": lambda_l}, levels=levels)
    assert PlanOptions.from_json(options.to_json()) == options
