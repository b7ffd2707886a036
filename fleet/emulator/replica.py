"""One emulated replica in real time (ours): drives the pure engine by one timer, set for its next event.

Virtual seconds are wall seconds times the time scale. Nothing here ticks: between events the loop sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from fleet.emulator.config import EmulatorConfig, ReplicaConfig
from fleet.emulator.engine import Engine, Event, Limits, QueueFull, Timings
from fleet.emulator.metrics import Counters, Gauges, page

Result = TypeVar("Result")


class EngineStopped(Exception):
    """The replica is stopping: what it was working on has no answer."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A submitted request. `first_token` and `finished` fail with EngineStopped when the replica stops."""

    id: int
    finish_reason: str
    first_token: asyncio.Future[None]
    finished: asyncio.Future[Timings]

    def fail(self) -> None:
        for future in (self.first_token, self.finished):
            if not future.done():
                future.set_exception(EngineStopped())
                future.exception()  # retrieved here: nobody may be waiting for it


@dataclass(slots=True)
class EmulatedReplica:
    """Must be used on one event loop; `now` is wall seconds of any origin (the loop's clock)."""

    config: ReplicaConfig
    emulator: EmulatorConfig
    now: Callable[[], float]
    counters: Counters = field(default_factory=Counters)
    stopped: bool = False
    _engine: Engine = field(init=False)
    _started_at: float = field(init=False)
    _ids: count[int] = field(default_factory=count)
    _tickets: dict[int, Ticket] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self._started_at = self.now()
        self._engine = Engine(
            Limits(
                hardware=self.config.hardware_spec,
                model=self.config.model_spec,
                max_num_seqs=self.config.max_num_seqs,
                kv_tokens=self.config.kv_capacity,
                max_queued=self.config.max_queued,
            )
        )

    # --- Requests ---

    def submit(self, prompt_tokens: int, output_tokens: int, finish_reason: str) -> Ticket:
        """Takes a request. Raises QueueFull, EngineStopped, TooLarge."""
        if self.stopped:
            raise EngineStopped
        loop = asyncio.get_running_loop()
        ticket = Ticket(
            id=next(self._ids),
            finish_reason=finish_reason,
            first_token=loop.create_future(),
            finished=loop.create_future(),
        )
        self._tickets[ticket.id] = ticket
        try:
            events = self._engine.submit(ticket.id, prompt_tokens, output_tokens, self._virtual_now())
        except QueueFull as full:
            del self._tickets[ticket.id]
            self.counters.rejected += 1
            self._handle(full.events)
            raise
        self._handle(events)
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Frees the request's slot; nothing happens when it has ended."""
        if self._tickets.pop(ticket.id, None) is not None:
            self.counters.finished["abort"] += 1
            self._handle(self._engine.cancel(ticket.id, self._virtual_now()))

    def tokens_done(self, ticket: Ticket) -> int:
        """Tokens so far of a request that has not ended."""
        self._handle(self._engine.advance(self._virtual_now()))
        return self._engine.tokens_done(ticket.id)

    def stop(self) -> None:
        """Ends like a killed engine: everything in flight fails, new requests are refused."""
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for ticket in self._tickets.values():
            ticket.fail()
        self._tickets.clear()

    # --- What it shows ---

    def metrics(self) -> str:
        self._handle(self._engine.advance(self._virtual_now()))
        gauges = Gauges(
            running=self._engine.running,
            waiting=self._engine.waiting,
            kv_usage=self._engine.held_tokens / self.config.kv_capacity,
            kv_capacity=self.config.kv_capacity,
            prompt_tokens=self._engine.prompt_tokens_total,
            generation_tokens=self._engine.output_tokens_total,
        )
        return page(self.config.model, gauges, self.counters)

    @property
    def load(self) -> int:
        return self._engine.running + self._engine.waiting

    def wall_s(self, virtual_s: float) -> float:
        return virtual_s / self.emulator.time_scale

    # --- Time ---

    def _virtual_now(self) -> float:
        return (self.now() - self._started_at) * self.emulator.time_scale

    def _tick(self) -> None:
        self._handle(self._engine.advance(self._virtual_now()))

    def _handle(self, events: list[Event]) -> None:
        """Tells the waiting handlers and sets the timer for the engine's next event."""
        for event in events:
            ticket = self._tickets.get(event.id)
            if ticket is None:
                continue
            if event.kind == "first_token":
                _resolve(ticket.first_token, None)
            elif event.timings is not None:
                del self._tickets[event.id]
                self._count(ticket, event.timings)
                _resolve(ticket.finished, event.timings)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self._engine.next_event_at()
        if at is not None and not self.stopped:
            delay_s = self.wall_s(max(0.0, at - self._virtual_now()))
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _count(self, ticket: Ticket, timings: Timings) -> None:
        self.counters.finished[ticket.finish_reason] += 1
        self.counters.ttft.observe(self.wall_s(timings.first_token_at - timings.arrived_at))
        self.counters.e2e.observe(self.wall_s(timings.finished_at - timings.arrived_at))
        self.counters.queue.observe(self.wall_s(timings.admitted_at - timings.arrived_at))


def _resolve(future: asyncio.Future[Result], value: Result) -> None:
    """A handler that was cancelled has cancelled its future as well."""
    if not future.done():
        future.set_result(value)
