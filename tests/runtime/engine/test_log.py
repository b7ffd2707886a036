from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.events import EventKind, RunState
from runtime.engine.log import HEAD_CHARACTERS, RunFacts, barred, decision_seqs, events_of, head_of, is_late
from runtime.engine.ports import Commit, RunEnd
from tests.runtime.engine.samples import START
from tests.runtime.engine.store_contract import FULL, FULL_ONLY_FIRST, decision, intent, outcome

FACTS = RunFacts(accepted_at=START, last_seq=2)
EVERYTHING = Commit(
    run_id="run_1",
    epoch=1,
    at=START,
    outcomes=(outcome("a"),),
    bundle=FULL,
    decisions=(decision(None, "no_candidate"), decision(1, "congested")),
    intents=(intent("b"), intent("t")),
    end=RunEnd(state=RunState.CANCELLED, at=START + 5),
)


def kinds(commit: Commit, facts: RunFacts = FACTS) -> list[str]:
    return [str(kind) for kind, _ in events_of(commit, facts)]


def test_the_order_of_one_commit() -> None:
    assert kinds(EVERYTHING) == [
        "node_committed",
        "plan_ready",
        "bundle_ready",
        "switch_refused",
        "switched",
        "node_dispatched",
        "node_dispatched",
        "run_cancelled",
    ]


def test_a_decision_is_numbered_by_its_event() -> None:
    events = events_of(EVERYTHING, FACTS)
    assert decision_seqs(events) == [6, 7]
    assert [FACTS.last_seq + 1 + events.index(event) for event in events if "decision" in event[1]] == [6, 7]


def test_a_barred_commit_keeps_outcomes_bundle_and_end() -> None:
    assert kinds(barred(EVERYTHING)) == ["node_committed", "plan_ready", "bundle_ready", "run_cancelled"]


def test_a_bundle_is_announced_in_two_parts_each_once() -> None:
    partial = Commit(run_id="run_1", epoch=1, at=START, bundle=FULL_ONLY_FIRST)
    assert kinds(partial) == ["plan_ready"]
    assert kinds(partial, replace(FACTS, plan_recorded=True)) == []
    full = replace(partial, bundle=FULL)
    assert kinds(full, replace(FACTS, plan_recorded=True)) == ["bundle_ready"]
    assert kinds(full, replace(FACTS, plan_recorded=True, bundle_recorded=True)) == []
    data = dict(events_of(full, FACTS))
    assert data[EventKind.PLAN_READY]["plan"] == FULL.variants[0].digest
    assert [variant["index"] for variant in data[EventKind.BUNDLE_READY]["variants"]] == [0, 1]


@pytest.mark.parametrize(
    ("output", "head"),
    [("text", "text"), ({"a": "é"}, '{"a": "é"}'), (None, "null"), ("x" * 500, "x" * HEAD_CHARACTERS), (1.5, "1.5")],
)
def test_the_head_of_an_output(output: Any, head: str) -> None:
    assert head_of(output) == head


def test_the_head_of_a_large_value_is_cut() -> None:
    assert head_of(list(range(1_000_000))).startswith("[0, 1, 2")
    assert len(head_of(list(range(1_000_000)))) == HEAD_CHARACTERS


@pytest.mark.parametrize(("deadline_s", "at", "late"), [(None, 1e9, False), (10, 10, False), (10, 10.1, True)])
def test_late_means_after_the_deadline(deadline_s: float | None, at: float, late: bool) -> None:
    end = RunEnd(state=RunState.SUCCEEDED, at=START + at)
    assert is_late(end, START, deadline_s) is late


def test_a_run_ends_in_an_end_state() -> None:
    running = Commit(run_id="run_1", epoch=1, at=START, end=RunEnd(state=RunState.RUNNING, at=START))
    with pytest.raises(ValueError, match="does not end in state running"):
        events_of(running, FACTS)
