"""The invocations of one run that are in flight, as named tasks that never outlive it (ours)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from runtime.engine.invocations import Invocation, invoke
from runtime.engine.ports import Control, Outcome, Ports


class Flights:
    """Starts invocations, hands over the outcomes of those that have ended, and stops the rest.

    `stop` must have been awaited before the object is dropped. A stopped invocation has no outcome: its intent stays
    in flight in the store.
    """

    def __init__(self, ports: Ports, control: Control) -> None:
        self._ports, self._control = ports, control
        self._tasks: dict[str, asyncio.Task[Outcome]] = {}
        self._tools: set[str] = set()
        self._ended: list[asyncio.Task[Outcome]] = []
        self._wake = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    def start(self, invocations: Iterable[Invocation]) -> None:
        for invocation in invocations:
            node = invocation.node.id
            task = asyncio.create_task(invoke(invocation, self._ports), name=invocation.name)
            self._tasks[node] = task
            if invocation.intent.kind == "tool":
                self._tools.add(node)
            task.add_done_callback(self._on_end)

    def collect(self) -> tuple[Outcome, ...]:
        """The outcomes that came in since the last call, in the order in which the invocations ended."""
        ended, self._ended = self._ended, []
        outcomes = tuple(task.result() for task in ended if not task.cancelled())
        for outcome in outcomes:
            del self._tasks[outcome.node]
            self._tools.discard(outcome.node)
        return outcomes

    @property
    def any(self) -> bool:
        return bool(self._tasks)

    async def changed(self) -> None:
        """Wait until an invocation has ended or the control has something new. Raises what the control raised."""
        if self._watch is not None and self._watch.done():
            self._watch.result()
            self._watch = None
        if self._watch is None:
            self._watch = asyncio.create_task(self._control.wait(), name="control")
            self._watch.add_done_callback(lambda _: self._wake.set())
        await self._wake.wait()
        self._wake.clear()

    async def stop_calls(self) -> None:
        """Cancel the LLM invocations and wait until they are gone; tools go on."""
        await self._stop([node for node in self._tasks if node not in self._tools])

    async def stop(self) -> None:
        """Cancel everything and wait until it is gone."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self._stop(list(self._tasks))

    async def _stop(self, nodes: list[str]) -> None:
        running = {self._tasks[node] for node in nodes if not self._tasks[node].done()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for node in nodes:
            if self._tasks[node].cancelled():
                del self._tasks[node]
                self._tools.discard(node)

    def _on_end(self, task: asyncio.Task[Outcome]) -> None:
        self._ended.append(task)
        self._wake.set()
