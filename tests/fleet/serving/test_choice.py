"""Which replica a call goes to, by each rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.serving.choice import CHOICE_RULES, ChoiceRule, ReplicaChoice


@dataclass
class Slot:
    name: str
    outstanding: float = 0.0
    turn: int = 0


def call(choice: ReplicaChoice, slots: Sequence[Slot], run: str = "", backend: str = "b") -> str:
    """One call that stays in flight."""
    best = choice.best(slots, backend, run)
    assert best is not None
    best.outstanding += 1
    best.turn = 1 + max(slot.turn for slot in slots)
    choice.chosen(best.name, backend, run)
    return best.name


def test_the_least_outstanding_and_equals_in_turn() -> None:
    slots = [Slot("a", 2), Slot("c"), Slot("d")]
    assert [call(ReplicaChoice("least_outstanding"), slots, "run") for _ in range(6)] == ["c", "d", "c", "d", "a", "c"]


def test_in_turn_whatever_they_hold() -> None:
    slots = [Slot("a", 90), Slot("c"), Slot("d")]
    assert [call(ReplicaChoice("round_robin"), slots, "run") for _ in range(6)] == ["a", "c", "d"] * 2


def test_a_run_stays_where_its_prefix_is_until_that_is_too_much() -> None:
    choice, slots = ReplicaChoice("run_affinity", margin=2), [Slot("a"), Slot("c")]
    assert [call(choice, slots, "run") for _ in range(4)] == ["a", "a", "a", "c"]
    assert call(choice, slots, "run") == "c", "where it went last is where the newest prefix is"
    assert call(choice, slots, "other") == "c"
    assert call(choice, slots, "run", backend="elsewhere") == "a", "a backend of its own has a prefix of its own"


def test_a_run_whose_replica_is_gone_or_full_goes_to_the_least_loaded() -> None:
    choice = ReplicaChoice("run_affinity")
    choice.chosen("gone", "b", "run")
    assert call(choice, [Slot("a", 1), Slot("c")], "run") == "c"


def test_calls_of_no_run_have_no_affinity() -> None:
    choice, slots = ReplicaChoice("run_affinity"), [Slot("a"), Slot("c")]
    assert [call(choice, slots) for _ in range(4)] == ["a", "c", "a", "c"]


def test_only_the_latest_runs_are_remembered() -> None:
    choice = ReplicaChoice("run_affinity", remembered=2)
    for run in ("one", "two", "three"):
        choice.chosen("a", "b", run)
    slots = [Slot("c", turn=0), Slot("a", turn=1)]
    assert [choice.best(slots, "b", run) for run in ("one", "two", "three")] == [slots[0], slots[1], slots[1]]


@pytest.mark.parametrize("rule", CHOICE_RULES)
def test_nobody_of_nobody(rule: ChoiceRule) -> None:
    assert ReplicaChoice(rule).best([], "b", "run") is None


@given(
    loads=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    margin=st.integers(0, 9),
    runs=st.lists(st.sampled_from(["r", "s", ""]), max_size=40),
)
def test_affinity_never_costs_more_than_the_margin(loads: list[int], margin: int, runs: list[str]) -> None:
    choice, slots = ReplicaChoice("run_affinity", margin), [Slot(f"s{i}", load) for i, load in enumerate(loads)]
    for run in runs:
        least = min(slot.outstanding for slot in slots)
        name = call(choice, slots, run)
        assert next(slot for slot in slots if slot.name == name).outstanding - 1 <= least + margin
