from __future__ import annotations

import json
import time

import pytest
from django.contrib.auth.models import User
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import DjangoAssertNumQueries

from dyserve_site.tokens import create_token
from fleet.common.scopes import Scope
from fleet.models import Fleet
from fleet.redis import HEARTBEAT_KEY, PRESSURE_KEY, connection
from fleet.services import seed_demo_fleet
from fleet.serving.pressure import ReplicaSignals, fuse
from planner.models import PlanBundle, RefusedPlan
from runtime.models import LedgerEntry, Run
from tests.runtime.live_runs import end, start_run

pytestmark = pytest.mark.django_db

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def fleet(db: None, valkey: str) -> Fleet:
    return seed_demo_fleet(18100, 100.0)


def scrape(client: Client) -> Samples:
    response = client.get("/metrics")
    assert response.status_code == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.content.decode())
        for sample in family.samples
    }


def one(samples: Samples, metric: str, **labels: str) -> float:
    return samples[metric, frozenset(labels.items())]


def test_runs_calls_tokens_and_switches_are_counted(client: Client, fleet: Fleet) -> None:
    ann = User.objects.create_user("ann")
    runs = [start_run(ann) for _ in range(3)]
    end(runs[0].pk)
    Run.objects.filter(pk=runs[0].pk).update(calls=5, prompt_tokens=100, output_tokens=20, late=True)
    for seq, target in ((5, 1), (6, None), (7, None)):
        LedgerEntry.objects.create(
            run=runs[0],
            seq=seq,
            at=1.0,
            active_variant=0,
            to_variant=target,
            reason="congested",
            text="",
            loads={},
            thresholds={},
            candidates=[],
            changed=[],
            kept=[],
        )
    samples = scrape(client)
    states = {state: one(samples, "dyserve_runs", state=state) for state in ("running", "succeeded", "failed")}
    assert states == {"running": 2, "succeeded": 1, "failed": 0}
    assert one(samples, "dyserve_calls_total") == 5
    assert one(samples, "dyserve_tokens_total", kind="prompt") == 100
    assert one(samples, "dyserve_late_runs_total") == 1
    assert one(samples, "dyserve_switch_decisions_total", outcome="refused", reason="congested") == 2
    assert one(samples, "dyserve_switch_decisions_total", outcome="switched", reason="congested") == 1


def test_bundles_tell_hits_and_misses(client: Client, fleet: Fleet) -> None:
    for key, hits in (("a", 3), ("b", 0)):
        PlanBundle.objects.create(
            key=key, fleet=fleet, levels=[], weights={}, effort=0.5, versions={}, request={}, hits=hits
        )
    samples = scrape(client)
    assert one(samples, "dyserve_bundle_hits_total") == 3
    assert one(samples, "dyserve_bundle_misses_total") == 2
    assert one(samples, "dyserve_bundles", state="preparing") == 2
    assert one(samples, "dyserve_bundles_outdated") == 2, "they name no versions at all"


def test_refused_plans_are_counted_every_time(client: Client, fleet: Fleet) -> None:
    assert one(scrape(client), "dyserve_plans_refused_total") == 0
    for level, times in ((0.0, 3), (1.5, 1)):
        RefusedPlan.objects.create(
            key="a", level=level, fleet=fleet, discrepancies=[], plan={}, request={}, times=times
        )
    assert one(scrape(client), "dyserve_plans_refused_total") == 4


def test_what_is_unknown_has_no_sample(client: Client, fleet: Fleet) -> None:
    now = time.time()
    signals = [
        ReplicaSignals(replica="known", backend="b", model="small", capacity=8.0, scraped_at=now, running=4.0),
        ReplicaSignals(replica="silent", backend="b", model="large", capacity=8.0),
        ReplicaSignals(replica="dead", backend="b", model="dead", capacity=8.0, healthy=False),
    ]
    connection().set(PRESSURE_KEY + fleet.name, json.dumps(fuse(signals, {"small": 2.0}, now).to_json()))
    connection().set(HEARTBEAT_KEY, repr(now))
    samples = scrape(client)
    name = fleet.name
    assert one(samples, "dyserve_class_load", fleet=name, model="small") == 0.75
    assert one(samples, "dyserve_class_load", fleet=name, model="dead") == float("inf")
    assert ("dyserve_class_load", frozenset({("fleet", name), ("model", "large")})) not in samples
    known = {"fleet": name, "replica": "known", "model": "small"}
    silent = {"fleet": name, "replica": "silent", "model": "large"}
    assert one(samples, "dyserve_replica_running", **known) == 4
    assert ("dyserve_replica_running", frozenset(silent.items())) not in samples
    assert one(samples, "dyserve_replica_state", **silent, state="stale") == 1
    assert 0 <= one(samples, "dyserve_monitor_age_seconds") < 60


def test_without_a_monitor_there_is_no_age(client: Client, fleet: Fleet) -> None:
    assert not [key for key in scrape(client) if key[0] == "dyserve_monitor_age_seconds"]


def test_emulated_backends_are_marked(client: Client, fleet: Fleet) -> None:
    marks = {key: value for key, value in scrape(client).items() if key[0] == "dyserve_backend_emulated"}
    assert set(marks.values()) == {1.0}
    assert len(marks) == 3


def test_a_scrape_costs_few_queries_however_much_there_is(
    client: Client, fleet: Fleet, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    ann = User.objects.create_user("ann")
    for _ in range(20):
        start_run(ann)
    with django_assert_max_num_queries(17):
        scrape(client)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-Ip"])
def test_who_asks_through_a_proxy_needs_a_token(fleet: Fleet, header: str) -> None:
    assert Client(headers={header: "203.0.113.5"}).get("/metrics").status_code == 403


def test_who_asks_from_elsewhere_needs_a_token_that_reads_the_fleet(fleet: Fleet) -> None:
    ann = User.objects.create_user("ann")
    reader, runner = (create_token(ann, "t", [scope])[1] for scope in (Scope.FLEET_READ, Scope.RUNS_READ))
    for address in ("203.0.113.5", "10.0.0.1", "", "127.0.0.1.example"):
        client = Client(REMOTE_ADDR=address)
        refused = client.get("/metrics")
        assert (refused.status_code, refused.headers["Content-Type"]) == (403, "application/problem+json")
        assert client.get("/metrics", headers={"Authorization": f"Bearer {runner}"}).status_code == 403
        assert client.get("/metrics", headers={"Authorization": f"Bearer {reader}"}).status_code == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_this_machine_needs_none(fleet: Fleet, address: str) -> None:
    assert Client(REMOTE_ADDR=address).get("/metrics").status_code == 200


def test_metrics_are_read_only(client: Client, fleet: Fleet) -> None:
    assert client.post("/metrics").status_code == 405
