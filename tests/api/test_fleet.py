from __future__ import annotations

import time

import pytest
from django.contrib.admin.models import LogEntry

from fleet.models import Fleet, Replica
from fleet.redis import PRESSURE_KEY, connection
from fleet.serving.pressure import ReplicaSignals, fuse
from tests.api.conftest import Person
from tests.api.samples import problem


def publish(fleet: Fleet) -> None:
    """Pressure as the monitor publishes it, one replica scraped and the others silent."""
    import json

    now = time.time()
    signals = [
        ReplicaSignals(replica=name, backend=backend, model=model, capacity=64.0, scraped_at=scraped, running=32.0)
        for name, backend, model, scraped in [
            (row.name, row.backend.name, row.backend.model_class.name, now if index == 0 else None)
            for index, row in enumerate(Replica.objects.order_by("name"))
        ]
    ]
    connection().set(PRESSURE_KEY + fleet.name, json.dumps(fuse(signals, {}, now).to_json()))


def test_the_fleet_shows_models_backends_and_replicas(ann: Person, fleet: Fleet) -> None:
    found = ann.api.get("/fleet").json()
    assert (found["name"], found["emulated"]) == (fleet.name, True)
    assert [model["name"] for model in found["models"]] == ["qwen3.5-4b", "qwen3.5-9b", "qwen3.5-27b"]
    replicas = [replica for backend in found["backends"] for replica in backend["replicas"]]
    assert len(replicas) == 5
    assert all(backend["emulated"] and backend["rates"]["source"] == "roofline" for backend in found["backends"])
    assert all(replica["signals"] is None for replica in replicas)


def test_live_signals_are_shown_and_what_is_unknown_is_null(ann: Person, fleet: Fleet) -> None:
    publish(fleet)
    replicas = {r["name"]: r for b in ann.api.get("/fleet").json()["backends"] for r in b["replicas"]}
    first, second = sorted(replicas)[:2]
    assert (replicas[first]["signals"]["state"], replicas[first]["signals"]["load"]) == ("ok", 0.5)
    assert (replicas[second]["signals"]["state"], replicas[second]["signals"]["load"]) == ("stale", None)
    pressure = ann.api.get("/fleet/pressure").json()
    assert pressure["at"] is not None
    assert len(pressure["classes"]) == 3
    assert {replica["name"] for replica in pressure["replicas"]} == set(replicas)


def test_pressure_that_nobody_publishes_is_said_to_be_missing(ann: Person) -> None:
    found = ann.api.get("/fleet/pressure").json()
    assert (found["at"], found["classes"]) == (None, [])


def test_a_fleet_that_is_not_there_is_not_found(ann: Person) -> None:
    problem(ann.api.get("/fleet?fleet=moon"), 404)
    problem(ann.api.get("/fleet/pressure?fleet=moon"), 404)


def test_without_a_default_fleet_the_remedy_is_told(ann: Person) -> None:
    Fleet.objects.update(is_default=False)
    assert problem(ann.api.get("/fleet"), 409)["code"] == "no_fleet"


@pytest.mark.parametrize(("action", "state"), [("drain", "draining"), ("disable", "disabled"), ("enable", "enabled")])
def test_staff_change_a_replica_and_it_is_audited(operator: Person, action: str, state: str) -> None:
    name = Replica.objects.order_by("name")[0].name
    other = "enabled" if state != "enabled" else "draining"
    Replica.objects.filter(name=name).update(state=other)
    assert operator.api.post(f"/replicas/{name}:{action}").json()["state"] == state
    assert Replica.objects.get(name=name).state == state
    assert LogEntry.objects.get().user == operator.user


def test_others_may_look_but_not_change(ann: Person) -> None:
    name = Replica.objects.order_by("name")[0].name
    problem(ann.api.post(f"/replicas/{name}:drain"), 403)
    assert Replica.objects.get(name=name).state == "enabled"
    problem(ann.api.post("/replicas/moon:drain"), 404)


def test_the_owner_of_a_fleet_changes_its_replicas_and_others_do_not_see_them(
    ann: Person, bob: Person, fleet: Fleet
) -> None:
    Fleet.objects.filter(pk=fleet.pk).update(owner=ann.user)
    name = Replica.objects.order_by("name")[0].name
    assert ann.api.post(f"/replicas/{name}:drain").status_code == 200
    problem(bob.api.post(f"/replicas/{name}:enable"), 404)
    problem(bob.api.get("/fleet"), 404)
