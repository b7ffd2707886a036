from __future__ import annotations

import asyncio

import pytest

from runtime.engine.clock import run_virtual
from runtime.engine.control import LocalControl
from runtime.engine.flights import Flights
from runtime.engine.invocations import Invocation
from runtime.engine.ports import Intent
from tests.runtime.engine.fakes import SlowTool, World
from tests.runtime.engine.samples import START, impl, llm, snapshot, tool, workflow

FLOW = workflow([llm("a"), llm("b"), tool("t", tool="slow")])


def flight(node: str) -> Invocation:
    kind, binding = ("tool", None) if node == "t" else ("llm", impl())
    intent = Intent(node=node, attempt=1, kind=kind, at=START, binding=binding, variant=0)  # type: ignore[arg-type]
    return Invocation(run=snapshot(FLOW), node=FLOW.by_id[node], intent=intent, outputs={})


def test_outcomes_come_in_the_order_in_which_invocations_end() -> None:
    world = World()
    world.dispatcher.seconds = lambda request: 2.0 if request.node == "a" else 1.0

    async def main() -> list[tuple[float, list[str]]]:
        flights, seen = Flights(world.ports, world.control), []
        flights.start([flight("a"), flight("b")])
        while flights.any:
            await flights.changed()
            seen.append((asyncio.get_running_loop().time(), [outcome.node for outcome in flights.collect()]))
        await flights.stop()
        return seen

    assert run_virtual(main()) == [(1.0, ["b"]), (2.0, ["a"])]


def test_stopping_calls_leaves_tools_alone() -> None:
    slow = SlowTool(5.0)
    world = World(tools=(slow,))
    world.dispatcher.seconds = lambda request: 100.0

    async def main() -> list[str]:
        flights = Flights(world.ports, world.control)
        flights.start([flight("a"), flight("t")])
        assert {task.get_name() for task in asyncio.all_tasks()} >= {"run_1/a#1", "run_1/t#1"}
        await asyncio.sleep(1)
        await flights.stop_calls()
        assert (world.dispatcher.in_flight, flights.any) == (0, True)
        await flights.changed()
        while not (outcomes := flights.collect()):
            await flights.changed()
        await flights.stop()
        return [outcome.output for outcome in outcomes]

    assert run_virtual(main()) == ["slow result"]


def test_a_broken_control_is_raised_not_ignored() -> None:
    class Broken(LocalControl):
        async def wait(self) -> None:
            raise ConnectionError("the poke channel is gone")

    async def main() -> None:
        flights = Flights(World().ports, Broken())
        await flights.changed()
        with pytest.raises(ConnectionError):
            await flights.changed()
        await flights.stop()

    run_virtual(main())
