from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import OperationalError

from runtime import composition, leases, reaper
from runtime.database import database_now
from runtime.engine.events import RunState
from runtime.models import Run
from runtime.reaper import Reaper, ReaperSettings, Sweep
from tests.runtime import rows
from tests.runtime.engine.samples import snapshot
from tests.runtime.engine.store_contract import FLOW, FULL


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Broker:
    def __init__(self) -> None:
        self.runs: list[str] = []
        self.away_after: int | None = None
        self.housekeeping = 0

    def enqueue(self, run_id: str) -> None:
        if self.away_after is not None and len(self.runs) >= self.away_after:
            raise ConnectionRefusedError("no broker")
        self.runs.append(run_id)

    def clean(self) -> None:
        self.housekeeping += 1


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def one(database: str, broker: Broker, clock: Clock) -> Reaper:
    return Reaper(
        settings=ReaperSettings(lease_s=10.0),
        enqueue=broker.enqueue,
        requeue_bundles=lambda: 0,
        housekeeping=broker.clean,
        clock=clock,
    )


def a_run(**changes: Any) -> str:
    """A run that was accepted a minute ago, with the given columns."""
    run = rows.accept(snapshot(FLOW, FULL))
    minute_ago = datetime.fromtimestamp(database_now() - 60, tz=UTC)
    Run.objects.filter(pk=run.pk).update(**{"accepted_at": minute_ago, **changes})
    return run.pk


def ago(seconds: float) -> float:
    return database_now() - seconds


def test_a_run_that_waits_behind_busy_workers_is_sent_again_ever_later(
    one: Reaper, broker: Broker, clock: Clock
) -> None:
    run_id = a_run(enqueued_at=ago(31))
    waits: list[int] = []
    for waited in range(30, 1000, 30):
        Run.objects.filter(pk=run_id).update(enqueued_at=ago(waited - sum(waits) + 1))
        before = len(broker.runs)
        one.sweep()
        if len(broker.runs) > before:
            waits.append(waited - sum(waits))
    assert waits[:4] == [30, 60, 90, 120]
    assert len(broker.runs) < 10


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (lambda: {"enqueued_at": None}, True),
        (lambda: {"enqueued_at": None, "accepted_at": datetime.now(tz=UTC)}, False),
        (lambda: {"enqueued_at": ago(31)}, True),
        (lambda: {"enqueued_at": ago(5)}, False),
        (lambda: {"state": "running", "lease_owner": "w", "lease_expires_at": ago(1), "enqueued_at": ago(5)}, True),
        (lambda: {"state": "running", "lease_owner": "w", "lease_expires_at": ago(-9), "enqueued_at": ago(99)}, False),
        (lambda: {"state": "running", "enqueued_at": None}, True),
        (lambda: {"state": "running", "enqueued_at": ago(3)}, False),
        (lambda: {"state": "succeeded", "enqueued_at": None}, False),
        (lambda: {"state": "cancelled", "enqueued_at": ago(500)}, False),
    ],
    ids=[
        "accepted, never enqueued",
        "accepted just now",
        "enqueued, never claimed",
        "enqueued just now",
        "lease expired",
        "owned",
        "released, never enqueued",
        "released and enqueued",
        "succeeded",
        "cancelled",
    ],
)
def test_what_nobody_works_on_is_enqueued(
    one: Reaper, broker: Broker, columns: Callable[[], dict[str, Any]], expected: bool
) -> None:
    run_id = a_run(**columns())
    assert one.sweep() == Sweep(runs=(run_id,) if expected else ())
    assert broker.runs == ([run_id] if expected else [])
    assert one.sweep() == Sweep(), "it was enqueued a moment ago"


def test_a_requeued_run_can_be_claimed(one: Reaper) -> None:
    run_id = a_run(state=RunState.RUNNING, epoch=3, lease_owner="gone", lease_expires_at=ago(1))
    one.sweep()
    run = Run.objects.get(pk=run_id)
    assert (run.lease_owner, run.lease_expires_at) == ("", None)
    assert leases.claim(run_id, worker="host:2:b", lease_s=10) == 4


def test_a_lease_taken_during_the_pass_stays(one: Reaper, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = a_run(enqueued_at=None)

    def enqueue_and_claim(found: str) -> None:
        broker.runs.append(found)
        leases.claim(found, worker="host:2:quick", lease_s=30)

    monkeypatch.setattr(one, "_enqueue", enqueue_and_claim)
    one.sweep()
    assert Run.objects.get(pk=run_id).lease_owner == "host:2:quick"


def test_a_broker_that_is_away_leaves_the_rest_for_the_next_pass(one: Reaper, broker: Broker) -> None:
    run_ids = [a_run() for _ in range(3)]
    broker.away_after = 1
    one.sweep()
    assert broker.runs == run_ids[:1]
    broker.away_after = None
    one.sweep()
    assert broker.runs == run_ids


def test_a_pass_is_skipped_after_an_outage_longer_than_a_lease(one: Reaper, broker: Broker, clock: Clock) -> None:
    one.sweep()
    run_id = a_run(state=RunState.RUNNING, lease_owner="w", lease_expires_at=ago(1))
    clock.now_s += 10.5
    assert one.sweep() == Sweep(skipped=True)
    clock.now_s += 2.0
    assert one.sweep().runs == (run_id,)


def test_housekeeping_is_asked_for_now_and_then(one: Reaper, broker: Broker, clock: Clock) -> None:
    asked = []
    for _ in range(301):
        one.sweep()
        asked.append(broker.housekeeping)
        clock.now_s += 2.0
    assert asked[0] == 1
    assert asked[299] == 1
    assert asked[300] == 2


def test_the_monitor_survives_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        def sweep(self) -> Sweep:
            raise OperationalError("no database")

    monkeypatch.setattr(composition, "reaper", Away)
    reaper.sweep()


def test_the_supervisor_expires_the_leases_of_a_dead_process(database: str) -> None:
    run_id = a_run()
    leases.claim(run_id, worker=leases.worker_prefix(4711) + "x", lease_s=60)
    assert reaper.expire_leases(4712) == 0
    assert reaper.expire_leases(4711) == 1
