"""Answers that take a while, computed once and kept in this process (ours).

No cache is shared between processes: the answers are trees of values that only this code reads, and each is computed
again in about the time that a broker would take to hand over some of them. Computing is Python, so that one question
at a time is the fastest order, and a time limit by the clock means the same for each.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock, Semaphore
from typing import Any, TypeVar, cast

from planner.errors import Busy

T = TypeVar("T")
Key = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    answer: Any
    weight: int


class Answers:
    """Safe to share between threads. Equal questions at the same moment are one; a failure is nobody's answer later.

    `room`: how much is kept, in the unit of `weigh`, the last answer always; the ones not asked for longest go first.
    At most `waiting` threads compute or wait, none waits longer than `patience_s`: else Busy.
    """

    def __init__(self, *, room: int, waiting: int = 8, patience_s: float = 5.0) -> None:
        self._room, self._patience_s = room, patience_s
        self._lock, self._turn, self._places = Lock(), Semaphore(1), Semaphore(waiting)
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._running: dict[Key, Future[Any]] = {}
        self._weight = 0

    def get(self, key: Key, compute: Callable[[], T], weigh: Callable[[T], int]) -> T:
        """What `compute` gave for this key. Raises what `compute` raised, and Busy."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return cast(T, self._kept[key].answer)
        if not self._places.acquire(blocking=False):
            raise Busy
        try:
            return self._computed(key, compute, weigh)
        finally:
            self._places.release()

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._weight = 0

    def _computed(self, key: Key, compute: Callable[[], T], weigh: Callable[[T], int]) -> T:
        with self._lock:
            if key in self._kept:
                return cast(T, self._kept[key].answer)
            running = self._running.get(key)
            if running is None:
                mine = self._running[key] = Future()
        if running is not None:
            return cast(T, self._awaited(running))
        try:
            answer = self._in_turn(compute)
        except BaseException as error:
            self._done(key)
            mine.set_exception(error)
            raise
        self._done(key, _Kept(answer, weigh(answer)))
        mine.set_result(answer)
        return answer

    def _awaited(self, running: Future[Any]) -> Any:
        try:
            return running.result(timeout=self._patience_s)
        except TimeoutError:
            raise Busy from None

    def _in_turn(self, compute: Callable[[], T]) -> T:
        if not self._turn.acquire(timeout=self._patience_s):
            raise Busy
        try:
            return compute()
        finally:
            self._turn.release()

    def _done(self, key: Key, kept: _Kept | None = None) -> None:
        with self._lock:
            del self._running[key]
            if kept is None:
                return
            self._kept[key] = kept
            self._weight += kept.weight
            while self._weight > self._room and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._weight -= oldest.weight
