"""The monitor with a real Valkey and real emulated replicas: it publishes, one leads, it stops when told."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random

import pytest
import redis.asyncio
from pytest_django import Settings

from fleet.monitor import Hook, Monitor, MonitorSettings
from fleet.redis import (
    LEADER_KEY,
    LeaderLock,
    WorkerCounters,
    async_connection,
    connection,
    monitor_age_s,
    publish_worker,
    read_pressure,
)
from fleet.serving.chat import ChatRequest
from fleet.serving.client import ServingClient
from fleet.serving.clock import WallClock
from fleet.serving.pressure import ClassPressure, FleetPressure
from fleet.watch import Target, WatchSettings
from tests.fleet.emulated import emulated, replica
from tests.fleet.waiting import until

MODEL = "qwen3.5-9b"
QUICK = MonitorSettings(
    watch=WatchSettings(interval_s=0.05, timeout_s=2.0),
    publish_s=0.02,
    sample_s=0.02,
    reload_s=0.05,
    hooks_s=0.02,
    prune_s=0.02,
)


class MemoryRecords:
    """The monitor's side of the database, in memory."""

    def __init__(self, *targets: Target, models: Mapping[str, Sequence[str]] | None = None) -> None:
        self.known, self.classes = list(targets), models or {"demo": [MODEL]}
        self.samples: list[Mapping[str, FleetPressure]] = []
        self.pruned: list[float] = []

    def targets(self) -> Sequence[Target]:
        return list(self.known)

    def models(self) -> Mapping[str, Sequence[str]]:
        return self.classes

    def sample(self, pressure: Mapping[str, FleetPressure]) -> None:
        self.samples.append(pressure)

    def prune(self, before: float) -> None:
        self.pruned.append(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLock(LeaderLock):
    """Remembers every answer."""

    tries: list[bool] = field(default_factory=list)

    async def hold(self, client: redis.asyncio.Redis) -> bool:
        held = await LeaderLock.hold(self, client)
        self.tries.append(held)
        return held


@pytest.fixture
async def link(valkey: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = async_connection()
    yield client
    await client.aclose()


@pytest.fixture
async def client() -> AsyncIterator[ServingClient]:
    async with ServingClient() as client:
        yield client


def monitor(
    link: redis.asyncio.Redis,
    client: ServingClient,
    records: MemoryRecords,
    *,
    holder: str = "a",
    ttl_s: float = 0.4,
    lock: LeaderLock | None = None,
    hooks: Mapping[str, Hook] | None = None,
) -> Monitor:
    return Monitor(
        lock=lock or LeaderLock(holder=holder, ttl_s=ttl_s),
        client=client,
        connection=link,
        records=records,
        settings=QUICK,
        hooks=hooks,
        random=Random(1),
    )


@asynccontextmanager
async def running(one: Monitor) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(one.run())
    try:
        yield task
    finally:
        one.stop()
        await task


def published() -> FleetPressure | None:
    data = read_pressure("demo")
    return None if data is None else FleetPressure.from_json(data)


def of_class(model: str = MODEL) -> ClassPressure | None:
    pressure = published()
    return None if pressure is None else pressure.of_class(model)


def is_ok(model: str = MODEL) -> bool:
    found = of_class(model)
    return found is not None and found.state == "ok"


def target(url: str, name: str = "9b-0") -> Target:
    return Target(replica=name, url=url, fleet="demo", backend="h200-9b", model=MODEL, capacity=4.0)


# --- Publishing ---


async def test_pressure_of_an_emulated_replica_rises_under_load(
    link: redis.asyncio.Redis, client: ServingClient
) -> None:
    """Requests of somebody else, seen by the scrape alone."""
    async with emulated(replica("9b-0", max_num_seqs=2), time_scale=1.0) as urls:
        records = MemoryRecords(target(urls["9b-0"]))
        async with running(monitor(link, client, records)):
            await until(is_ok)
            idle = of_class()
            assert idle is not None
            assert idle.load == 0
            calls = [asyncio.create_task(client.chat(urls["9b-0"], request(n))) for n in range(6)]
            await until(lambda: (found := of_class()) is not None and found.load == 1.5)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await until(lambda: (found := of_class()) is not None and found.load == 0)


def request(number: int) -> ChatRequest:
    return ChatRequest(
        request_id=f"load-{number}",
        model=MODEL,
        messages=({"role": "user", "content": "Write a long answer."},),
        max_tokens=30000,
        seed=number,
    )


async def test_workers_counters_lead_and_planned_demand_counts(
    link: redis.asyncio.Redis, client: ServingClient
) -> None:
    async with (
        emulated(replica("9b-0")) as urls,
        running(monitor(link, client, MemoryRecords(target(urls["9b-0"])))),
    ):
        await until(is_ok)
        publish_worker("w1", WorkerCounters(replicas={"9b-0": 2}, planned={MODEL: 1}))
        publish_worker("w2", WorkerCounters(replicas={"9b-0": 1}))
        await until(lambda: (found := of_class()) is not None and found.load == 1.0)
    found = of_class()
    assert found is not None
    assert (found.outstanding, found.planned, found.capacity) == (3.0, 1.0, 4.0)


async def test_classes_without_replicas_are_overloaded_and_unseen_ones_unknown(
    link: redis.asyncio.Redis, client: ServingClient
) -> None:
    records = MemoryRecords(target("http://127.0.0.1:9"), models={"demo": [MODEL, "qwen3.5-4b"]})
    async with running(monitor(link, client, records)):
        await until(lambda: of_class("qwen3.5-4b"))
    assert {item.model: item.state for item in (published() or FleetPressure(at=0)).classes} in (
        {MODEL: "unknown", "qwen3.5-4b": "overloaded"},
        {MODEL: "overloaded", "qwen3.5-4b": "overloaded"},
    )


async def test_samples_heartbeat_and_retention(link: redis.asyncio.Redis, client: ServingClient) -> None:
    records = MemoryRecords()
    started = WallClock().now()
    async with running(monitor(link, client, records)):
        await until(lambda: records.samples and len(records.pruned) > 1)
    assert records.samples[-1]["demo"].at >= started
    assert abs(records.pruned[-1] - (started - QUICK.retention_s)) < 60
    age_s = monitor_age_s(WallClock().now())
    assert age_s is not None
    assert age_s < 60


async def test_replicas_that_come_and_go_are_followed(link: redis.asyncio.Redis, client: ServingClient) -> None:
    async with emulated(replica("9b-0")) as urls:
        records = MemoryRecords()
        async with running(monitor(link, client, records)):
            await until(lambda: (found := of_class()) is not None and found.state == "overloaded")
            records.known.append(target(urls["9b-0"]))
            await until(is_ok)
            records.known.clear()
            await until(lambda: (found := of_class()) is not None and found.state == "overloaded")


# --- Leading ---


async def test_one_leads_and_another_takes_over_when_it_stops(link: redis.asyncio.Redis, client: ServingClient) -> None:
    first, second = MemoryRecords(), MemoryRecords()
    waiting = CountedLock(holder="b", ttl_s=0.4)
    leader = monitor(link, client, first, holder="a", ttl_s=60)
    async with running(monitor(link, client, second, lock=waiting)):
        await until(lambda: second.samples)
    waiting.tries.clear()
    second.samples.clear()
    async with running(leader):
        await until(lambda: first.samples)
        async with running(monitor(link, client, second, lock=waiting)):
            await until(lambda: len(waiting.tries) > 2)
            assert waiting.tries == [False] * len(waiting.tries)
            assert second.samples == []
            leader.stop()
            # The lock would live for a minute: only a leader that gives it up makes this end.
            await until(lambda: second.samples)
    assert connection().get(LEADER_KEY) is None


async def test_a_leader_that_lost_the_lock_stops_publishing(
    link: redis.asyncio.Redis, client: ServingClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fleet.monitor")
    records = MemoryRecords()
    async with running(monitor(link, client, records, holder="a")):
        await until(lambda: records.samples)
        await link.set(LEADER_KEY, "b")
        await until(lambda: any("no longer leads" in record.getMessage() for record in caplog.records))
        await link.delete("dyserve:pressure:demo")
        count = len(records.samples)
        await link.delete(LEADER_KEY)
        await until(lambda: len(records.samples) > count)
    assert connection().get(LEADER_KEY) is None


async def test_redis_away_ends_nothing(client: ServingClient, settings: Settings, valkey: str) -> None:
    settings.REDIS_URL = "unix:///nonexistent/valkey.sock"
    away = async_connection()
    one = monitor(away, client, MemoryRecords())
    async with running(one) as task:
        await asyncio.wait({task}, timeout=0.3)
        assert not task.done()
    await away.aclose()


# --- Hooks ---


async def test_hooks_run_again_and_again_even_when_one_fails(
    link: redis.asyncio.Redis, client: ServingClient, caplog: pytest.LogCaptureFixture
) -> None:
    good: list[int] = []
    bad: list[int] = []

    def failing() -> None:
        bad.append(1)
        raise RuntimeError("a bug upstairs")

    async with running(monitor(link, client, MemoryRecords(), hooks={"good": lambda: good.append(1), "bad": failing})):
        await until(lambda: len(good) > 2 and len(bad) > 2)
    said = [record for record in caplog.records if "a bug upstairs" in record.getMessage()]
    assert len(said) == 1, "said once, not at every turn"
    assert said[0].exc_info


async def test_a_hook_that_hangs_delays_no_publication(link: redis.asyncio.Redis, client: ServingClient) -> None:
    release = threading.Event()
    records = MemoryRecords()
    with released(release):
        async with running(monitor(link, client, records, hooks={"hangs": release.wait})):
            await until(lambda: len(records.samples) > 3)


@contextmanager
def released(event: threading.Event) -> Iterator[None]:
    """Sets the event on the way out, whatever happens."""
    try:
        yield
    finally:
        event.set()


async def test_a_bug_of_the_monitor_itself_ends_it(link: redis.asyncio.Redis, client: ServingClient) -> None:
    class Broken(MemoryRecords):
        def targets(self) -> Sequence[Target]:
            raise RuntimeError("bug")

    with pytest.raises(ExceptionGroup) as caught:
        await monitor(link, client, Broken()).run()
    assert caught.group_contains(RuntimeError, match="bug")


async def test_cancelling_frees_the_lock(link: redis.asyncio.Redis, client: ServingClient) -> None:
    records = MemoryRecords()
    task = asyncio.create_task(monitor(link, client, records, ttl_s=60).run())
    await until(lambda: records.samples)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert connection().get(LEADER_KEY) is None
