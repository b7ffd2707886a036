"""One web process's view of all watched runs (ours; DESIGN.md, Durable execution).

However many sockets and streams a process serves, it holds ONE subscription to the channel layer and keeps ONE tail per
watched run. A poke says that a run has new events; the tail then reads them once, and every watcher takes them from
memory. A watcher is a cursor, not a queue: a slow client costs no memory, it catches up from the database. A lost poke
loses nothing: every `repair_s` seconds all tails of unfinished runs are read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Protocol

from django.db import Error as DatabaseFailure

from runtime.engine.events import EventKind
from runtime.pokes import LAYER_ERRORS, RUNS_GROUP

logger = logging.getLogger(__name__)

MEMORY_EVENTS = 1000
"""Events of one run that its tail keeps; who is further behind reads the database."""
BATCH = 500
_CLOSE_S = 2.0

END_KINDS = frozenset({EventKind.RUN_SUCCEEDED, EventKind.RUN_FAILED, EventKind.RUN_CANCELLED})

Event = Mapping[str, Any]
"""`{seq, kind, at, data}` as runtime.selectors.events_after gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a run's log ends, and whether more can come."""

    seq: int
    ended: bool


class EventLog(Protocol):
    """The database, as the hub reads it. Each method is one trip."""

    async def heads(self, run_ids: Sequence[str]) -> Mapping[str, Head]: ...

    async def tails(self, cursors: Mapping[str, int]) -> Mapping[str, Sequence[Event]]:
        """Per run at most BATCH events after its cursor, in order."""
        ...


class ChannelLayer(Protocol):
    async def new_channel(self, prefix: str = ...) -> str: ...

    async def group_add(self, group: str, channel: str) -> None: ...

    async def group_discard(self, group: str, channel: str) -> None: ...

    async def receive(self, channel: str) -> Mapping[str, Any]: ...


