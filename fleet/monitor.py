"""The monitor: polls all replicas, fuses scrapes with the workers' counters, publishes pressure (DESIGN.md, Pressure).

Several may run; the one that holds the lock in Redis leads, the others stand by. While Redis is away longer than the
lock lives, nobody leads: nothing could be published. Upper layers hang periodic jobs on it (DYSERVE_MONITOR_HOOKS).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, TypeVar

import redis.asyncio
from django.db import DatabaseError

from fleet.common.loops import let_cancellation_through
from fleet.redis import REDIS_ERRORS, LeaderLock, beat, publish_pressure, read_workers
from fleet.serving.client import ServingClient
from fleet.serving.clock import Clock, WallClock
from fleet.serving.pressure import FleetPressure, fuse
from fleet.watch import Target, Watches, WatchSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")
Hook = Callable[[], object]
_THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """Seconds between publications, samples, looks at the database and calls of the hooks; how long samples stay."""

    watch: WatchSettings = field(default_factory=WatchSettings)
    publish_s: float = 0.25
    sample_s: float = 2.0
    reload_s: float = 2.0
    hooks_s: float = 2.0
    prune_s: float = 60.0
    retention_s: float = 86400.0


class FleetRecords(Protocol):
    """The monitor's side of the database; called in threads."""

    def targets(self) -> Sequence[Target]: ...

    def models(self) -> Mapping[str, Sequence[str]]: ...

    def sample(self, pressure: Mapping[str, FleetPressure]) -> None: ...

    def prune(self, before: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """Something to do `every_s` seconds; errors it `survives` are logged and tried again, others end the monitor."""

    name: str
    step: Callable[[], Awaitable[None]]
    every_s: float
    survives: tuple[type[Exception], ...]


class Monitor:
    """`run` until `stop`; one instance per process and event loop. It closes neither the client nor the connection."""

    def __init__(
        self,
        *,
        lock: LeaderLock,
        client: ServingClient,
        connection: redis.asyncio.Redis,
        records: FleetRecords,
        settings: MonitorSettings,
        hooks: Mapping[str, Hook] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._lock, self._client, self._redis, self._records = lock, client, connection, records
        self._settings, self._hooks = settings, hooks or {}
        self._clock = clock or WallClock()
        self._random = random or Random()  # noqa: S311  jitter, nothing secret
        self._stopping = asyncio.Event()
        self._threads = ThreadPoolExecutor(max_workers=_THREADS + len(self._hooks), thread_name_prefix="monitor")
        self._models: Mapping[str, Sequence[str]] = {}
        self._pressure: dict[str, FleetPressure] = {}
        self._held_at: float | None = None
        self._troubles: set[str] = set()

    def stop(self) -> None:
        """Ends `run` soon; safe to call twice, and from a signal handler of the loop."""
        self._stopping.set()

    async def run(self) -> None:
        """Leads whenever it can, stands by otherwise; gives the lock up on the way out."""
        try:
            while not self._stopping.is_set():
                if await self._hold():
                    logger.info("monitor %s leads", self._lock.holder)
                    await self._lead()
                await self._pause(self._lock.ttl_s / 4)
        finally:
            await self._release()
            self._threads.shutdown(wait=False, cancel_futures=True)

    # --- Leadership ---

    async def _hold(self) -> bool:
        """Whether it leads: the lock was taken or renewed, or was renewed too recently for anyone to have taken it."""
        asked_at = self._clock.now()
        try:
            held = await self._lock.hold(self._redis)
        except REDIS_ERRORS as error:
            let_cancellation_through()
            self._trouble("lock", error)
            return self._held_at is not None and asked_at - self._held_at < self._lock.ttl_s
        let_cancellation_through()
        self._relief("lock")
        self._held_at = asked_at if held else None
        return held

    async def _lead(self) -> None:
        """Works until it stops or loses the lock; an error of the work is raised here."""
        work = asyncio.create_task(self._work(), name="monitor work")
        try:
            while not (self._stopping.is_set() or work.done()):
                await self._pause(self._lock.ttl_s / 4, work)
                if not work.done() and not await self._hold():
                    logger.warning("monitor %s no longer leads", self._lock.holder)
                    return
        finally:
            work.cancel()
            await asyncio.wait({work})
            if not work.cancelled():
                work.result()

    async def _release(self) -> None:
        try:
            await self._lock.release(self._redis)
        except REDIS_ERRORS as error:
            logger.info("the monitor's lock runs out by itself: %s", error)

    # --- Work ---

    async def _work(self) -> None:
        watches = Watches(client=self._client, clock=self._clock, random=self._random, settings=self._settings.watch)
        settings = self._settings
        jobs = [
            _Job(
                name="database",
                step=lambda: self._reload(watches),
                every_s=settings.reload_s,
                survives=(DatabaseError,),
            ),
            _Job(name="Redis", step=lambda: self._publish(watches), every_s=settings.publish_s, survives=REDIS_ERRORS),
            _Job(name="samples", step=self._sample, every_s=settings.sample_s, survives=(DatabaseError,)),
            _Job(name="retention", step=self._prune, every_s=settings.prune_s, survives=(DatabaseError,)),
            # A bug of an upper layer must not take the pressure away from everyone: any error is logged, once.
            *(
                _Job(name=name, step=self._hooked(hook), every_s=settings.hooks_s, survives=(Exception,))
                for name, hook in self._hooks.items()
            ),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for job in jobs:
                    group.create_task(self._repeat(job), name=f"monitor {job.name}")
        finally:
            await watches.close()

    async def _repeat(self, job: _Job) -> None:
        """One job, for ever. What it survives it meets again: said once, and once more when it is over."""
        while True:
            try:
                await job.step()
            except job.survives as error:
                self._trouble(job.name, error)
            else:
                self._relief(job.name)
            let_cancellation_through()
            await self._clock.sleep(job.every_s)

    async def _reload(self, watches: Watches) -> None:
        targets = await self._in_thread(self._records.targets)
        self._models = await self._in_thread(self._records.models)
        watches.update(targets)

    async def _publish(self, watches: Watches) -> None:
        watches.check()
        counters = await read_workers(self._redis)
        now = self._clock.now()
        rules = self._settings.watch.pressure
        for fleet, models in self._models.items():
            signals = watches.signals(fleet, counters.replicas)
            pressure = fuse(signals, counters.planned, now, models=models, rules=rules)
            await publish_pressure(self._redis, fleet, pressure.to_json())
            self._pressure[fleet] = pressure
        await beat(self._redis, now)

    async def _sample(self) -> None:
        """Keeps what was published last; nothing is made up for a time when nothing could be published."""
        recent = self._clock.now() - self._settings.sample_s
        pressure = {fleet: item for fleet, item in self._pressure.items() if item.at >= recent}
        if pressure:
            await self._in_thread(lambda: self._records.sample(pressure))

    async def _prune(self) -> None:
        before = self._clock.now() - self._settings.retention_s
        await self._in_thread(lambda: self._records.prune(before))

    def _hooked(self, hook: Hook) -> Callable[[], Awaitable[None]]:
        async def step() -> None:
            await self._in_thread(hook)

        return step

    # --- Helpers ---

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def _pause(self, seconds: float, *until: asyncio.Task[None]) -> None:
        """Waits, but not beyond a stop nor beyond the end of one of the tasks."""
        stopping = asyncio.create_task(self._stopping.wait(), name="monitor stop")
        try:
            await asyncio.wait({stopping, *until}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    def _trouble(self, name: str, error: Exception) -> None:
        if name not in self._troubles:
            self._troubles.add(name)
            logger.warning("monitor: %s: %s: %s", name, type(error).__name__, error, exc_info=_unexpected(error))

    def _relief(self, name: str) -> None:
        if name in self._troubles:
            self._troubles.discard(name)
            logger.info("monitor: %s works again", name)


def _unexpected(error: Exception) -> bool:
    """Whether a traceback says more than the message: not for a server that is away."""
    return not isinstance(error, (*REDIS_ERRORS, DatabaseError))
