from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fleet.models import Fleet, Replica
from fleet.redis import REDIS_ERRORS, WORKER_KEY, async_connection, publish_pressure
from fleet.serving.client import ServingClient
from fleet.serving.pressure import FleetPressure, ReplicaSignals, fuse
from runtime.adapters.fleet import FleetLink, read_endpoints
from runtime.engine.clock import SystemClock
from tests.runtime.rows import World


@pytest.fixture
async def link() -> AsyncIterator[FleetLink]:
    link = FleetLink(worker="host:1:a", client=ServingClient(), clock=SystemClock())
    yield link
    await link.aclose()


def test_all_fleets_are_known_with_what_their_servers_call_the_models(world: World) -> None:
    world.fleet.backends.filter(name="h200-9b").update(served_name="Qwen/Qwen3.5-9B")
    other = Fleet.objects.create(name="other")
    found = read_endpoints()
    assert [fleet.name for fleet in found.fleets] == ["demo", "other"] == [world.fleet.name, other.name]
    assert found.served_names == {
        "h200-27b": "qwen3.5-27b",
        "h200-9b": "Qwen/Qwen3.5-9B",
        "h200-4b": "qwen3.5-4b",
    }
    assert {replica.name for replica in found.replicas} == {"27b-0", "27b-1", "9b-0", "9b-1", "4b-0"}


def test_keys_come_from_the_environment_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Replica.objects.filter(name="27b-0").update(api_key_env="DYSERVE_KEY_BIG")
    monkeypatch.setenv("DYSERVE_KEY_BIG", "secret")
    keys = {replica.name: replica.api_key for replica in read_endpoints().replicas}
    assert (keys["27b-0"], keys["27b-1"]) == ("secret", None)


async def test_published_pressure_reaches_the_engine(world: World, valkey: str, link: FleetLink) -> None:
    redis = async_connection()
    await publish_pressure(redis, "demo", pressure().to_json())
    await redis.aclose()
    await link.refresh_endpoints()
    await link.refresh_pressure()
    assert link.pressure("demo").loads()["qwen3.5-9b"].load == pytest.approx(0.3)
    assert link.pressure("other").loads() == {}


def pressure() -> FleetPressure:
    now = time.time()
    signals = ReplicaSignals(
        replica="9b-0",
        backend="h200-9b",
        model="qwen3.5-9b",
        capacity=10,
        running=3,
        waiting=0,
        scraped_at=now,
        progressed_at=now,
    )
    return fuse([signals], {}, now)


async def test_other_workers_hear_of_planned_demand(world: World, valkey: str, link: FleetLink) -> None:
    link.planned.add("run_1", "qwen3.5-9b", 3, time.time() + 600)
    await link.publish_counters()
    redis = async_connection()
    text = await redis.get(WORKER_KEY + "host:1:a")
    await redis.aclose()
    assert text is not None
    assert json.loads(text) == {"replicas": {}, "planned": {"qwen3.5-9b": 3.0}}


async def test_a_worker_lives_without_redis(world: World, link: FleetLink, settings: Any, tmp_path: Path) -> None:
    settings.REDIS_URL = f"unix://{tmp_path / 'nobody'}"
    await link.refresh_endpoints()
    await link.refresh_pressure()
    assert set(link.counters().replicas) == {"27b-0", "27b-1", "9b-0", "9b-1", "4b-0"}
    assert link.pressure("demo").loads() == {}
    with pytest.raises(REDIS_ERRORS):
        await link.publish_counters()


async def test_running_repeats_all_three(world: World, valkey: str, link: FleetLink) -> None:
    """The first round is done once the counters are there; the others have begun by then."""
    task = asyncio.create_task(link.run())
    redis = async_connection()
    await redis.config_set("notify-keyspace-events", "K$")
    changes = redis.pubsub()
    await changes.psubscribe(f"__keyspace@*__:{WORKER_KEY}host:1:a")
    sets = 0
    async for message in changes.listen():
        sets += message["type"] == "pmessage"
        if sets == 2:
            break
    assert not task.done()
    task.cancel()
    await asyncio.wait({task})
    await changes.aclose()  # type: ignore[no-untyped-call]  # redis leaves it untyped
    await redis.aclose()
