"""The hub on a log in memory: what is read how often, who gets what, what a lost poke costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from django.db import OperationalError
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as RedisAway

from runtime import hub as module
from runtime.engine.events import EventKind
from runtime.hub import Event, Head, Hub, Tail

NEVER = 3600.0


def event(seq: int, kind: str = EventKind.NODE_COMMITTED) -> Event:
    return {"seq": seq, "kind": kind, "at": float(seq), "data": {}}


class MemoryLog:
    """An event log; counts its reads and can be away."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Event]] = {}
        self.tail_reads: list[dict[str, int]] = []
        self.away = False
        self.read = asyncio.Event()

    def append(self, run_id: str, *kinds: str) -> int:
        log = self.runs.setdefault(run_id, [])
        for kind in kinds:
            log.append(event(len(log) + 1, kind))
        return len(log)

    async def heads(self, run_ids: Sequence[str]) -> Mapping[str, Head]:
        found = {}
        for run_id in run_ids:
            log = self.runs.get(run_id, [])
            found[run_id] = Head(seq=len(log), ended=bool(log) and log[-1]["kind"] in module.END_KINDS)
        return found

    async def tails(self, cursors: Mapping[str, int]) -> Mapping[str, Sequence[Event]]:
        self.tail_reads.append(dict(cursors))
        self.read.set()
        await asyncio.sleep(0)
        if self.away:
            raise OperationalError("away")
        return {run_id: self.runs.get(run_id, [])[seq:][: module.BATCH] for run_id, seq in cursors.items()}


