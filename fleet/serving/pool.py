"""Chooses a replica of a backend for every call, and tries another one when that costs nothing (ours).

By the rule of the settings (`choice.py`), on own calls in flight plus what the last scrape says of others; an own cap
per replica, beyond which calls wait here in order. A call is tried again only while no token of it was accepted, only
on replicas of the SAME backend, and only within its own total limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from fleet.serving.chat import ChatRequest, ChatResponse, Delta
from fleet.serving.choice import AFFINITY_MARGIN, ChoiceRule, ReplicaChoice
from fleet.serving.client import OnDelta
from fleet.serving.clock import Clock, WallClock
from fleet.serving.errors import NoReplica, ServingError, TotalTimedOut


class ChatClient(Protocol):
    """What the pool needs of `ServingClient`."""

    async def chat(self, url: str, request: ChatRequest, *, api_key: str | None = None) -> ChatResponse: ...

    async def stream_chat(
        self, url: str, request: ChatRequest, *, api_key: str | None = None, on_delta: OnDelta | None = None
    ) -> ChatResponse: ...


class CallObserver(Protocol):
    """Hears how each try on each replica ended; `error` None: well. Must not block."""

    def __call__(self, replica: str, error: ServingError | None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One server of a backend. `cap` bounds the own calls in flight there; None: the pool's default."""

    name: str
    url: str
    backend: str
    api_key: str | None = field(default=None, repr=False)
    dispatchable: bool = True
    cap: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """`wait_for_replica_s`: how long a call waits for its backend to get a dispatchable replica. Back-off is
    exponential from `backoff_s` to `backoff_max_s`, with full jitter."""

    choice: ChoiceRule = "least_outstanding"
    affinity_margin: float = AFFINITY_MARGIN
    cap: int = 256
    max_tries: int = 4
    backoff_s: float = 0.2
    backoff_max_s: float = 5.0
    wait_for_replica_s: float = 30.0

    def __post_init__(self) -> None:
        if self.cap < 1 or self.max_tries < 1:
            raise ValueError("the pool needs cap >= 1 and max_tries >= 1")
        if min(self.backoff_s, self.backoff_max_s, self.wait_for_replica_s, self.affinity_margin) < 0:
            raise ValueError("the pool's times and its margin must not be negative")


@dataclass(slots=True)
class _Slots:
    """One replica's book-keeping. `others`: scraped load at the last scrape that was not ours."""

    replica: Replica
    inflight: int = 0
    others: float = 0.0
    turn: int = 0

    @property
    def name(self) -> str:
        return self.replica.name

    @property
    def outstanding(self) -> float:
        return self.inflight + self.others


@dataclass(slots=True, eq=False)
class _Waiter:
    """`avoid`: replicas that failed this call."""

    backend: str
    run: str
    avoid: frozenset[str]
    granted: asyncio.Future[str]


