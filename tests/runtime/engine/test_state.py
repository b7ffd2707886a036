from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.workflow import Workflow
from runtime.engine.events import NodeState
from runtime.engine.ports import Intent, NodeSnapshot, Outcome
from runtime.engine.state import (
    RunProgress,
    next_ready,
    progress_of,
    ready_nodes,
    undispatched,
    with_intents,
    with_outcomes,
)
from tests.runtime.engine.samples import START, impl, llm, snapshot, tool, walkthrough, workflow


def intent(node: str) -> Intent:
    return Intent(node=node, attempt=1, kind="llm", at=START, binding=impl(), variant=0)


def outcome(node: str, *, ok: bool = True) -> Outcome:
    error = None if ok else {"code": "broken", "message": "broken"}
    return Outcome(node=node, attempt=1, started_at=START, finished_at=START, output=f"{node}!", error=error)


def ids(progress: RunProgress) -> list[str]:
    return [node.id for node in ready_nodes(progress)]


def test_the_walkthrough_step_by_step() -> None:
    progress = progress_of(snapshot(walkthrough()))
    assert (ids(progress), undispatched(progress)) == (["P"], ("P", "C", "D", "A"))
    progress = with_intents(progress, [intent("P")])
    assert (ids(progress), undispatched(progress)) == ([], ("C", "D", "A"))
    assert [node.id for node in next_ready(progress)] == ["C", "D"]
    progress = with_outcomes(progress, [outcome("P")])
    assert ids(progress) == ["C", "D"]
    progress = with_intents(progress, [intent("C"), intent("D")])
    progress = with_outcomes(progress, [outcome("D")])
    assert ids(progress) == []
    progress = with_outcomes(progress, [outcome("C")])
    assert (ids(progress), undispatched(progress)) == (["R"], ("A",))
    assert not progress.complete


def test_a_failed_node_frees_no_successor() -> None:
    flow = workflow([llm("a"), llm("b")], [("a", "b")])
    progress = with_intents(progress_of(snapshot(flow)), [intent("a")])
    progress = with_outcomes(progress, [outcome("a", ok=False)])
    assert (ids(progress), progress.failed, progress.complete) == ([], ("a",), False)
    assert progress.nodes["a"].error == {"code": "broken", "message": "broken"}


def test_null_outputs_are_outputs() -> None:
    flow = workflow([llm("a"), llm("b")], [("a", "b")])
    progress = with_intents(progress_of(snapshot(flow)), [intent("a")])
    progress = with_outcomes(progress, [replace(outcome("a"), output=None)])
    assert (ids(progress), dict(progress.outputs)) == (["b"], {"a": None})


def test_a_claim_in_the_middle_gives_the_same_state() -> None:
    flow = walkthrough()
    nodes = {
        "P": NodeSnapshot(state=NodeState.COMMITTED, attempt=1, binding=impl(), output="plan"),
        "C": NodeSnapshot(state=NodeState.DISPATCHED, attempt=1, binding=impl()),
    }
    progress = progress_of(replace(snapshot(flow), nodes=nodes, active_variant=1, last_switch_at=START))
    assert (ids(progress), undispatched(progress)) == (["D"], ("D", "A"))
    assert (progress.active_variant, progress.last_switch_at) == (1, START)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    size = draw(st.integers(1, 8))
    nodes = [llm(f"n{i}") if draw(st.booleans()) else tool(f"n{i}") for i in range(size)]
    pairs = [(f"n{i}", f"n{j}") for j in range(size) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return workflow(nodes, edges)


@given(workflows(), st.randoms(use_true_random=False))
def test_steps_in_any_order_agree_with_a_fresh_look_at_the_graph(flow: Workflow, random: object) -> None:
    """Incremental readiness equals readiness by definition, and every node is dispatched exactly once."""
    progress, dispatched, in_flight = progress_of(snapshot(flow)), [], []
    while not progress.complete:
        ready = ids(progress)
        by_definition = [
            node.id
            for node in flow.nodes
            if node.id not in dispatched and all(before in progress.outputs for before in flow.predecessors[node.id])
        ]
        assert ready == by_definition
        progress = with_intents(progress, [intent(node) for node in ready])
        dispatched += ready
        in_flight += ready
        random.shuffle(in_flight)  # type: ignore[attr-defined]  # a random.Random
        progress = with_outcomes(progress, [outcome(in_flight.pop())])
        again = progress_of(replace(snapshot(flow), nodes=progress.nodes))
        assert again == progress
    assert sorted(dispatched) == sorted(node.id for node in flow.nodes)
