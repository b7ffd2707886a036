"""Watches replicas: one task each, so that a replica that hangs delays nobody but itself (DESIGN.md, Pressure).

A poll asks /health, then /metrics. What is seen goes through the pure rules of fleet.serving; nothing here knows
Django or Redis.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from fleet.serving.client import ServingClient
from fleet.serving.clock import Clock
from fleet.serving.errors import ServingError
from fleet.serving.health import Health, HealthRules, OperatorState, observe, operate, poll_observation
from fleet.serving.pressure import PressureRules, ReplicaSignals, after_scrape, replica_state

logger = logging.getLogger(__name__)

JITTER = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One replica to watch, as the database knows it. `capacity` in sequences."""

    replica: str
    url: str
    fleet: str
    backend: str
    model: str
    capacity: float
    operator: OperatorState = OperatorState.ENABLED
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """`interval_s` between polls, jittered by a fifth so that they are not in step; `timeout_s` of a request."""

    interval_s: float = 2.0
    timeout_s: float = 2.0
    pressure: PressureRules = field(default_factory=PressureRules)
    health: HealthRules = field(default_factory=HealthRules)


class Watch:
    """What is known of one replica; `poll` once, or `run` for ever."""

    def __init__(
        self, target: Target, *, client: ServingClient, clock: Clock, random: Random, settings: WatchSettings
    ) -> None:
        self.target = target
        self._client, self._clock, self._random, self._settings = client, clock, random, settings
        self._health = Health(operator=target.operator, since=clock.now())
        self._signals = ReplicaSignals(
            replica=target.replica, backend=target.backend, model=target.model, capacity=target.capacity
        )
        self._said: tuple[str, tuple[str, ...]] | None = None

    @property
    def health(self) -> Health:
        return self._health

    def signals(self, inflight: int = 0) -> ReplicaSignals:
        """The signals with the verdict of health and operator, and the workers' own calls in flight."""
        return replace(self._signals, healthy=self._health.dispatchable, inflight=inflight)

    def retarget(self, target: Target) -> None:
        """Takes over what changed in the database; what was measured stays."""
        self.target = target
        self._health = operate(self._health, target.operator, self._clock.now())
        self._signals = replace(self._signals, backend=target.backend, model=target.model, capacity=target.capacity)

    async def poll(self) -> None:
        """One poll, bounded in time; never raises for what a replica does."""
        error: ServingError | None = None
        url, key, limit_s = self.target.url, self.target.api_key, self._settings.timeout_s
        try:
            await self._client.health(url, api_key=key, timeout_s=limit_s)
            page = await self._client.metrics(url, api_key=key, timeout_s=limit_s)
            self._signals = after_scrape(self._signals, page, self._clock.now())
        except ServingError as failure:
            error = failure
        seen = poll_observation(error, stalled=error is None and self._stalled())
        self._health = observe(self._health, seen, self._clock.now(), self._settings.health)
        self._report(seen.error)

    async def run(self) -> None:
        while True:
            await self.poll()
            await self._clock.sleep(self._settings.interval_s * self._random.uniform(1 - JITTER, 1 + JITTER))

    def _stalled(self) -> bool:
        """Judged as if it were healthy: a replica that was taken down for stalling must move to come back."""
        signals = replace(self._signals, healthy=True)
        return replica_state(signals, self._clock.now(), self._settings.pressure) == "stalled"

    def _report(self, error: str) -> None:
        """One line per change, not per poll."""
        now = (self._health.state.value, self._signals.missing)
        if now == self._said:
            return
        self._said = now
        reason = f" ({error})" if error else ""
        missing = f"; its page lacks {', '.join(self._signals.missing)}" if self._signals.missing else ""
        logger.info("replica %s is %s%s%s", self.target.replica, self._health.state.value, reason, missing)


class Watches:
    """The watches of all replicas, each with its task; use it as an async context manager."""

    def __init__(self, *, client: ServingClient, clock: Clock, random: Random, settings: WatchSettings) -> None:
        self._client, self._clock, self._random, self._settings = client, clock, random, settings
        self._watches: dict[str, Watch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def update(self, targets: Iterable[Target]) -> None:
        """Watches the given replicas and no others. A moved replica is a new one: its old signals say nothing."""
        wanted = {target.replica: target for target in targets}
        for name, watch in list(self._watches.items()):
            if name not in wanted or wanted[name].url != watch.target.url:
                self._tasks.pop(name).cancel()
                del self._watches[name]
        for name, target in wanted.items():
            if name in self._watches:
                self._watches[name].retarget(target)
            else:
                self._start(target)

    def of_fleet(self, fleet: str) -> tuple[Watch, ...]:
        return tuple(watch for watch in self._watches.values() if watch.target.fleet == fleet)

    def signals(self, fleet: str, inflight: Mapping[str, int]) -> tuple[ReplicaSignals, ...]:
        return tuple(watch.signals(inflight.get(watch.target.replica, 0)) for watch in self.of_fleet(fleet))

    def check(self) -> None:
        """Raises what a watch's task died of: a bug must end the monitor, not one replica's polls."""
        for task in self._tasks.values():
            if task.done() and not task.cancelled():
                task.result()

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._watches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, target: Target) -> None:
        watch = Watch(target, client=self._client, clock=self._clock, random=self._random, settings=self._settings)
        self._watches[target.replica] = watch
        self._tasks[target.replica] = asyncio.create_task(watch.run(), name=f"watch {target.replica}")