class MemoryLayer:
    """A channel layer whose messages the test sends, and which can be away."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Mapping[str, Any] | Exception] = asyncio.Queue()
        self.subscriptions = 0
        self.open = asyncio.Event()
        self.open.set()

    async def new_channel(self, prefix: str = "specific.") -> str:
        await self.open.wait()
        return "channel"

    async def group_add(self, group: str, channel: str) -> None:
        self.subscriptions += 1

    async def group_discard(self, group: str, channel: str) -> None:
        self.subscriptions -= 1

    async def receive(self, channel: str) -> Mapping[str, Any]:
        message = await self.messages.get()
        if isinstance(message, Exception):
            raise message
        return message

    def poke(self, *runs: tuple[str, int]) -> None:
        self.messages.put_nowait({"type": "poke", "runs": [list(run) for run in runs]})


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def layer() -> MemoryLayer:
    return MemoryLayer()


@pytest.fixture
async def hub(log: MemoryLog, layer: MemoryLayer) -> AsyncIterator[Hub]:
    """Without repair: only pokes move it."""
    made = Hub(layer=layer, log=log, repair_s=NEVER, coalesce_s=0.0, retry_s=0.0)
    yield made
    await made.close()


def seqs(events: Sequence[Event]) -> list[int]:
    return [item["seq"] for item in events]


async def test_a_watcher_gets_what_there_is_and_then_what_comes(hub: Hub, log: MemoryLog, layer: MemoryLayer) -> None:
    log.append("r", "run_accepted", "run_claimed")
    async with hub.watch("r") as watch:
        assert seqs(await watch.take(NEVER)) == [1, 2]
        layer.poke(("r", log.append("r", "node_committed")))
        assert seqs(await watch.take(NEVER)) == [3]
        layer.poke(("r", log.append("r", "run_succeeded")))
        assert seqs(await watch.take(NEVER)) == [4]
        assert watch.finished
        assert await watch.take(NEVER) == ()


async def test_a_watcher_resumes_after_its_cursor(hub: Hub, log: MemoryLog) -> None:
    log.append("r", *["node_committed"] * 5)
    async with hub.watch("r", after=3) as watch:
        assert seqs(await watch.take(NEVER)) == [4, 5]


async def test_a_cursor_at_the_end_of_an_ended_run_is_finished_at_once(hub: Hub, log: MemoryLog) -> None:
    log.append("r", "run_accepted", "run_cancelled")
    async with hub.watch("r", after=2) as watch:
        assert watch.finished


async def test_one_read_serves_all_watchers_of_a_run(hub: Hub, log: MemoryLog, layer: MemoryLayer) -> None:
    log.append("r", "run_accepted")
    async with hub.watch("r", 1) as one, hub.watch("r", 1) as two, hub.watch("r", 1) as three:
        waiting = [asyncio.ensure_future(watch.take(NEVER)) for watch in (one, two, three)]
        layer.poke(("r", log.append("r", "node_committed")))
        assert [seqs(await task) for task in waiting] == [[2], [2], [2]]
        assert hub.watched == {"r": 3}
    # One read each for the new tail, for the new subscription and for the poke, at most; never one per watcher.
    assert 1 <= len(log.tail_reads) <= 3
    assert all(set(read) == {"r"} for read in log.tail_reads)
    assert layer.subscriptions == 1


async def test_pokes_of_a_burst_become_one_read(log: MemoryLog, layer: MemoryLayer) -> None:
    hub = Hub(layer=layer, log=log, repair_s=NEVER, coalesce_s=0.05, retry_s=0.0)
    log.append("r", "run_accepted")
    async with hub.watch("r", 1) as watch:
        for _ in range(50):
            layer.poke(("r", log.append("r", "node_committed")))
        assert seqs(await watch.take(NEVER)) == list(range(2, 52))
        assert len(log.tail_reads) == 1
    await hub.close()


async def test_pokes_of_runs_that_nobody_watches_cost_nothing(hub: Hub, log: MemoryLog, layer: MemoryLayer) -> None:
    log.append("r", "run_accepted")
    async with hub.watch("r", 1) as watch:
        layer.poke(("other", log.append("other", "run_accepted")))
        layer.poke(("r", log.append("r", "node_committed")))
        await watch.take(NEVER)
    assert all(set(read) == {"r"} for read in log.tail_reads)


async def test_a_lost_poke_loses_nothing(log: MemoryLog, layer: MemoryLayer) -> None:
    hub = Hub(layer=layer, log=log, repair_s=0.01, coalesce_s=0.0, retry_s=0.0)
    log.append("r", "run_accepted")
    async with hub.watch("r", 1) as watch:
        log.append("r", "node_committed")
        assert seqs(await watch.take(NEVER)) == [2]
    await hub.close()


async def test_a_watcher_that_is_further_behind_than_memory_reads_the_log(
    hub: Hub, log: MemoryLog, layer: MemoryLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MEMORY_EVENTS", 3)
    log.append("r", "run_accepted")
    async with hub.watch("r", 1) as slow, hub.watch("r", 1) as quick:
        for seq in range(2, 12):
            layer.poke(("r", log.append("r", "node_committed")))
            assert seqs(await quick.take(NEVER)) == [seq]
        assert seqs(await slow.take(NEVER)) == list(range(2, 12))


async def test_a_long_log_comes_in_batches_in_order(hub: Hub, log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 7)
    log.append("r", *["node_committed"] * 30, "run_succeeded")
    seen: list[int] = []
    async with hub.watch("r") as watch:
        while not watch.finished:
            part = seqs(await watch.take(NEVER))
            assert len(part) <= 7
            seen += part
    assert seen == list(range(1, 32))


async def test_a_burst_longer_than_a_batch_is_read_to_its_end(
    hub: Hub, log: MemoryLog, layer: MemoryLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 4)
    log.append("r", "run_accepted")
    async with hub.watch("r", 1) as watch:
        log.append("r", *["node_committed"] * 9)
        layer.poke(("r", log.append("r", "run_succeeded")))
        seen: list[int] = []
        while not watch.finished:
            seen += seqs(await watch.take(NEVER))
    assert seen == list(range(2, 12))


async def test_no_event_within_the_time_gives_nothing_and_keeps_the_cursor(hub: Hub, log: MemoryLog) -> None:
    log.append("r", "run_accepted")
    async with hub.watch("r", 1) as watch:
        assert await watch.take(0.0) == ()
        assert (watch.seq, watch.finished) == (1, False)


async def test_the_log_may_be_away_for_a_while(log: MemoryLog, layer: MemoryLayer) -> None:
    hub = Hub(layer=layer, log=log, repair_s=0.01, coalesce_s=0.0, retry_s=0.0)
    log.append("r", "run_accepted")
    async with hub.watch("r", 1) as watch:
        log.away = True
        log.append("r", "node_committed")
        log.read.clear()
        await log.read.wait()
        log.away = False
        assert seqs(await watch.take(NEVER)) == [2]
    await hub.close()


async def test_the_channel_layer_may_break_and_come_back(hub: Hub, log: MemoryLog, layer: MemoryLayer) -> None:
    log.append("r", "run_accepted")
    async with hub.watch("r", 1) as watch:
        for _ in range(3):
            layer.messages.put_nowait(RedisAway("gone"))
        layer.poke(("r", log.append("r", "node_committed")))
        assert seqs(await watch.take(NEVER)) == [2]
        assert layer.subscriptions == 1


async def test_what_happened_before_the_subscription_is_read_with_it(
    hub: Hub, log: MemoryLog, layer: MemoryLayer
) -> None:
    log.append("r", "run_accepted")
    layer.open.clear()
    async with hub.watch("r", 1) as watch:
        await log.read.wait()
        # The read for the new watcher is over, and nobody hears a poke yet.
        assert await watch.take(0.0) == ()
        log.append("r", "node_committed")
        layer.open.set()
        assert seqs(await watch.take(NEVER)) == [2]


async def test_events_that_retention_took_are_not_waited_for(hub: Hub, log: MemoryLog, layer: MemoryLayer) -> None:
    log.append("r", *["node_committed"] * 3, "run_succeeded")
    async with hub.watch("r", 1) as watch:
        log.runs["r"] = []
        assert not await watch.take(NEVER)
        assert watch.finished


async def test_closing_ends_every_watch(log: MemoryLog, layer: MemoryLayer) -> None:
    hub = Hub(layer=layer, log=log, repair_s=NEVER)
    log.append("r", "run_accepted")
    async with hub.watch("r", 1) as watch:
        waiting = asyncio.ensure_future(watch.take(NEVER))
        await hub.subscribed.wait()
        await hub.close()
        assert await waiting == ()
        assert watch.closed
    assert layer.subscriptions == 0
    with pytest.raises(RuntimeError, match="closed"):
        async with hub.watch("r"):
            pass


async def test_a_run_without_watchers_is_forgotten(hub: Hub, log: MemoryLog) -> None:
    async with hub.watch("r"):
        pass
    assert hub.watched == {}


@given(
    sizes=st.lists(st.integers(0, 5), max_size=12),
    cursor=st.integers(0, 40),
    head=st.integers(0, 10),
    memory=st.integers(1, 8),
)
def test_memory_gives_exactly_what_follows_a_cursor_or_nothing_at_all(
    sizes: list[int], cursor: int, head: int, memory: int
) -> None:
    tail = Tail("r", Head(seq=head, ended=False), memory=memory)
    last = head
    for size in sizes:
        # Overlapping reads must not repeat events.
        tail.extend([event(seq) for seq in range(max(1, last - 1), last + size + 1)])
        last += size
    found = tail.remembered(cursor)
    assert tail.seq == last
    assert len(tail.ring) <= memory
    if found is not None:
        assert seqs(found) == list(range(cursor + 1, last + 1))
