"""What lives in Redis: it adds up, it expires, and nothing hangs when the server is away."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from pytest_django import Settings

from fleet import redis as shared
from fleet.redis import (
    REDIS_ERRORS,
    LeaderLock,
    WorkerCounters,
    async_connection,
    beat,
    connection,
    forget_worker,
    monitor_age_s,
    publish_pressure,
    publish_worker,
    read_pressure,
    read_workers,
)


@pytest.fixture
async def client(valkey: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = async_connection()
    yield client
    await client.aclose()


async def test_counters_of_all_workers_add_up(client: redis.asyncio.Redis) -> None:
    publish_worker("a", WorkerCounters(replicas={"9b-0": 3, "9b-1": 1}, planned={"qwen3.5-9b": 2}))
    publish_worker("b", WorkerCounters(replicas={"9b-0": 4}, planned={"qwen3.5-9b": 1.5, "qwen3.5-4b": 1}))
    total = await read_workers(client)
    assert total == WorkerCounters(replicas={"9b-0": 7, "9b-1": 1}, planned={"qwen3.5-9b": 3.5, "qwen3.5-4b": 1})


async def test_no_workers_is_nothing_in_flight(client: redis.asyncio.Redis) -> None:
    assert await read_workers(client) == WorkerCounters()


async def test_counters_of_a_dead_worker_expire(client: redis.asyncio.Redis) -> None:
    publish_worker("a", WorkerCounters(replicas={"9b-0": 3}))
    left_ms = await client.pttl(shared.WORKER_KEY + "a")
    assert 0 < left_ms <= shared.WORKER_TTL_S * 1000


async def test_a_worker_that_stops_is_forgotten_at_once(client: redis.asyncio.Redis) -> None:
    publish_worker("a", WorkerCounters(replicas={"9b-0": 3}))
    forget_worker("a")
    assert await read_workers(client) == WorkerCounters()


@pytest.mark.parametrize("text", ["no json", "[]", '{"replicas": {}}', '{"replicas": {"a": "x"}, "planned": {}}'])
async def test_unreadable_counters_do_not_hide_the_others(client: redis.asyncio.Redis, text: str) -> None:
    await client.set(shared.WORKER_KEY + "odd", text)
    publish_worker("a", WorkerCounters(replicas={"9b-0": 3}))
    assert (await read_workers(client)).replicas == {"9b-0": 3}


async def test_pressure_is_read_back_and_expires(client: redis.asyncio.Redis) -> None:
    assert read_pressure("demo") is None
    await publish_pressure(client, "demo", {"at": 5.0, "replicas": [], "classes": []})
    assert read_pressure("demo") == {"at": 5.0, "replicas": [], "classes": []}
    assert 0 < await client.pttl(shared.PRESSURE_KEY + "demo") <= shared.PRESSURE_TTL_S * 1000


async def test_heartbeat_has_an_age(client: redis.asyncio.Redis) -> None:
    assert monitor_age_s(100.0) is None
    await beat(client, 90.0)
    assert monitor_age_s(100.0) == 10.0


# --- The lock ---


async def test_one_leader_until_it_lets_go(client: redis.asyncio.Redis) -> None:
    first, second = LeaderLock(holder="a"), LeaderLock(holder="b")
    assert await first.hold(client)
    assert await first.hold(client)
    assert not await second.hold(client)
    await second.release(client)
    assert not await second.hold(client)
    await first.release(client)
    assert await second.hold(client)


async def test_a_leader_that_died_is_replaced(client: redis.asyncio.Redis) -> None:
    dead = LeaderLock(holder="a")
    assert await dead.hold(client)
    assert 0 < await client.pttl(dead.key) <= dead.ttl_s * 1000
    await client.delete(dead.key)  # what the server does when the time is up
    assert await LeaderLock(holder="b").hold(client)
    assert not await dead.hold(client)


# --- Away ---


def test_a_server_that_is_away_fails_at_once(settings: Settings) -> None:
    settings.REDIS_URL = "unix:///nonexistent/valkey.sock"
    with pytest.raises(REDIS_ERRORS):
        connection().ping()


def test_counters_are_plain_json(valkey: str) -> None:
    publish_worker("a", WorkerCounters(replicas={"9b-0": 3}, planned={"qwen3.5-9b": 2}))
    text = connection().get(shared.WORKER_KEY + "a")
    assert isinstance(text, str)
    assert json.loads(text) == {"replicas": {"9b-0": 3}, "planned": {"qwen3.5-9b": 2}}
