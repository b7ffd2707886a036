"""What the fleet keeps in Redis: the published pressure, every worker's counters, the monitor's lock and heartbeat.

All of it heals itself: keys expire, so that a process that died is forgotten within seconds.

    dyserve:pressure:<fleet>   the last fused pressure, JSON, written by the leading monitor
    dyserve:worker:<worker>    a worker's calls in flight per replica and planned demand per model class, JSON
    dyserve:monitor            the leading monitor's heartbeat: epoch seconds
    dyserve:monitor:leader     who leads
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, cast

import redis
import redis.asyncio
from django.conf import settings
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

logger = logging.getLogger(__name__)

PRESSURE_KEY = "dyserve:pressure:"
WORKER_KEY = "dyserve:worker:"
HEARTBEAT_KEY = "dyserve:monitor"
LEADER_KEY = "dyserve:monitor:leader"

PRESSURE_TTL_S = 10.0
"""Pressure that nobody renewed for this long is no pressure: its classes are unknown."""
WORKER_TTL_S = 5.0
HEARTBEAT_TTL_S = 60.0
CONNECT_TIMEOUT_S = 0.5
SOCKET_TIMEOUT_S = 1.0

REDIS_ERRORS: tuple[type[Exception], ...] = (RedisError, OSError)
"""What any command may raise when the server is away."""


@cache
def _pool(url: str) -> redis.ConnectionPool:
    return redis.ConnectionPool.from_url(
        url,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        decode_responses=True,
        retry=Retry(NoBackoff(), 1),
    )


def connection() -> redis.Redis:
    """A client on this process's pool (safe with threads and after a fork); commands raise one of REDIS_ERRORS."""
    return redis.Redis(connection_pool=_pool(settings.REDIS_URL))


def async_connection() -> redis.asyncio.Redis:
    """A client of its own for one event loop; whoever asked for it closes it with `aclose`."""
    return redis.asyncio.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        decode_responses=True,
        retry=AsyncRetry(NoBackoff(), 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCounters:
    """What one worker knows for sure: its own calls in flight by replica, planned demand by model class."""

    replicas: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    planned: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def to_json(self) -> dict[str, Any]:
        return {"replicas": dict(self.replicas), "planned": dict(self.planned)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkerCounters:
        """Raises ValueError on anything that is not what `to_json` writes."""
        try:
            return cls(
                replicas={str(name): int(n) for name, n in data["replicas"].items()},
                planned={str(name): float(n) for name, n in data["planned"].items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a worker's counters: {error}") from error

    @classmethod
    def total(cls, counters: Iterable[WorkerCounters]) -> WorkerCounters:
        replicas: Counter[str] = Counter()
        planned: Counter[str] = Counter()
        for one in counters:
            replicas.update(one.replicas)
            planned.update(one.planned)
        return cls(replicas=dict(replicas), planned=dict(planned))


def publish_worker(worker: str, counters: WorkerCounters, client: redis.Redis | None = None) -> None:
    """Renews a worker's counters; they vanish WORKER_TTL_S after the last renewal. Raises one of REDIS_ERRORS."""
    text = json.dumps(counters.to_json(), separators=(",", ":"))
    (client or connection()).set(WORKER_KEY + worker, text, px=round(WORKER_TTL_S * 1000))


def forget_worker(worker: str, client: redis.Redis | None = None) -> None:
    (client or connection()).delete(WORKER_KEY + worker)


async def read_workers(client: redis.asyncio.Redis) -> WorkerCounters:
    """The counters of all workers that are alive, added up. Raises one of REDIS_ERRORS."""
    keys = [key async for key in client.scan_iter(match=WORKER_KEY + "*", count=1000)]
    texts = await client.mget(keys) if keys else []
    return WorkerCounters.total(counters for text in texts if (counters := _counters(text)) is not None)


def _counters(text: bytes | str | None) -> WorkerCounters | None:
    """None for a key that expired since the scan, and for one that another program wrote."""
    if text is None:
        return None
    try:
        return WorkerCounters.from_json(json.loads(text))
    except ValueError:
        logger.warning("a worker's counters in Redis cannot be read: %.80r", text)
        return None


async def publish_pressure(client: redis.asyncio.Redis, fleet: str, pressure: Mapping[str, Any]) -> None:
    await client.set(PRESSURE_KEY + fleet, json.dumps(pressure), px=round(PRESSURE_TTL_S * 1000))


def read_pressure(fleet: str, client: redis.Redis | None = None) -> dict[str, Any] | None:
    """The last published pressure of a fleet as JSON, None when there is none. Raises one of REDIS_ERRORS."""
    text = (client or connection()).get(PRESSURE_KEY + fleet)
    return json.loads(text) if isinstance(text, str) else None


async def beat(client: redis.asyncio.Redis, now: float) -> None:
    await client.set(HEARTBEAT_KEY, repr(now), px=round(HEARTBEAT_TTL_S * 1000))


def monitor_age_s(now: float, client: redis.Redis | None = None) -> float | None:
    """Seconds since the leading monitor's last heartbeat, None when there is none. Raises one of REDIS_ERRORS."""
    text = (client or connection()).get(HEARTBEAT_KEY)
    return max(0.0, now - float(text)) if isinstance(text, str) else None


_RENEW = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
"""
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLock:
    """One holder at a time; a holder that stops renewing loses it after `ttl_s` seconds."""

    holder: str
    ttl_s: float = 5.0
    key: str = LEADER_KEY

    async def hold(self, client: redis.asyncio.Redis) -> bool:
        """Takes the lock or renews it; whether it is held now. Raises one of REDIS_ERRORS."""
        answer = client.eval(_RENEW, 1, self.key, self.holder, str(round(self.ttl_s * 1000)))
        return bool(await cast("Awaitable[int]", answer))

    async def release(self, client: redis.asyncio.Redis) -> None:
        """Gives the lock up at once, when it is this holder's. Raises one of REDIS_ERRORS."""
        await cast("Awaitable[int]", client.eval(_RELEASE, 1, self.key, self.holder))
