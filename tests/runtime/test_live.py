"""The hub on the real channel layer, on a Valkey that goes away and comes back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from channels_redis.pubsub import RedisPubSubChannelLayer
from redis.exceptions import RedisError

from runtime.hub import Hub
from runtime.live import close_hub, hub
from runtime.pokes import RUNS_GROUP, poke_message
from tests.conftest import start_valkey, stop
from tests.runtime.test_hub import NEVER, MemoryLog, seqs


def layer(socket: Path) -> RedisPubSubChannelLayer:
    return RedisPubSubChannelLayer(hosts=[f"unix://{socket}"], prefix="test")


async def poke_until(task: asyncio.Task[Any], socket: Path, run_id: str, seq: int) -> Any:
    """Pokes until the watcher has seen it: what is sent before the layer has reconnected is lost, as it may be."""
    sender = layer(socket)
    while not task.done():
        with suppress(RedisError, OSError):
            await sender.group_send(RUNS_GROUP, poke_message([(run_id, seq)]))
        await asyncio.wait([task], timeout=0.05)
    return task.result()


async def test_pokes_arrive_again_after_the_server_was_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    socket = tmp_path / "v.sock"
    log = MemoryLog()
    log.append("r", "run_accepted")
    hub = Hub(layer=layer(socket), log=log, repair_s=NEVER, coalesce_s=0.0, retry_s=0.05)
    server = start_valkey(socket, tmp_path / "data")
    try:
        async with hub.watch("r", 1) as watch:
            await hub.subscribed.wait()
            task = asyncio.create_task(watch.take(NEVER))
            seq = log.append("r", "node_committed")
            assert seqs(await poke_until(task, socket, "r", seq)) == [2]
            stop(server)
            server = start_valkey(socket, tmp_path / "data")
            task = asyncio.create_task(watch.take(NEVER))
            seq = log.append("r", "node_committed")
            assert seqs(await poke_until(task, socket, "r", seq)) == [3]
    finally:
        await hub.close()
        stop(server)


async def test_a_server_that_comes_late_is_found(tmp_path: Path) -> None:
    socket = tmp_path / "v.sock"
    log = MemoryLog()
    log.append("r", "run_accepted")
    hub = Hub(layer=layer(socket), log=log, repair_s=NEVER, coalesce_s=0.0, retry_s=0.01)
    async with hub.watch("r", 1) as watch:
        assert not hub.subscribed.is_set()
        server = start_valkey(socket, tmp_path / "data")
        try:
            await hub.subscribed.wait()
            task = asyncio.create_task(watch.take(NEVER))
            seq = log.append("r", "node_committed")
            assert seqs(await poke_until(task, socket, "r", seq)) == [2]
        finally:
            await hub.close()
            stop(server)


async def test_a_loop_has_one_hub_and_a_new_one_after_it_was_closed() -> None:
    first = hub()
    assert hub() is first
    await close_hub()
    assert first.closed
    assert hub() is not first
    await close_hub()
    await close_hub()
