from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.events import NodeState, RunState
from runtime.engine.ports import Commit, NodeSnapshot, SwitchSettings
from runtime.engine.state import RunProgress, progress_of
from runtime.engine.steps import end_of, intents_in_flight, intents_of, is_empty, safe_point
from tests.runtime.engine.fakes import FakePressure
from tests.runtime.engine.samples import (
    BIG,
    START,
    impl,
    llm,
    snapshot,
    tool,
    walkthrough,
    walkthrough_bundle,
    workflow,
)


def node(state: NodeState, **more: Any) -> NodeSnapshot:
    return replace(NodeSnapshot(state=state, attempt=1, binding=impl(), variant=0), **more)


def progress(**nodes: NodeSnapshot) -> RunProgress:
    return progress_of(replace(snapshot(walkthrough(), walkthrough_bundle()), nodes=nodes))


RUN = snapshot(walkthrough(), walkthrough_bundle())


def test_intents_follow_the_active_variant() -> None:
    after_p = progress(P=node(NodeState.COMMITTED, output="x"))
    assert [intent.binding for intent in intents_of(RUN, RUN.bundle, after_p, START)] == [
        impl(BIG),
        impl(policy="self_check"),
    ]
    switched = replace(after_p, active_variant=1)
    assert [intent.binding for intent in intents_of(RUN, RUN.bundle, switched, START)] == [impl(), impl()]


def test_what_is_in_flight_is_issued_as_it_was() -> None:
    flow = workflow([llm("a"), tool("t"), llm("b")])
    nodes = {
        "t": NodeSnapshot(state=NodeState.DISPATCHED, attempt=1, dispatched_at=START),
        "a": node(NodeState.DISPATCHED, attempt=2, binding=impl(BIG), variant=1, dispatched_at=START),
    }
    found = intents_in_flight(progress_of(replace(snapshot(flow), nodes=nodes)))
    assert [(one.node, one.kind, one.attempt, one.binding, one.variant) for one in found] == [
        ("a", "llm", 2, impl(BIG), 1),
        ("t", "tool", 1, None, None),
    ]


def test_a_safe_point_without_free_llm_nodes_or_controller_decides_nothing() -> None:
    pressure = FakePressure()
    all_gone = {name: node(NodeState.COMMITTED, output="x") for name in "PCDA"}
    assert safe_point(RUN, RUN.bundle, progress(**all_gone), pressure, START) is None
    off = replace(RUN, settings=SwitchSettings(controller="off"))
    assert safe_point(off, RUN.bundle, progress(), pressure, START) is None
    assert pressure.reads == 0
    assert safe_point(RUN, RUN.bundle, progress(), pressure, START) is not None


DONE = {name: node(NodeState.COMMITTED, output=name) for name in "PCDRA"}
FAILED = node(NodeState.FAILED, error={"code": "timeout", "message": "no"})


@pytest.mark.parametrize(
    ("nodes", "cancelled", "state"),
    [
        (DONE, False, RunState.SUCCEEDED),
        (DONE, True, RunState.SUCCEEDED),
        ({**DONE, "A": FAILED}, False, RunState.FAILED),
        ({**DONE, "A": FAILED}, True, RunState.CANCELLED),
        ({}, True, RunState.CANCELLED),
    ],
)
def test_how_a_run_ends(nodes: dict[str, NodeSnapshot], cancelled: bool, state: RunState) -> None:
    end = end_of(progress(**nodes), START, cancelled=cancelled)
    assert end is not None
    assert end.state is state
    assert end.output == ("A" if state is RunState.SUCCEEDED else None)


def test_a_run_with_something_to_do_has_no_end() -> None:
    assert end_of(progress(P=DONE["P"]), START, cancelled=False) is None


def test_the_first_failed_node_in_file_order_is_the_run_s_error() -> None:
    end = end_of(progress(**{**DONE, "D": FAILED, "C": FAILED}), START, cancelled=False)
    assert end is not None
    assert end.error == {"node": "C", "attempt": 1, "code": "timeout", "message": "no"}


def test_only_a_commit_that_says_something_is_written() -> None:
    empty = Commit(run_id="run_1", epoch=1, at=START)
    assert is_empty(empty)
    assert not is_empty(replace(empty, bundle=RUN.bundle))
