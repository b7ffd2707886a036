from __future__ import annotations

import os
import threading

import pytest

from runtime import leases
from runtime.database import database_now
from runtime.engine.events import RunState
from runtime.models import Run
from tests.runtime import rows
from tests.runtime.databases import in_thread
from tests.runtime.engine.samples import snapshot
from tests.runtime.engine.store_contract import FLOW, FULL


@pytest.fixture
def run_id(database: str) -> str:
    return rows.accept(snapshot(FLOW, FULL)).pk


def claim(run_id: str, worker: str = "host:1:a", lease_s: float = 10.0) -> int | None:
    return leases.claim(run_id, worker=worker, lease_s=lease_s)


def test_a_claim_owns_the_run_on_the_database_clock(run_id: str) -> None:
    assert claim(run_id) == 1
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.epoch, run.lease_owner) == (RunState.RUNNING, 1, "host:1:a")
    assert run.lease_expires_at == pytest.approx(database_now() + 10, abs=5)
    assert rows.events(run_id)[-1] == (2, "run_claimed", {"worker": "host:1:a", "epoch": 1})


def test_a_run_has_one_owner(run_id: str) -> None:
    assert claim(run_id) == 1
    assert claim(run_id, "host:2:b") is None
    assert claim(run_id) is None, "not even the owner claims twice"


def test_an_expired_lease_is_taken_over(run_id: str) -> None:
    assert claim(run_id, lease_s=-1.0) == 1
    assert claim(run_id, "host:2:b") == 2
    run = Run.objects.get(pk=run_id)
    assert run.lease_owner == "host:2:b"
    assert run.started_at is not None


@pytest.mark.parametrize("state", [state for state in RunState if state.ended])
def test_an_ended_run_is_not_claimed(run_id: str, state: RunState) -> None:
    Run.objects.filter(pk=run_id).update(state=state)
    assert claim(run_id) is None


async def test_of_many_claims_at_once_one_succeeds(run_id: str) -> None:
    import asyncio

    barrier = threading.Barrier(4)

    def race(name: str) -> int | None:
        barrier.wait()
        return claim(run_id, name)

    epochs = await asyncio.gather(*(in_thread(race, f"host:{index}:x") for index in range(4)))
    assert sorted(epochs, key=str) == [1, None, None, None]


def test_renewal_tells_what_became_of_the_runs(database: str) -> None:
    kept, lost, cancelled = (rows.accept(snapshot(FLOW, FULL)).pk for _ in range(3))
    for run_id in (kept, lost, cancelled):
        claim(run_id, lease_s=1.0)
    Run.objects.filter(pk=lost).update(lease_owner="host:2:b", epoch=2)
    Run.objects.filter(pk=cancelled).update(cancel_requested_at=1.0)
    held = {item.run_id: item for item in leases.renew([kept, lost, cancelled], worker="host:1:a", lease_s=60.0)}
    assert (held[kept].owned, held[kept].epoch, held[kept].cancel_requested) == (True, 1, False)
    assert (held[lost].owned, held[lost].epoch) == (False, 2)
    assert (held[cancelled].owned, held[cancelled].cancel_requested) == (True, True)
    assert held[kept].bundle_ready
    expires = dict(Run.objects.values_list("pk", "lease_expires_at"))
    now = database_now()
    assert (expires[kept] or 0) > now + 30
    assert (expires[lost] or 0) < now + 30


def test_renewal_of_nothing_asks_nothing(database: str, django_assert_num_queries) -> None:  # type: ignore[no-untyped-def]  # the plugin's type
    with django_assert_num_queries(0):
        assert leases.renew([], worker="host:1:a", lease_s=10) == []


def test_only_the_owner_releases(run_id: str) -> None:
    epoch = claim(run_id)
    assert epoch is not None
    assert leases.release(run_id, worker="host:1:a", epoch=epoch - 1) is False
    assert leases.release(run_id, worker="host:2:b", epoch=epoch) is False
    assert leases.release(run_id, worker="host:1:a", epoch=epoch) is True
    assert claim(run_id, "host:2:b") == 2


def test_a_dead_process_loses_all_its_leases_and_no_others(database: str) -> None:
    mine, others = rows.accept(snapshot(FLOW, FULL)).pk, rows.accept(snapshot(FLOW, FULL)).pk
    claim(mine, leases.new_worker_id())
    claim(others, leases.worker_prefix(os.getpid() + 1) + "x")
    assert leases.expire(leases.worker_prefix()) == 1
    assert claim(mine, "host:2:b") == 2
    assert claim(others, "host:2:b") is None


def test_an_empty_prefix_is_refused(database: str) -> None:
    with pytest.raises(ValueError, match="every worker"):
        leases.expire("")


def test_worker_ids_differ(database: str) -> None:
    assert leases.new_worker_id() != leases.new_worker_id()
    assert leases.new_worker_id().startswith(leases.worker_prefix())
    assert len(leases.new_worker_id()) <= 100
