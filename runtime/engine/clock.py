"""Clocks, and an event loop in virtual time for replays and tests (ours).

In a `VirtualLoop` no time passes while code runs, and time jumps to the next timer when every task waits. It has no
sockets and no threads: whatever waits for the outside world would wait for ever, and is reported as a deadlock.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from asyncio.events import TimerHandle
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class SystemClock:
    """The machine's clock: epoch seconds, so that times of several workers can be compared."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class VirtualClock:
    """The time of the running `VirtualLoop`, counted from `start` (epoch seconds)."""

    def __init__(self, start: float = 0.0) -> None:
        self._start = start

    def now(self) -> float:
        return self._start + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Deadlock(RuntimeError):
    """Every task of a virtual-time loop waits and no timer is left that could wake one."""


class _OrderedTimer(TimerHandle):
    """A timer that keeps the order in which timers of one moment were set; asyncio's own heap does not."""

    __slots__ = ("_key",)

    def __init__(self, order: int, when: float, *args: Any) -> None:
        super().__init__(when, *args)
        self._key = (when, order)

    def __lt__(self, other: object) -> bool:
        return self._key < other._key if isinstance(other, _OrderedTimer) else NotImplemented


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop whose clock starts at 0 and jumps. `BaseEventLoop` calls `_selector` and `_process_events`."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._order = itertools.count()
        self._scheduled: list[_OrderedTimer] = []
        self._selector = self

    def time(self) -> float:
        return self._now_s

    def call_at(  # type: ignore[override]  # the base class types its arguments by TypeVarTuple
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]  # private to asyncio, absent from its stubs
        timer = _OrderedTimer(next(self._order), when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]  # asyncio counts cancelled timers by it
        return timer

    def select(self, timeout: float | None) -> list[Any]:
        """Called once per turn where a socket loop waits for input: jump to the next timer instead."""
        if timeout is None:
            raise Deadlock("every task waits and no timer is set; in virtual time nothing else can wake them")
        if timeout > 0:
            self._now_s = self._scheduled[0].when()
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """No sockets, no events."""

    def _write_to_self(self) -> None:
        """`call_soon_threadsafe` wakes a waiting selector; this one never waits."""


def run_virtual(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, from 0. Raises `Deadlock` when it can never end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coro)
