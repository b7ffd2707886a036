from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from runtime.engine.clock import SystemClock
from runtime.engine.events import EventKind, NodeState, RunState
from runtime.engine.memory_store import MemoryStore
from runtime.engine.ports import Commit, LeaseLost, RunEnd, RunSnapshot
from tests.runtime.engine.samples import START, snapshot
from tests.runtime.engine.store_contract import FLOW, FULL, StoreContract, intent


class MemoryHarness:
    def __init__(self) -> None:
        self.store = MemoryStore(SystemClock())

    async def accept(self, snapshot: RunSnapshot) -> str:
        self.store.accept(snapshot)
        return snapshot.run_id

    async def claim(self, run_id: str) -> RunSnapshot:
        return self.store.claim(run_id)

    async def request_cancel(self, run_id: str) -> None:
        self.store.request_cancel(run_id, by="someone")

    async def events(self, run_id: str) -> Sequence[tuple[int, str, dict[str, Any]]]:
        return [(event.seq, event.kind, event.data) for event in self.store.run(run_id).events]

    async def ledger(self, run_id: str) -> Sequence[tuple[int, int | None, str]]:
        return [(seq, entry.to_variant, entry.reason) for seq, entry in self.store.run(run_id).decisions]


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore(SystemClock())
    store.accept(snapshot(FLOW, FULL))
    return store


def test_a_run_is_accepted_once(store: MemoryStore) -> None:
    with pytest.raises(ValueError, match="accepted already"):
        store.accept(snapshot(FLOW, FULL))


async def test_an_end_cancels_what_is_in_flight(store: MemoryStore) -> None:
    claimed = store.claim("run_1")
    first = Commit(run_id="run_1", epoch=claimed.epoch, at=START, bundle=FULL, intents=(intent("a"),))
    await store.commit(first)
    end = RunEnd(state=RunState.CANCELLED, at=START + 1)
    await store.commit(Commit(run_id="run_1", epoch=claimed.epoch, at=START + 1, end=end))
    run = store.run("run_1")
    assert (run.state, run.snapshot.nodes["a"].state) == (RunState.CANCELLED, NodeState.CANCELLED)
    with pytest.raises(LeaseLost):
        store.claim("run_1")
    assert store.request_cancel("run_1") is False


def test_a_second_cancel_adds_no_event(store: MemoryStore) -> None:
    store.claim("run_1")
    assert store.request_cancel("run_1", by="ann")
    assert store.request_cancel("run_1", by="bob")
    cancels = [event.data for event in store.run("run_1").events if event.kind is EventKind.CANCEL_REQUESTED]
    assert cancels == [{"by": "ann"}]
