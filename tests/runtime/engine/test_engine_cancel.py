"""Cancel as a barrier: whenever it comes, nothing is dispatched after it, tools finish, and nothing is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.clock import run_virtual
from runtime.engine.engine import Released
from runtime.engine.events import EventKind, NodeState, RunState
from runtime.engine.ports import CallRequest, Commit, RunEnd
from tests.runtime.engine.fakes import Finished, SlowTool, World, WrappedStore, plain_answer, serve
from tests.runtime.engine.samples import SMALL, START, bundle, impl, json_llm, llm, plan, snapshot, tool, workflow
from tests.sampling import sampled

FLOW = workflow(
    [json_llm("a"), llm("b"), tool("t", tool="slow"), llm("c"), json_llm("out", "{{ nodes.c.output }}")],
    [("a", "t"), ("b", "t"), ("t", "c"), ("c", "out")],
)
PLANS = bundle(
    plan(
        {
            "a": impl(SMALL, "self_consistency"),
            "b": impl(SMALL, "self_check"),
            "c": impl(SMALL, "multi_critique"),
            "out": impl(SMALL),
        }
    )
)


def answers(request: CallRequest) -> str:
    return "reject" if request.role == "verdict" else plain_answer(request)


class Points:
    """Counts the moments at which a run may be interrupted, and acts at one of them."""

    def __init__(self, act_at: int, act: Callable[[], None]) -> None:
        self.act_at, self.act, self.count = act_at, act, 0

    def __call__(self, *_: object) -> None:
        self.count += 1
        if self.count == self.act_at:
            self.act()


def run_with(action: str, act_at: int, *, poke: bool = True) -> tuple[Finished, World, SlowTool, int]:
    """Serve FLOW and cancel or release it at the n-th point: before and after every call and commit."""
    slow = SlowTool(5.0)
    world = World(tools=(slow,))
    world.dispatcher.answers = answers

    def act() -> None:
        if action == "release":
            world.control.release()
        elif poke:
            world.cancel()
        else:
            world.store.request_cancel("run_1")

    points = Points(act_at, act)
    world.dispatcher.on_point = points

    async def pause(number: int, commit: Commit) -> None:
        points()
        await asyncio.sleep(0)
        points()

    world.wrapped = WrappedStore(world.store, before=pause, after=pause)
    return serve(world, snapshot(FLOW, PLANS)), world, slow, points.count


def how_many_points() -> int:
    return run_with("cancel", 0)[3]


def assert_barrier_held(finished: Finished, world: World, slow: SlowTool) -> None:
    kinds = finished.kinds()
    after = kinds[kinds.index("cancel_requested") :]
    assert "node_dispatched" not in after
    assert world.dispatcher.in_flight == 0
    assert slow.cut_off == 0, "a tool in flight may finish"
    assert finished.run.state in (RunState.CANCELLED, RunState.SUCCEEDED)
    assert kinds[-1] in ("run_cancelled", "run_succeeded")
    if finished.run.state is RunState.SUCCEEDED:
        assert kinds.count("node_committed") == len(FLOW.nodes), "only a run that had done everything succeeds"


POINTS = how_many_points()
FLOW_S = 12.0
"""b takes 3 s, t 5 s, c 3 s and out 1 s."""


@pytest.mark.parametrize("act_at", range(1, POINTS + 1))
def test_cancel_at_every_point(act_at: int) -> None:
    finished, world, slow, _ = run_with("cancel", act_at)
    if act_at > POINTS - 2:
        assert finished.run.state is RunState.SUCCEEDED, "the end was durable before the cancel came"
        return
    assert_barrier_held(finished, world, slow)


@pytest.mark.parametrize("act_at", range(1, POINTS - 1, 3))
def test_a_cancel_whose_poke_was_lost_is_found_by_the_next_commit(act_at: int) -> None:
    finished, world, slow, _ = run_with("cancel", act_at, poke=False)
    assert_barrier_held(finished, world, slow)


@pytest.mark.parametrize("act_at", range(1, POINTS + 1, 2))
def test_release_at_every_point_ends_nothing_and_resumes(act_at: int) -> None:
    finished, world, _, _ = run_with("release", act_at)
    if isinstance(finished.end, RunEnd):
        assert finished.end.state is RunState.SUCCEEDED
        return
    assert finished.end == Released(reason="drain")
    assert (world.dispatcher.in_flight, finished.run.state) == (0, RunState.RUNNING)
    calls_so_far = len(world.dispatcher.sent)
    committed = {event.data["node"] for event in finished.run.events if event.kind is EventKind.NODE_COMMITTED}
    second = World(tools=(SlowTool(5.0),), store=world.store, dispatcher=world.dispatcher)

    async def resume() -> RunEnd | Released:
        return await second.resume("run_1")

    end = run_virtual(resume())
    assert isinstance(end, RunEnd)
    assert end.state is RunState.SUCCEEDED
    assert not committed & {request.node for request in world.dispatcher.sent[calls_so_far:]}


@given(st.floats(0, 13))
@sampled(40)
def test_cancel_at_any_time(at_s: float) -> None:
    slow = SlowTool(5.0)
    world = World(tools=(slow,))
    world.dispatcher.answers = answers

    async def cancel() -> None:
        await asyncio.sleep(at_s)
        world.cancel()

    finished = serve(world, snapshot(FLOW, PLANS), cancel)
    if at_s > FLOW_S:
        assert finished.run.state is RunState.SUCCEEDED
    elif at_s < FLOW_S:
        assert_barrier_held(finished, world, slow)


def test_a_cancelled_run_waits_for_its_tools_and_keeps_their_results() -> None:
    slow = SlowTool(5.0)
    world = World(tools=(slow,))
    world.dispatcher.seconds = lambda request: 100.0

    async def cancel() -> None:
        await asyncio.sleep(1)
        world.cancel()

    finished = serve(world, snapshot(workflow([tool("t", tool="slow"), llm("a"), llm("b")], [("t", "b")])), cancel)
    assert (finished.seconds, slow.finished, world.dispatcher.cancelled) == (5.0, 1, 1)
    assert finished.kinds()[-3:] == ["cancel_requested", "node_committed", "run_cancelled"]
    assert isinstance(finished.end, RunEnd)
    assert finished.end.at == START + 5


def test_a_drain_keeps_a_tool_that_ended_at_the_same_moment() -> None:
    quick, slow = SlowTool(2.0), SlowTool(50.0)
    quick.name = "quick"
    world = World(tools=(quick, slow))

    async def cancel_then_drain() -> None:
        await asyncio.sleep(1)
        world.cancel()
        await asyncio.sleep(1)
        world.control.release()

    flow = workflow([tool("q", tool="quick"), tool("t", tool="slow")])
    finished = serve(world, snapshot(flow), cancel_then_drain)
    assert (finished.end, finished.seconds) == (Released(reason="drain"), 2.0)
    assert finished.run.snapshot.nodes["q"].state is NodeState.COMMITTED


def test_a_drain_does_not_wait_for_tools_of_a_cancelled_run() -> None:
    slow = SlowTool(50.0)
    world = World(tools=(slow,))

    async def cancel_then_drain() -> None:
        await asyncio.sleep(1)
        world.cancel()
        await asyncio.sleep(1)
        world.control.release()

    finished = serve(world, snapshot(workflow([tool("t", tool="slow")])), cancel_then_drain)
    assert (finished.end, finished.seconds) == (Released(reason="drain"), 2.0)
