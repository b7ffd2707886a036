"""Polls of real emulated replicas over HTTP: a hung one delays nobody, what is missing is never read as 0."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fleet.serving.client import ServingClient
from fleet.serving.clock import WallClock
from fleet.serving.health import HealthState, OperatorState
from fleet.serving.pressure import PressureRules, fuse, replica_state
from fleet.watch import Target, Watch, Watches, WatchSettings
from tests.fleet.emulated import emulated, replica
from tests.fleet.serving.loopback import serving
from tests.fleet.waiting import until

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MODEL = "qwen3.5-9b"
QUICK = WatchSettings(interval_s=0.01, timeout_s=0.2)


def target(url: str, name: str = "9b-0", **changes: object) -> Target:
    return replace(
        Target(replica=name, url=url, fleet="demo", backend="h200-9b", model=MODEL, capacity=8.0),
        **changes,  # type: ignore[arg-type]  # tests name the fields they change
    )


@pytest.fixture
async def client() -> AsyncIterator[ServingClient]:
    async with ServingClient() as client:
        yield client


@pytest.fixture
def hanging() -> Iterator[str]:
    """The address of a server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


class SteppedClock(WallClock):
    """Stands still unless told."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time


def watch(client: ServingClient, to: Target, clock: WallClock | None = None, settings: WatchSettings = QUICK) -> Watch:
    return Watch(to, client=client, clock=clock or WallClock(), random=Random(1), settings=settings)


class Page:
    """A server whose /metrics says `text` and whose /health says `health`."""

    def __init__(self, text: str, health: int = 200) -> None:
        self.text, self.health = text, health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_health = scope["path"] == "/health"
        body = b"" if is_health else self.text.encode()
        await send({"type": "http.response.start", "status": self.health if is_health else 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


def page(running: int, waiting: int, tokens: int) -> str:
    return (
        f'vllm:num_requests_running{{engine="0"}} {running}\nvllm:num_requests_waiting{{engine="0"}} {waiting}\n'
        f'vllm:generation_tokens_total{{engine="0"}} {tokens}\nvllm:prompt_tokens_total{{engine="0"}} {tokens}\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.5\n'
    )


# --- One replica ---


async def test_an_emulated_replica_becomes_healthy_with_all_signals(client: ServingClient) -> None:
    async with emulated(replica("9b-0")) as urls:
        watched = watch(client, target(urls["9b-0"]))
        assert watched.signals().scraped_at is None
        await watched.poll()
    assert watched.health.state is HealthState.HEALTHY
    signals = watched.signals(inflight=3)
    assert (signals.running, signals.waiting, signals.missing, signals.inflight) == (0, 0, (), 3)


async def test_missing_signals_stay_unknown(client: ServingClient) -> None:
    async with serving(Page("vllm:num_requests_running 3\n")) as url:
        watched = watch(client, target(url))
        await watched.poll()
    signals = watched.signals()
    assert signals.running is None
    assert signals.scraped_at is None
    assert "waiting" in signals.missing
    load = fuse([signals], {}, WallClock().now()).of_class(MODEL)
    assert load is not None
    assert (load.state, load.load) == ("unknown", None)


async def test_a_dead_engine_is_down_at_once_and_comes_back_slowly(client: ServingClient) -> None:
    server = Page(page(0, 0, 5))
    async with serving(server) as url:
        watched = watch(client, target(url))
        await watched.poll()
        server.health = 503
        await watched.poll()
        assert watched.health.state is HealthState.DOWN
        assert not watched.signals().healthy
        server.health = 200
        states = []
        for _ in range(3):
            await watched.poll()
            states.append(watched.health.state)
    assert states == [HealthState.DOWN, HealthState.SUSPECT, HealthState.HEALTHY]


async def test_green_health_on_a_stalled_engine_is_not_believed(client: ServingClient) -> None:
    clock = SteppedClock()
    server = Page(page(4, 2, 100))
    async with serving(server) as url:
        watched = watch(client, target(url), clock)
        await watched.poll()
        states = [watched.health.state]
        clock.time += QUICK.pressure.stall_s
        await watched.poll()
        states.append(watched.health.state)
        clock.time += 2
        await watched.poll()
        states.append(watched.health.state)
        # The last is still stalled: good pages alone bring it not back.
        assert states == [HealthState.HEALTHY, HealthState.DOWN, HealthState.DOWN]
        server.text = page(4, 2, 101)
        for _ in range(3):
            await watched.poll()
    assert watched.health.state is HealthState.HEALTHY


async def test_a_replica_that_went_away_is_stale_not_idle(client: ServingClient) -> None:
    clock = SteppedClock()
    async with serving(Page(page(4, 0, 100))) as url:
        watched = watch(client, target(url), clock)
        await watched.poll()
    clock.time += QUICK.pressure.stale_s
    await watched.poll()
    assert replica_state(watched.signals(), clock.now(), PressureRules()) == "stale"
    pressure = fuse([watched.signals()], {}, clock.now())
    assert pressure.replicas[0].load is None
    assert pressure.classes[0].state == "unknown"


async def test_an_address_outside_the_allow_list_is_never_connected(client: ServingClient) -> None:
    watched = watch(client, target("http://169.254.169.254"))
    await watched.poll()
    assert watched.health.last_error == "address_refused"


async def test_draining_takes_no_new_calls_but_is_still_watched(client: ServingClient) -> None:
    async with emulated(replica("9b-0")) as urls:
        watched = watch(client, target(urls["9b-0"], operator=OperatorState.DRAINING))
        await watched.poll()
    assert watched.health.state is HealthState.HEALTHY
    assert not watched.signals().healthy


async def test_one_log_line_per_change(client: ServingClient, caplog: pytest.LogCaptureFixture) -> None:
    server = Page(page(0, 0, 5))
    caplog.set_level(logging.INFO, "fleet.watch")
    async with serving(server) as url:
        watched = watch(client, target(url))
        for _ in range(3):
            await watched.poll()
        server.health = 503
        for _ in range(3):
            await watched.poll()
    lines = [record.getMessage() for record in caplog.records if record.name == "fleet.watch"]
    assert len(lines) == 2
    assert lines[0] == "replica 9b-0 is healthy"
    assert lines[1].startswith("replica 9b-0 is down")


# --- All of them ---


async def test_a_hung_replica_delays_nobody(client: ServingClient, hanging: str) -> None:
    slow = replace(QUICK, timeout_s=60)
    watches = Watches(client=client, clock=WallClock(), random=Random(1), settings=slow)
    async with emulated(replica("9b-1")) as urls:
        watches.update([target(hanging, "9b-0"), target(urls["9b-1"], "9b-1")])
        hung, good = watches.of_fleet("demo")
        await until(lambda: good.health.polls_ok >= 5)
        assert hung.health.polls_ok + hung.health.polls_failed == 0, "its first poll is still under way"
        await watches.close()


async def test_a_hung_replica_ends_as_down(client: ServingClient, hanging: str) -> None:
    watched = watch(client, target(hanging), settings=replace(QUICK, timeout_s=0.05))
    for _ in range(3):
        await watched.poll()
    assert watched.health.state is HealthState.DOWN
    assert watched.health.last_error == "total_timeout"


async def test_update_starts_stops_and_keeps_watches(client: ServingClient) -> None:
    watches = Watches(client=client, clock=WallClock(), random=Random(1), settings=QUICK)
    async with emulated(replica("9b-0"), replica("9b-1")) as urls:
        watches.update([target(urls["9b-0"], "9b-0"), target(urls["9b-1"], "9b-1")])
        kept, _ = watches.of_fleet("demo")
        watches.update([target(urls["9b-0"], "9b-0", operator=OperatorState.DRAINING)])
        assert watches.of_fleet("demo") == (kept,)
        assert kept.health.operator is OperatorState.DRAINING
        watches.update([target(urls["9b-1"], "9b-0")])
        (moved,) = watches.of_fleet("demo")
        assert moved is not kept, "what was measured elsewhere says nothing of the new address"
        await watches.close()
    assert watches.of_fleet("demo") == ()


async def test_a_bug_in_a_watch_is_not_hidden(client: ServingClient) -> None:
    class BrokenClient(ServingClient):
        async def health(self, *_: object, **__: object) -> None:
            raise RuntimeError("bug")

    async with BrokenClient() as broken:
        watches = Watches(client=broken, clock=WallClock(), random=Random(1), settings=QUICK)
        watches.update([target("http://127.0.0.1:1")])
        (broken_watch,) = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait({broken_watch})
        with pytest.raises(RuntimeError, match="bug"):
            watches.check()
        await watches.close()