class Tail:
    """The end of one run's log in memory. `seq` is the last event read; the ring holds the events up to it."""

    def __init__(self, run_id: str, head: Head, *, memory: int) -> None:
        self.run_id = run_id
        self.seq = head.seq
        self.ended = head.ended
        self.watchers = 0
        self.ring: deque[Event] = deque(maxlen=memory)
        self._moved = asyncio.Event()

    def extend(self, events: Sequence[Event]) -> None:
        fresh = [event for event in events if event["seq"] > self.seq]
        if not fresh:
            return
        self.ring.extend(fresh)
        self.seq = fresh[-1]["seq"]
        self.ended = self.ended or any(event["kind"] in END_KINDS for event in fresh)
        self.wake()

    def remembered(self, after: int) -> Sequence[Event] | None:
        """The events after a cursor from memory; None when some of them are no longer, or never were, there."""
        if after >= self.seq:
            return ()
        if not self.ring or self.ring[0]["seq"] > after + 1:
            return None
        return [event for event in self.ring if event["seq"] > after][:BATCH]

    def wake(self) -> None:
        """Everybody who waits now looks again; who starts to wait later waits for the next move."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def moved(self) -> None:
        await self._moved.wait()


class Watch:
    """One client's cursor on a run's log."""

    def __init__(self, tail: Tail, log: EventLog, after: int, closed: asyncio.Event) -> None:
        self.seq = after
        self._tail, self._log, self._closed = tail, log, closed
        self._saw_end = False

    @property
    def finished(self) -> bool:
        """Nothing will ever follow: the run has ended and everything was taken."""
        return self._saw_end or (self._tail.ended and self.seq >= self._tail.seq)

    async def take(self, wait_s: float) -> Sequence[Event]:
        """The next events in order, at most BATCH; empty after `wait_s` seconds without one, or when finished."""
        events = await self._ready()
        if not events and not self.finished and not self._closed.is_set():
            try:
                async with asyncio.timeout(wait_s):
                    await self._tail.moved()
            except TimeoutError:
                return ()
            events = await self._ready()
        if events:
            self.seq = events[-1]["seq"]
            self._saw_end = events[-1]["kind"] in END_KINDS
        return events

    @property
    def closed(self) -> bool:
        """The process stops serving; the client should come back later with its cursor."""
        return self._closed.is_set()

    async def _ready(self) -> Sequence[Event]:
        events = self._tail.remembered(self.seq)
        if events is not None:
            return events
        known = self._tail.seq
        events = (await self._log.tails({self._tail.run_id: self.seq})).get(self._tail.run_id, ())
        if not events:
            # Retention took what lay between: there is nothing to wait for there.
            self.seq = max(self.seq, known)
        return events


class Hub:
    """Starts with its first watcher and runs until `close`. Belongs to one event loop."""

    def __init__(
        self,
        *,
        layer: ChannelLayer,
        log: EventLog,
        repair_s: float = 2.0,
        coalesce_s: float = 0.02,
        retry_s: float = 1.0,
    ) -> None:
        self._layer, self._log = layer, log
        self._repair_s, self._coalesce_s, self._retry_s = repair_s, coalesce_s, retry_s
        self._tails: dict[str, Tail] = {}
        self._due: set[str] = set()
        self._wanted = asyncio.Event()
        self._closed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.subscribed = asyncio.Event()
        """Set while pokes arrive; without it the repair alone moves the tails."""

    @asynccontextmanager
    async def watch(self, run_id: str, after: int = 0) -> AsyncIterator[Watch]:
        """A cursor on a run's log after event `after`. The caller has checked that the run is the client's to see."""
        self._start()
        tail = await self._tail(run_id)
        tail.watchers += 1
        try:
            yield Watch(tail, self._log, after, self._closed)
        finally:
            tail.watchers -= 1
            if tail.watchers == 0 and self._tails.get(run_id) is tail:
                del self._tails[run_id]

    async def close(self) -> None:
        """Ends every watch and the tasks; the hub cannot be used again."""
        self._closed.set()
        for tail in self._tails.values():
            tail.wake()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_S)
        self._tasks.clear()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    @property
    def watched(self) -> Mapping[str, int]:
        """Watchers per run."""
        return {run_id: tail.watchers for run_id, tail in self._tails.items()}

    # --- Inside ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._closed.is_set():
            raise RuntimeError("this hub is closed")
        if not self._tasks:
            # Contexts of their own: the first watcher's request, with its threads, ends before the hub does.
            self._tasks = [
                asyncio.create_task(job(), name=f"hub {job.__name__}", context=Context())
                for job in (self._listen, self._read, self._repair)
            ]
            for task in self._tasks:
                task.add_done_callback(_report)

    async def _tail(self, run_id: str) -> Tail:
        if run_id not in self._tails:
            head = (await self._log.heads([run_id])).get(run_id, Head(seq=0, ended=False))
            # Another watcher may have come while we read: the first tail stays.
            self._tails.setdefault(run_id, Tail(run_id, head, memory=MEMORY_EVENTS))
            if not head.ended:
                # A poke that came during that read found no tail.
                self._request(run_id)
        return self._tails[run_id]

    async def _listen(self) -> None:
        # A clean-up that fails while the task is being cancelled replaces the cancellation: hence the condition.
        while not self._closed.is_set():
            try:
                await self._receive()
            except LAYER_ERRORS as error:
                logger.warning("no pokes from the channel layer, trying again: %s", error)
                await asyncio.sleep(self._retry_s)

    async def _receive(self) -> None:
        channel = await self._layer.new_channel()
        await self._layer.group_add(RUNS_GROUP, channel)
        try:
            self.subscribed.set()
            # Pokes that came before the subscription are lost.
            self._request_unfinished()
            while True:
                self._poked(await self._layer.receive(channel))
        finally:
            self.subscribed.clear()
            await self._layer.group_discard(RUNS_GROUP, channel)

    def _poked(self, message: Mapping[str, Any]) -> None:
        for run_id, seq in message.get("runs", ()):
            tail = self._tails.get(run_id)
            if tail is not None and seq > tail.seq:
                self._request(run_id)

    def _request(self, *run_ids: str) -> None:
        self._due.update(run_ids)
        self._wanted.set()

    async def _read(self) -> None:
        while True:
            await self._wanted.wait()
            # Pokes of one burst become one trip.
            await asyncio.sleep(self._coalesce_s)
            self._wanted.clear()
            due, self._due = self._due, set()
            try:
                await self._advance(due)
            except DatabaseFailure as error:
                logger.warning("event tails could not be read, the repair tries again: %s", error)

    async def _advance(self, run_ids: set[str]) -> None:
        cursors = {run_id: self._tails[run_id].seq for run_id in run_ids if run_id in self._tails}
        found = await self._log.tails(cursors) if cursors else {}
        for run_id, events in found.items():
            tail = self._tails.get(run_id)
            if tail is None:
                continue
            tail.extend(events)
            if len(events) >= BATCH:
                self._request(run_id)

    async def _repair(self) -> None:
        while True:
            await asyncio.sleep(self._repair_s)
            self._request_unfinished()

    def _request_unfinished(self) -> None:
        unfinished = [run_id for run_id, tail in self._tails.items() if not tail.ended]
        if unfinished:
            self._request(*unfinished)


def _report(task: asyncio.Task[None]) -> None:
    """A task of the hub ends by cancellation alone; anything else is a bug that must be seen."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("%s died", task.get_name(), exc_info=task.exception())
