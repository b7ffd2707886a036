"""Switching inside whole runs: safe points, planned demand, one ledger entry while nothing changes."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from planner.compiler.plan import Bundle
from runtime.engine.events import EventKind
from runtime.engine.ports import CallRequest, Commit, SwitchSettings
from tests.runtime.engine.fakes import FakePressure, World, WrappedStore, serve
from tests.runtime.engine.samples import (
    BIG,
    SMALL,
    START,
    bundle,
    impl,
    llm,
    plan,
    snapshot,
    walkthrough,
    walkthrough_bundle,
    workflow,
)

NODES = [f"n{index}" for index in range(6)]
CHAIN = workflow([llm(node) for node in NODES], list(pairwise(NODES)))


def two_variants() -> Bundle:
    return bundle(
        plan({node: impl(BIG) for node in NODES}, quality=0.9),
        plan({node: impl(SMALL) for node in NODES}, level=1.0, quality=0.85),
    )


def chain_world(**loads: float | None) -> World:
    return World(pressure=FakePressure({BIG: loads.get("big"), SMALL: loads.get("small")}))


def models(world: World) -> list[str]:
    return ["big" if request.model == BIG else "small" for request in world.dispatcher.sent]


def test_a_run_switches_down_and_back_up() -> None:
    world = chain_world(big=0.3, small=0.2)

    async def burst() -> None:
        await asyncio.sleep(1.5)
        world.pressure.by_model[BIG] = 1.31
        await asyncio.sleep(1)
        world.pressure.by_model[BIG] = 0.2

    finished = serve(
        world,
        snapshot(CHAIN, two_variants(), settings=SwitchSettings(dwell_s=2.0)),
        burst,
    )
    assert models(world) == ["big", "big", "small", "small", "big", "big"]
    switches = [(entry.at - START, entry.to_variant, entry.reason) for _, entry in finished.run.decisions]
    assert switches == [(2.0, 1, "congested"), (3.0, None, "dwell"), (4.0, 0, "relieved")]
    switched = finished.data(EventKind.SWITCHED)
    assert switched[0]["changed"] == ["n2", "n3", "n4", "n5"]
    assert switched[0]["kept"] == ["n0", "n1"]


def test_a_refusal_is_recorded_once_while_nothing_changes() -> None:
    world = chain_world(big=1.31, small=1.2)
    finished = serve(world, snapshot(CHAIN, two_variants()))
    assert models(world) == ["big"] * 6
    assert [data["reason"] for data in finished.data(EventKind.SWITCH_REFUSED)] == ["no_candidate"]
    assert world.pressure.reads == 6, "it is decided at every safe point all the same"


def test_a_new_reason_is_a_new_entry() -> None:
    world = chain_world(big=1.31, small=1.2)

    async def lose_sight() -> None:
        await asyncio.sleep(2.5)
        world.pressure.by_model[SMALL] = None

    finished = serve(world, snapshot(CHAIN, two_variants()), lose_sight)
    verdicts = [entry.candidates[0].reason for _, entry in finished.run.decisions]
    assert verdicts == ["overloaded", "unknown_load"]


def test_a_calm_run_writes_no_ledger() -> None:
    world = chain_world(big=0.3, small=0.2)
    finished = serve(world, snapshot(CHAIN, two_variants()))
    assert finished.run.decisions == []


def test_the_last_dispatched_node_leaves_nothing_to_decide() -> None:
    world = chain_world(big=0.3, small=0.2)
    serve(world, snapshot(workflow([llm("n0")]), bundle(plan({"n0": impl(BIG)}))))
    assert world.pressure.reads == 1


# --- Planned demand ---


def test_planned_demand_is_there_before_the_switch_is_durable_and_goes_when_calls_are_counted() -> None:
    world = chain_world(big=1.31, small=0.2)
    seen: list[tuple[str, object]] = []
    world.wrapped = WrappedStore(
        world.store, before=lambda number, _: seen.append((f"commit {number}", world.planned.now.get("run_1")))
    )

    def at_first_call() -> None:
        seen.append(("call", world.planned.now.get("run_1")))

    world.dispatcher.on_point = at_first_call
    serve(world, snapshot(workflow([llm("n0")]), _verified_on_small()))
    announced = (SMALL, 3, START + 5.0)
    assert seen[:2] == [("commit 1", announced), ("call", announced)]
    assert world.planned.now == {}
    assert world.planned.log == [("add", SMALL, 3, START + 5.0), ("clear",)]


def _verified_on_small() -> Bundle:
    return bundle(
        plan({"n0": impl(BIG)}, quality=0.9), plan({"n0": impl(SMALL, "multi_critique")}, level=1.0, quality=0.85)
    )


def test_planned_demand_stays_until_the_first_dispatch_on_the_new_class() -> None:
    """C switches to 9B while D, on 4B in both variants, is all that is ready; the announcement waits for C."""
    flow = workflow([llm("p"), llm("q"), llm("c")], [("p", "c"), ("q", "c")])
    plans = bundle(
        plan({"p": impl("tiny"), "q": impl("tiny"), "c": impl(BIG)}, dominant=BIG, quality=0.9),
        plan({"p": impl("tiny"), "q": impl("tiny"), "c": impl(SMALL)}, level=1.0, dominant=SMALL, quality=0.85),
    )
    world = chain_world(big=0.2, small=0.2)
    world.dispatcher.seconds = lambda request: {"p": 1.0, "q": 3.0, "c": 1.0}[request.node]
    seen: list[tuple[str, bool]] = []

    async def congest() -> None:
        await asyncio.sleep(0.5)
        world.pressure.by_model[BIG] = 1.31
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append((str(asyncio.get_running_loop().time()), "run_1" in world.planned.now))

    serve(world, snapshot(flow, plans), congest)
    assert seen == [("1.5", True), ("2.5", True), ("3.5", False)]


def test_planned_demand_can_be_turned_off_and_ends_with_the_run() -> None:
    off = chain_world(big=1.31, small=0.2)
    serve(off, snapshot(workflow([llm("n0")]), _verified_on_small(), settings=SwitchSettings(count_planned=False)))
    assert off.planned.log == []
    assert [request.model for request in off.dispatcher.sent] == [SMALL] * 5


def test_a_barred_switch_takes_its_announcement_back() -> None:
    world = chain_world(big=1.31, small=0.2)

    def cancel(number: int, commit: Commit) -> None:
        world.store.request_cancel("run_1")

    world.wrapped = WrappedStore(world.store, before=cancel)
    finished = serve(world, snapshot(CHAIN, two_variants()))
    assert finished.kinds()[-1] == "run_cancelled"
    assert (world.planned.now, finished.run.decisions, world.dispatcher.sent) == ({}, [], [])


def test_all_nodes_of_a_step_are_bound_under_one_variant() -> None:
    world = World(pressure=FakePressure({BIG: 0.7, SMALL: 0.2}))

    def congest_while_reading(request: CallRequest) -> float:
        world.pressure.by_model[BIG] = 1.31
        return 1.0

    world.dispatcher.seconds = congest_while_reading
    finished = serve(world, snapshot(walkthrough(), walkthrough_bundle()))
    steps: dict[float, set[int]] = {}
    for event in finished.run.events:
        if event.kind is EventKind.NODE_DISPATCHED and event.data["variant"] is not None:
            steps.setdefault(event.at, set()).add(event.data["variant"])
    assert steps == {START: {0}, START + 1: {1}, START + 2: {1}}
