"""A worker's link to the fleet: the pool of replicas, what it is told every few moments, and what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from fleet.models import Fleet
from fleet.redis import REDIS_ERRORS, WorkerCounters, publish_worker
from fleet.selectors import pressure, replica_endpoints, served_names
from fleet.serving.client import ServingClient
from fleet.serving.pool import PoolSettings, Replica, ReplicaPool
from fleet.serving.pressure import FleetPressure
from runtime.adapters.http import HttpDispatcher
from runtime.adapters.planned import PlannedBook
from runtime.adapters.pressure import OwnCounters, PressureBoard
from runtime.database import DATABASE_ERRORS
from runtime.engine.ports import Clock, PressureSource
from runtime.loop import every
from runtime.threads import DatabaseThreads

T = TypeVar("T")

ENDPOINTS_S = 2.0
PRESSURE_S = 0.25
COUNTERS_S = 0.25
_THREADS = 3
"""One for each of the three: a database that is away must not delay what comes from Redis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """All fleets as the database has them now."""

    replicas: tuple[Replica, ...]
    served_names: Mapping[str, str]
    fleets: tuple[Fleet, ...]


def read_endpoints() -> Endpoints:
    fleets = tuple(Fleet.objects.order_by("name"))
    return Endpoints(
        replicas=tuple(replica for fleet in fleets for replica in replica_endpoints(fleet)),
        served_names={backend: name for fleet in fleets for backend, name in served_names(fleet).items()},
        fleets=fleets,
    )


def read_pressure(fleets: Sequence[Fleet]) -> Mapping[str, FleetPressure | None]:
    return {fleet.name: pressure(fleet) for fleet in fleets}


class FleetLink:
    """Belongs to one event loop: `run` until cancelled, then `aclose`. Calls wait until the fleet was read once."""

    def __init__(
        self, *, worker: str, client: ServingClient, clock: Clock, settings: PoolSettings | None = None
    ) -> None:
        self._worker, self._client, self._clock = worker, client, clock
        self._pool = ReplicaPool(client, settings=settings, clock=clock)
        self._fleets: tuple[Fleet, ...] = ()
        self._threads = DatabaseThreads(_THREADS, "dyserve-fleet")
        self.planned = PlannedBook(clock)
        self.dispatcher = HttpDispatcher(self._pool)
        self._board = PressureBoard(counters=self.counters, clock=clock)

    def pressure(self, fleet: str) -> PressureSource:
        return self._board.of(fleet)

    def counters(self) -> OwnCounters:
        return OwnCounters(
            at=self._clock.now(), replicas=dict(self._pool.inflight()), planned=dict(self.planned.totals())
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(every(ENDPOINTS_S, "reading the fleet", self.refresh_endpoints, DATABASE_ERRORS))
            group.create_task(every(PRESSURE_S, "reading pressure", self.refresh_pressure, REDIS_ERRORS))
            group.create_task(every(COUNTERS_S, "publishing counters", self.publish_counters, REDIS_ERRORS))

    async def aclose(self) -> None:
        await asyncio.to_thread(self._threads.stop)
        await self._client.aclose()

    async def refresh_endpoints(self) -> None:
        """Raises the database's errors; then what is known stays."""
        endpoints = await self._in_thread(read_endpoints)
        self._fleets = endpoints.fleets
        self._pool.update(endpoints.replicas)
        self.dispatcher.learn(endpoints.served_names)

    async def refresh_pressure(self) -> None:
        """Take over what the monitor published, where it did."""
        published = await self._in_thread(lambda: read_pressure(self._fleets))
        for fleet, value in published.items():
            self._board.update(fleet, value)
            if value is not None:
                self._pool.observe({item.replica: item.outstanding for item in value.replicas})

    async def publish_counters(self) -> None:
        """Tell the monitor, and so all workers, of this worker's calls. Raises one of REDIS_ERRORS."""
        counters = self.counters()
        shared = WorkerCounters(
            replicas={name: count for name, count in counters.replicas.items() if count},
            planned={model: float(calls) for model, calls in counters.planned.items() if calls},
        )
        await self._in_thread(lambda: publish_worker(self._worker, shared))
        self._board.note_published(replace(counters, at=self._clock.now()))

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._threads.call(function))
