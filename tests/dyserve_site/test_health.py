from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connections
from django.db.migrations.recorder import MigrationRecorder
from django.test import AsyncClient, Client

from dyserve_site import health
from dyserve_site.tokens import create_token
from fleet.common.scopes import Scope
from fleet.common.threads import in_thread
from fleet.models import Fleet, Replica
from fleet.redis import HEARTBEAT_KEY, PRESSURE_KEY, WorkerCounters, connection, publish_worker
from fleet.services import seed_demo_fleet
from fleet.serving.pressure import ReplicaSignals, fuse

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fleet(transactional_db: None, valkey: str) -> Fleet:
    return seed_demo_fleet(18100, 100.0)


def publish(fleet: Fleet, *, healthy: bool = True) -> None:
    """What a monitor with one replica publishes."""
    row = Replica.objects.order_by("name")[0]
    now = time.time()
    signals = ReplicaSignals(
        replica=row.name, backend="b", model="m", capacity=8.0, healthy=healthy, scraped_at=now, running=0.0
    )
    client = connection()
    client.set(PRESSURE_KEY + fleet.name, json.dumps(fuse([signals], {}, now).to_json()))
    client.set(HEARTBEAT_KEY, repr(now))
    publish_worker("w", WorkerCounters())


async def ready(**headers: str) -> tuple[int, dict[str, dict[str, Any]]]:
    response = await AsyncClient().get("/readyz", headers=headers)
    assert response.headers["Content-Type"] == "application/json"
    return response.status_code, {check["name"]: check for check in response.json()["checks"]}


def test_a_process_that_answers_is_alive(client: Client) -> None:
    assert client.get("/livez").json() == {"status": "alive"}
    assert client.post("/livez").status_code == 405


async def test_ready_when_everything_answers(fleet: Fleet) -> None:
    await in_thread(publish, fleet)
    status, checks = await ready()
    assert status == 200, checks
    assert set(checks) == {"database", "migrations", "redis", "broker", "workers", "monitor", "backend"}
    assert all(check["ok"] and "remedy" not in check for check in checks.values())


async def test_a_check_that_fails_names_its_remedy(fleet: Fleet) -> None:
    status, checks = await ready()
    assert status == 503
    failed = {name for name, check in checks.items() if not check["ok"]}
    assert failed == {"monitor", "backend", "workers"}
    assert all(checks[name]["remedy"] for name in failed)


async def test_a_monitor_that_is_silent_is_missed(fleet: Fleet) -> None:
    await in_thread(publish, fleet)
    connection().set(HEARTBEAT_KEY, repr(time.time() - 11))
    status, checks = await ready()
    assert (status, checks["monitor"]["ok"]) == (503, False)


async def test_a_fleet_without_a_healthy_replica_is_not_ready(fleet: Fleet) -> None:
    await in_thread(publish, fleet, healthy=False)
    status, checks = await ready()
    assert (status, checks["backend"]["ok"]) == (503, False)
    assert checks["backend"]["detail"] == "0 of 1 replicas healthy"


async def test_a_migration_that_is_missing_is_named(fleet: Fleet) -> None:
    await in_thread(publish, fleet)
    recorder = MigrationRecorder.Migration.objects
    await recorder.filter(app="runtime", name="0001_initial").adelete()
    try:
        status, checks = await ready()
    finally:
        await recorder.acreate(app="runtime", name="0001_initial")
    assert status == 503
    assert "runtime.0001_initial" in checks["migrations"]["detail"]


def test_without_a_worker_runs_would_wait(fleet: Fleet) -> None:
    assert not health.workers().ok
    publish_worker("w", WorkerCounters())
    assert health.workers().ok


async def test_without_redis_everything_else_is_still_told(fleet: Fleet, settings: Any, tmp_path: Any) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"
    status, checks = await ready()
    assert status == 503
    assert {name for name, check in checks.items() if not check["ok"]} == {"redis", "workers", "monitor", "backend"}


async def test_a_check_that_hangs_is_cut_off(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Event()
    monkeypatch.setattr(health, "CHECK_TIMEOUT_S", 0.01)
    monkeypatch.setattr(health, "CHECKS", {"stuck": lambda: gone.wait() or health.database()})
    status, checks = await ready()
    gone.set()
    assert (status, checks["stuck"]["ok"]) == (503, False)


def test_a_database_that_is_away_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise OperationalError("no such host secret.example\nmore")

    monkeypatch.setattr(type(connections["default"]), "cursor", away)
    found = health.database()
    assert (found.ok, found.detail) == (False, "no such host secret.example")


async def test_details_are_for_this_machine_and_for_tokens_that_read_the_fleet(fleet: Fleet) -> None:
    await in_thread(publish, fleet)
    elsewhere = {"X-Forwarded-For": "203.0.113.5"}
    assert all("detail" not in check for check in (await ready(**elsewhere))[1].values())
    user = await User.objects.acreate(username="ann")
    for scope, seen in ((Scope.FLEET_READ, True), (Scope.RUNS_READ, False)):
        _, token = await in_thread(create_token, user, "t", [scope])
        checks = (await ready(**elsewhere, Authorization=f"Bearer {token}"))[1]
        assert ("detail" in checks["database"]) is seen