class ReplicaPool:
    """One per worker process and event loop. `update` and `observe` may be called at any time on that loop."""

    def __init__(
        self,
        client: ChatClient,
        replicas: Iterable[Replica] = (),
        *,
        settings: PoolSettings | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        observer: CallObserver | None = None,
    ) -> None:
        self._client = client
        self._settings = settings or PoolSettings()
        self._clock = clock or WallClock()
        self._random = random or Random()  # noqa: S311  jitter, nothing secret
        self._observer = observer
        self._choice = ReplicaChoice(self._settings.choice, self._settings.affinity_margin)
        self._slots: dict[str, _Slots] = {}
        self._waiters: dict[str, deque[_Waiter]] = {}
        self._turn = 0
        self.update(replicas)

    # --- What the monitor tells ---

    def update(self, replicas: Iterable[Replica]) -> None:
        """The present replicas. Calls in flight on one that left end there; waiting calls see new ones at once."""
        fresh: dict[str, _Slots] = {}
        for replica in replicas:
            slots = self._slots.get(replica.name) or _Slots(replica=replica)
            slots.replica = replica
            fresh[replica.name] = slots
        for name, slots in self._slots.items():
            if name not in fresh and slots.inflight:
                slots.replica = replace(slots.replica, dispatchable=False)
                fresh[name] = slots
        self._slots = fresh
        for backend in list(self._waiters):
            self._serve(backend)

    def observe(self, scraped: Mapping[str, float]) -> None:
        """Scraped running + waiting per replica name; what exceeds the own calls in flight belongs to others."""
        for name, total in scraped.items():
            if name in self._slots:
                slots = self._slots[name]
                slots.others = max(0.0, total - slots.inflight)

    def inflight(self) -> Mapping[str, int]:
        """Own calls in flight per replica, zeros included."""
        return {name: slots.inflight for name, slots in self._slots.items()}

    def waiting(self) -> Mapping[str, int]:
        """Calls per backend that wait here for a slot."""
        return {backend: len(queue) for backend, queue in self._waiters.items() if queue}

    # --- Calls ---

    async def call(self, backend: str, request: ChatRequest, *, on_delta: OnDelta | None = None) -> ChatResponse:
        """The answer of some replica of `backend`; streamed when `on_delta` is given.

        Raises ServingError, with `replica` and `tries` set, once the tries or the total limit are used up.
        """
        started_at = self._clock.now()
        deadline = started_at + request.timeout_s
        failed: frozenset[str] = frozenset()
        tries = 0
        while True:
            tries += 1
            accepted = _Accepted(on_delta)
            try:
                async with self._slot(backend, request.run, failed, deadline) as chosen:
                    response = await self._try(chosen, request, deadline, accepted)
                return replace(response, started_at=started_at, tries=tries)
            except ServingError as error:
                error.tries = tries
                failed |= {error.replica}
                if not await self._again(error, tries, accepted, deadline):
                    raise

    async def _again(self, error: ServingError, tries: int, accepted: _Accepted, deadline: float) -> bool:
        """Backs off and says whether to try again."""
        if error.retry != "elsewhere" or accepted.any or tries >= self._settings.max_tries:
            return False
        ceiling = min(self._settings.backoff_max_s, self._settings.backoff_s * 2 ** (tries - 1))
        delay_s = self._random.uniform(0, ceiling)
        if self._clock.now() + delay_s >= deadline:
            return False
        await self._clock.sleep(delay_s)
        return True

    async def _try(self, chosen: Replica, request: ChatRequest, deadline: float, accepted: _Accepted) -> ChatResponse:
        left_s = deadline - self._clock.now()
        try:
            if left_s <= 0:
                raise TotalTimedOut("no time left after waiting for a replica")
            limited = replace(request, timeout_s=left_s)
            if accepted.wanted:
                response = await self._client.stream_chat(
                    chosen.url, limited, api_key=chosen.api_key, on_delta=accepted
                )
            else:
                response = await self._client.chat(chosen.url, limited, api_key=chosen.api_key)
        except ServingError as error:
            error.replica = chosen.name
            self._tell(chosen.name, error)
            raise
        self._tell(chosen.name, None)
        return replace(response, replica=chosen.name)

    def _tell(self, name: str, error: ServingError | None) -> None:
        if self._observer is not None:
            self._observer(name, error)

    # --- Slots ---

    @asynccontextmanager
    async def _slot(self, backend: str, run: str, avoid: frozenset[str], deadline: float) -> AsyncIterator[Replica]:
        """A replica with one slot taken; leaving gives the slot back."""
        name = self._take(backend, run, avoid) if not self._waiters.get(backend) else None
        if name is None:
            name = await self._wait(backend, run, avoid, deadline)
        try:
            yield self._slots[name].replica
        finally:
            self._give_back(name)

    def _choose(self, backend: str, run: str, avoid: frozenset[str]) -> _Slots | None:
        """By the rule, below its cap; a replica that failed this call only when there is no other."""
        open_ = [slots for slots in self._dispatchable(backend) if slots.inflight < self._cap(slots)]
        untried = [slots for slots in open_ if slots.name not in avoid]
        return self._choice.best(untried or open_, backend, run)

    def _dispatchable(self, backend: str) -> list[_Slots]:
        return [s for s in self._slots.values() if s.replica.backend == backend and s.replica.dispatchable]

    def _cap(self, slots: _Slots) -> int:
        return slots.replica.cap or self._settings.cap

    def _take(self, backend: str, run: str, avoid: frozenset[str]) -> str | None:
        slots = self._choose(backend, run, avoid)
        if slots is None:
            return None
        self._choice.chosen(slots.name, backend, run)
        self._turn += 1
        slots.turn = self._turn
        slots.inflight += 1
        return slots.name

    def _give_back(self, name: str) -> None:
        slots = self._slots[name]
        slots.inflight -= 1
        self._serve(slots.replica.backend)

    async def _wait(self, backend: str, run: str, avoid: frozenset[str], deadline: float) -> str:
        """Queues for a slot. Raises NoReplica when the backend stays without one, TotalTimedOut at the deadline."""
        waiter = _Waiter(backend=backend, run=run, avoid=avoid, granted=asyncio.get_running_loop().create_future())
        queue = self._waiters.setdefault(backend, deque())
        queue.append(waiter)
        try:
            return await self._granted(waiter, deadline)
        except BaseException:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self._give_back(waiter.granted.result())
            raise
        finally:
            if waiter in queue:
                queue.remove(waiter)
            if not queue:
                self._waiters.pop(backend, None)

    async def _granted(self, waiter: _Waiter, deadline: float) -> str:
        """The replica that `_serve` hands over; looks up from time to time whether there is still one to wait for."""
        usable = True
        while not waiter.granted.done():
            left_s = deadline - self._clock.now()
            if left_s <= 0:
                raise TotalTimedOut(f"no replica of backend {waiter.backend} came below its cap in time")
            had, usable = usable, bool(self._dispatchable(waiter.backend))
            if not had and not usable:
                raise NoReplica(f"backend {waiter.backend} has no replica that may be called")
            await self._grant_or_sleep(waiter, min(left_s, self._settings.wait_for_replica_s))
        return waiter.granted.result()

    async def _grant_or_sleep(self, waiter: _Waiter, limit_s: float) -> None:
        """A timer of the pool's own clock beside the grant, so that virtual time works too."""
        timer = asyncio.create_task(self._clock.sleep(limit_s), name=f"slot wait {waiter.backend}")
        waiter.granted.add_done_callback(lambda _: timer.cancel())
        try:
            await asyncio.wait({timer})
        finally:
            timer.cancel()

    def _serve(self, backend: str) -> None:
        """Hands free slots to waiting calls, first come first served."""
        queue = self._waiters.get(backend)
        while queue:
            if queue[0].granted.done():
                queue.popleft()
                continue
            name = self._take(backend, queue[0].run, queue[0].avoid)
            if name is None:
                return
            queue.popleft().granted.set_result(name)


class _Accepted:
    """Passes deltas on and remembers that one came: from then on the call is not tried again."""

    def __init__(self, on_delta: OnDelta | None) -> None:
        self._on_delta = on_delta
        self.any = False

    @property
    def wanted(self) -> bool:
        return self._on_delta is not None

    def __call__(self, delta: Delta) -> None:
        self.any = True
        if self._on_delta is not None:
            self._on_delta(delta)
