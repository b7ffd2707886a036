"""Profiles and vulnerability tables refuse what cannot be true; rejection rates for the emulator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.serving.catalog import Catalog
from planner.compiler.profile import CallDemand, mean_answer_tokens, rejection_probabilities
from planner.compiler.vulnerability import (
    FAN_INS,
    ROLES,
    VulnerabilityCell,
    VulnerabilityTable,
    fan_in,
    wilson_interval,
)
from tests.planner.compiler.cases import LARGE, MIDDLE, SMALL, h200_catalog, pair, profile_set


def test_a_pair_may_be_profiled_once_only() -> None:
    with pytest.raises(ValueError, match="one profile only"):
        profile_set([pair(), pair()])


def test_thinking_and_verifier_belong_to_the_key() -> None:
    crossed = pair(model=SMALL, policy="cross_check", verifier_model=LARGE)
    profiles = profile_set([pair(), pair(thinking=True, quality=0.9), crossed])
    thoughtful = profiles.pair("plan", LARGE, "none", thinking=True)
    assert thoughtful is not None
    assert thoughtful.quality == 0.9
    assert profiles.pair("plan", SMALL, "cross_check", verifier_model=MIDDLE) is None
    assert profiles.pair("plan", SMALL, "cross_check", verifier_model=LARGE) is crossed


@pytest.mark.parametrize("wrong", [{"quality": 1.1}, {"interval": (0.9, 1.0)}, {"samples": 0}, {"prompt_tokens": -1.0}])
def test_impossible_pairs(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must|need"):
        replace(pair(), **wrong)  # type: ignore[arg-type]  # the parameters above


@pytest.mark.parametrize(("prompt", "output", "probability"), [(-1, 1, 1), (1, -1, 1), (1, 1, 1.2)])
def test_impossible_calls(prompt: float, output: float, probability: float) -> None:
    with pytest.raises(ValueError, match="must"):
        CallDemand(role="generate", prompt_tokens=prompt, output_tokens=output, probability=probability)


def test_rejections_count_by_the_model_that_gives_the_verdict() -> None:
    profiles = profile_set(
        [
            pair(model=MIDDLE, policy="self_check", rejects=0.2),
            pair("code", MIDDLE, "self_check", rejects=0.4),
            pair(model=MIDDLE, policy="cross_check", verifier_model=LARGE, rejects=0.5),
            pair(model=LARGE, policy="none"),
            pair(model=SMALL, policy="self_check", rejects=0.9),
        ]
    )
    catalog = h200_catalog()
    two = Catalog(models=catalog.models, backends=catalog.backends[1:])
    assert rejection_probabilities(profiles, two) == pytest.approx({MIDDLE: 0.3, LARGE: 0.5})


def test_answers_are_as_long_as_the_unverified_ones_of_served_models() -> None:
    profiles = profile_set(
        [
            pair(model=MIDDLE, output_tokens=200),
            pair("code", MIDDLE, output_tokens=400),
            pair("code", MIDDLE, "self_check", output_tokens=9000),
            pair(model=MIDDLE, output_tokens=9000, thinking=True),
            pair(model=SMALL, output_tokens=9000),
        ]
    )
    catalog = h200_catalog()
    two = Catalog(models=catalog.models, backends=catalog.backends[1:])
    assert mean_answer_tokens(profiles, two) == 300
    assert mean_answer_tokens(profile_set([pair(model=SMALL)]), two) is None


def test_fan_in_buckets() -> None:
    assert [fan_in(n) for n in (0, 1, 2, 3, 9)] == ["0", "1-2", "1-2", "3+", "3+"]


cells = st.lists(
    st.builds(
        lambda role, skill, bucket, pairs, share: VulnerabilityCell(
            role=role, skill=skill, fan_in=bucket, pairs=pairs, flips=int(pairs * share)
        ),
        st.sampled_from(ROLES),
        st.sampled_from(["a", "b"]),
        st.sampled_from(FAN_INS),
        st.integers(1, 50),
        st.floats(0, 1),
    ),
    min_size=1,
    unique_by=lambda cell: (cell.role, cell.skill, cell.fan_in),
)


@given(cells, st.floats(0, 100), st.sampled_from(ROLES), st.sampled_from(["a", "b", "c"]), st.sampled_from(FAN_INS))
def test_every_lookup_is_a_probability(
    found: list[VulnerabilityCell], pseudo_pairs: float, role: str, skill: str, bucket: str
) -> None:
    table = VulnerabilityTable(cells=tuple(found), pseudo_pairs=pseudo_pairs)
    assert 0 <= table.lookup(role, skill, bucket) <= 1  # type: ignore[arg-type]  # sampled from the literals


def test_impossible_tables() -> None:
    cell = VulnerabilityCell(role="source", skill="a", fan_in="0", pairs=1, flips=0)
    with pytest.raises(ValueError, match="one vulnerability cell only"):
        VulnerabilityTable(cells=(cell, cell))
    with pytest.raises(ValueError, match="at least one cell"):
        VulnerabilityTable(cells=())
    with pytest.raises(ValueError, match="pseudo_pairs"):
        VulnerabilityTable(cells=(cell,), pseudo_pairs=-1)
    with pytest.raises(ValueError, match="flips"):
        replace(cell, flips=2)


@given(st.integers(1, 500), st.floats(0, 1))
def test_wilson_interval_holds_its_rate(samples: int, rate: float) -> None:
    low, high = wilson_interval(rate * samples, samples)
    assert 0 <= low <= rate <= high <= 1 or low == pytest.approx(rate) or high == pytest.approx(rate)


def test_wilson_interval_of_known_numbers() -> None:
    assert wilson_interval(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson_interval(0, 0) == (0.0, 1.0)
