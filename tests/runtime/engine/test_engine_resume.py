"""Crashes: committed nodes are never executed again; invocations in flight are issued again, whole and as bound."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.clock import run_virtual
from runtime.engine.engine import Released, execute
from runtime.engine.events import EventKind, NodeState, RunState
from runtime.engine.ports import CallRequest, Commit, LeaseLost, NodeSnapshot, RunEnd, RunSnapshot
from tests.runtime.engine.fakes import Crash, FakePressure, SimDispatcher, SlowTool, World, WrappedStore, serve
from tests.runtime.engine.samples import (
    BIG,
    SMALL,
    START,
    impl,
    llm,
    snapshot,
    tool,
    walkthrough,
    walkthrough_bundle,
    workflow,
)
from tests.sampling import sampled

SECONDS = {"P": 1.0, "C": 10.0, "D": 3.5, "A": 1.0}


def new_world() -> World:
    """27B gets congested when the first call leaves, so that the run switches before C and D are dispatched."""
    world = World(pressure=FakePressure({BIG: 0.7, SMALL: 0.2}))

    def seconds(request: CallRequest) -> float:
        if request.node == "P":
            world.pressure.by_model[BIG] = 1.31
        return SECONDS[request.node]

    world.dispatcher.seconds = seconds
    return world


def run_with_crash(crash_at: int, where: str) -> World:
    """Serve the walk-through; the worker dies at one commit, before or after it became durable; another one resumes.

    By then 27B is free again, so that bindings would change if they could.
    """
    world = new_world()

    def crash(number: int, commit: Commit) -> None:
        if number == crash_at:
            raise Crash

    async def main() -> None:
        hooks = {"before": crash} if where == "before" else {"after": crash}
        world.wrapped = WrappedStore(world.store, **hooks)
        with pytest.raises(Crash):
            await world.serve(snapshot(walkthrough(), walkthrough_bundle()))
        assert world.dispatcher.in_flight == 0
        world.wrapped = None
        world.pressure.by_model[BIG] = 0.1
        await world.resume("run_1")

    run_virtual(main())
    return world


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("crash_at", [1, 2, 3, 4, 5])
def test_a_crash_at_any_commit_loses_and_repeats_nothing(crash_at: int, where: str) -> None:
    world = run_with_crash(crash_at, where)
    run = world.store.run("run_1")
    assert run.state is RunState.SUCCEEDED
    assert_log_is_sound(world)
    assert set(run.snapshot.nodes) == {"P", "C", "D", "R", "A"}
    calls = [request.request_id for request in world.dispatcher.sent]
    assert len(set(calls)) == len(calls), "requests of both workers can be told apart"
    if crash_at > 2 or (crash_at, where) == (2, "after"):
        assert run.snapshot.nodes["C"].binding == impl(SMALL), "bound by the first worker, kept by the second"


def assert_log_is_sound(world: World) -> None:
    """One intent and one outcome per invocation, in that order, and no call of a node that is committed."""
    run = world.store.run("run_1")
    dispatched: dict[tuple[str, int], dict[str, object]] = {}
    committed_at: dict[str, float] = {}
    for event in run.events:
        if event.kind is EventKind.NODE_DISPATCHED:
            key = (event.data["node"], event.data["attempt"])
            assert key not in dispatched, "no second intent"
            dispatched[key] = event.data
        if event.kind is EventKind.NODE_COMMITTED:
            assert (event.data["node"], event.data["attempt"]) in dispatched
            assert event.data["node"] not in committed_at, "no second outcome"
            committed_at[event.data["node"]] = event.at
    assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))
    for request, at in zip(world.dispatcher.sent, world.dispatcher.sent_at, strict=True):
        assert at < committed_at.get(request.node, float("inf")), f"{request.node} was executed again"
        binding = dispatched[request.node, request.attempt]["binding"]
        assert isinstance(binding, dict)
        assert request.model == binding["model"], "the binding never changes"


@given(crash_at_s=st.floats(0, 14), second_crash_after_s=st.floats(0.01, 5))
@sampled(60)
def test_two_crashes_at_any_time_change_nothing_but_the_time(crash_at_s: float, second_crash_after_s: float) -> None:
    world = new_world()
    undisturbed = new_world()
    run = snapshot(walkthrough(), walkthrough_bundle())
    expected = serve(undisturbed, run)

    async def main() -> None:
        world.store.accept(run)
        for limit in (crash_at_s, second_crash_after_s, None):
            try:
                async with asyncio.timeout(limit):
                    await world.resume(run.run_id)
            except TimeoutError:
                assert world.dispatcher.in_flight == 0
            except LeaseLost:
                assert world.store.run(run.run_id).state.ended

    run_virtual(main())
    assert_log_is_sound(world)
    stored = world.store.run(run.run_id)
    assert isinstance(expected.end, RunEnd)
    assert stored.end is not None
    assert (stored.end.state, stored.end.output) == (expected.end.state, expected.end.output)


def dispatched(node: str, **more: object) -> NodeSnapshot:
    found = NodeSnapshot(state=NodeState.DISPATCHED, attempt=1, binding=impl(BIG), variant=0, dispatched_at=START)
    return replace(found, **more)  # type: ignore[arg-type]  # test helper


def resumed(world: World, run: RunSnapshot) -> RunEnd | Released:
    """Execute a run that is in the middle, as a store hands it over."""
    world.store.accept(run)

    async def main() -> RunEnd | Released:
        return await execute(world.store.claim(run.run_id), world.ports, world.control)

    return run_virtual(main())


def test_an_invocation_in_flight_is_issued_again_under_its_old_variant() -> None:
    """Loads say that variant 1 should be active and C is 9B there; C keeps 27B because it was dispatched on it."""
    world = new_world()
    world.pressure.by_model[BIG] = 1.31
    nodes = {
        "P": NodeSnapshot(state=NodeState.COMMITTED, attempt=1, binding=impl(), variant=0, output="the plan"),
        "C": dispatched("C"),
    }
    run = replace(snapshot(walkthrough(), walkthrough_bundle()), nodes=nodes, active_variant=0)
    assert isinstance(resumed(world, run), RunEnd)
    models = {request.node: request.model for request in world.dispatcher.sent}
    assert models == {"C": BIG, "D": SMALL, "A": SMALL}
    assert world.dispatcher.sent[0].messages[-1]["content"] == "Write code for the plan."
    stored = world.store.run("run_1")
    assert [event.data["node"] for event in stored.events if event.kind is EventKind.NODE_DISPATCHED] == ["D", "R", "A"]
    assert stored.snapshot.nodes["D"].binding == impl(SMALL), "D was free, so it follows the switch"


def test_a_tool_in_flight_is_used_again() -> None:
    world = new_world()
    flow = workflow([tool("t", "{{ inputs.x }}")])
    nodes = {"t": NodeSnapshot(state=NodeState.DISPATCHED, attempt=1, dispatched_at=START)}
    end = resumed(world, replace(snapshot(flow, inputs={"x": "here"}), nodes=nodes))
    assert isinstance(end, RunEnd)
    assert end.output == "here"


def test_a_failed_node_ends_the_run_that_was_claimed_again() -> None:
    world = new_world()
    error = {"code": "timeout", "message": "no answer"}
    nodes = {"a": NodeSnapshot(state=NodeState.FAILED, attempt=1, binding=impl(), error=error), "b": dispatched("b")}
    end = resumed(world, replace(snapshot(workflow([llm("a"), llm("b")])), nodes=nodes))
    assert isinstance(end, RunEnd)
    assert (end.state, end.error) == (RunState.FAILED, {"node": "a", "attempt": 1, **error})
    assert world.dispatcher.sent == []


def test_a_run_whose_nodes_are_all_committed_only_needs_its_end() -> None:
    world = new_world()
    nodes = {"a": NodeSnapshot(state=NodeState.COMMITTED, attempt=1, binding=impl(), output="done")}
    end = resumed(world, replace(snapshot(workflow([llm("a")])), nodes=nodes))
    assert isinstance(end, RunEnd)
    assert (end.state, end.output, world.dispatcher.sent) == (RunState.SUCCEEDED, "done", [])


def test_a_cancel_before_the_takeover_issues_nothing_again() -> None:
    slow = SlowTool(5.0)
    world = World(tools=(slow,))
    world.control.cancel()
    in_flight = {"a": dispatched("a"), "t": dispatched("t", binding=None)}
    end = resumed(world, replace(snapshot(workflow([llm("a"), tool("t", tool="slow")])), nodes=in_flight))
    assert isinstance(end, RunEnd)
    assert (end.state, end.at) == (RunState.CANCELLED, START)
    assert (world.dispatcher.sent, slow.finished) == ([], 0)


def test_the_dwell_time_outlives_a_takeover() -> None:
    world = new_world()
    world.pressure.by_model = {BIG: 0.1, SMALL: 0.2}
    nodes = {"P": NodeSnapshot(state=NodeState.COMMITTED, attempt=1, binding=impl(), variant=1, output="plan")}
    run = replace(
        snapshot(walkthrough(), walkthrough_bundle()), nodes=nodes, active_variant=1, last_switch_at=START - 2
    )
    resumed(world, run)
    entry = world.store.run("run_1").decisions[0][1]
    assert (entry.to_variant, entry.reason) == (None, "dwell")


def test_a_store_that_answers_after_a_cancelled_engine_still_gets_the_outcome() -> None:
    """The worker is cancelled in the middle of a commit: the write ends, then the cancellation goes on."""
    world = World(dispatcher=SimDispatcher())

    async def slow_write(number: int, commit: Commit) -> None:
        await asyncio.sleep(0.5 if number == 2 else 0)

    async def main() -> None:
        world.wrapped = WrappedStore(world.store, before=slow_write)
        serving = asyncio.create_task(world.serve(snapshot(workflow([llm("a"), llm("b")], [("a", "b")]))))
        await asyncio.sleep(1.2)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    run_virtual(main())
    stored = world.store.run("run_1").snapshot.nodes
    assert (stored["a"].state, stored["b"].state) == (NodeState.COMMITTED, NodeState.DISPATCHED)
    assert world.dispatcher.nodes() == ["a"], "b's intent is durable, but its call never left"
