"""What the planner, the pool and the monitor read of the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries, Settings

from fleet.catalogs import versioned_catalog
from fleet.demo import demo_catalog
from fleet.errors import NoDefaultFleet
from fleet.models import Backend, Fleet, PressureSample, Replica
from fleet.redis import async_connection, publish_pressure
from fleet.selectors import (
    catalog_for,
    default_fleet,
    monitor_targets,
    planned_models,
    pressure,
    pressure_history,
    replica_endpoints,
    served_names,
)
from fleet.services import record_rates, set_replica_state
from fleet.serving.catalog import Catalog
from fleet.serving.health import OperatorState
from fleet.serving.pressure import ReplicaSignals, fuse
from tests.fleet.rows import backend, demo, rates

pytestmark = pytest.mark.django_db


def names(fleet: Fleet) -> list[str]:
    return [item.name for item in catalog_for(fleet).backends]


def test_default_fleet() -> None:
    with pytest.raises(NoDefaultFleet, match="mark one as default"):
        default_fleet()
    demo()
    assert default_fleet().name == "demo"


# --- The catalog ---


def test_seeded_catalog_is_the_packages_demo_catalog() -> None:
    assert catalog_for(demo(time_scale=10.0)) == demo_catalog_in_name_order(10.0)


def demo_catalog_in_name_order(time_scale: float) -> Catalog:
    catalog = demo_catalog(time_scale)
    return versioned_catalog(
        sorted(catalog.models, key=lambda model: model.size_rank), sorted(catalog.backends, key=lambda b: b.name)
    )


def test_disabled_backends_and_those_without_rates_are_left_out() -> None:
    fleet = demo()
    Backend.objects.filter(name="h200-4b").update(enabled=False)
    backend("h200-9b").rates.all().delete()
    assert names(fleet) == ["h200-27b"]
    assert [model.name for model in catalog_for(fleet).models] == ["qwen3.5-27b"]


@pytest.mark.parametrize("state", [Replica.State.DRAINING, Replica.State.DISABLED])
def test_a_backend_needs_one_replica_that_takes_calls(state: str) -> None:
    fleet = demo()
    set_replica_state(Replica.objects.get(name="9b-0"), state, None)
    assert "h200-9b" in names(fleet)
    set_replica_state(Replica.objects.get(name="9b-1"), state, None)
    assert "h200-9b" not in names(fleet)


def test_version_follows_the_active_rates_alone() -> None:
    fleet = demo()
    before = catalog_for(fleet).version
    Replica.objects.filter(name="9b-0").update(url="http://127.0.0.1:19999")
    assert catalog_for(fleet).version == before
    record_rates(backend(), rates())
    assert catalog_for(fleet).version != before


def test_step_times_are_read_and_belong_to_the_version() -> None:
    fleet = demo()
    fitted = catalog_for(fleet).backend("h200-9b").rates
    assert fitted.step_base_s is not None
    record_rates(backend(), fitted)
    version = catalog_for(fleet).version
    assert catalog_for(fleet).backend("h200-9b").rates == replace(fitted, version=2)
    record_rates(backend(), replace(fitted, step_base_s=None, step_per_sequence_s=None))
    assert catalog_for(fleet).backend("h200-9b").rates.step_base_s is None
    assert catalog_for(fleet).version != version


def test_catalog_is_read_in_a_fixed_number_of_queries(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    fleet = demo()
    with django_assert_num_queries(2):
        catalog_for(fleet)


def test_other_fleets_stay_apart() -> None:
    demo()
    other = Fleet.objects.create(name="other")
    assert names(other) == []


# --- Replicas ---


def test_endpoints_follow_operator_and_published_health(valkey: str) -> None:
    fleet = demo()
    set_replica_state(Replica.objects.get(name="27b-0"), "draining", None)
    open_ = {item.name for item in replica_endpoints(fleet) if item.dispatchable}
    assert open_ == {"27b-1", "9b-0", "9b-1", "4b-0"}


def test_endpoints_close_where_the_monitor_saw_a_dead_replica(valkey: str) -> None:
    dead = ReplicaSignals(replica="9b-0", backend="h200-9b", model="qwen3.5-9b", capacity=8, healthy=False)
    publish(fuse([dead], {}, 1.0).to_json())
    assert {item.name for item in replica_endpoints(demo()) if not item.dispatchable} == {"9b-0"}


def publish(data: Mapping[str, Any]) -> None:
    async def send() -> None:
        client = async_connection()
        await publish_pressure(client, "demo", data)
        await client.aclose()

    asyncio.run(send())


def test_keys_come_from_the_environment_and_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = demo()
    Replica.objects.filter(name="9b-0").update(api_key_env="DYSERVE_KEY_LAB")
    monkeypatch.setenv("DYSERVE_KEY_LAB", "s3cret")
    endpoint = next(item for item in replica_endpoints(fleet) if item.name == "9b-0")
    assert endpoint.api_key == "s3cret"
    assert "s3cret" not in repr(endpoint)
    assert "s3cret" not in repr(monitor_targets())


def test_served_names_fall_back_to_the_class() -> None:
    fleet = demo()
    Backend.objects.filter(name="h200-9b").update(served_name="Qwen/Qwen3.5-9B")
    assert served_names(fleet)["h200-9b"] == "Qwen/Qwen3.5-9B"
    assert served_names(fleet)["h200-4b"] == "qwen3.5-4b"


def test_targets_leave_out_what_is_disabled() -> None:
    demo()
    set_replica_state(Replica.objects.get(name="9b-0"), "disabled", None)
    set_replica_state(Replica.objects.get(name="9b-1"), "draining", None)
    Backend.objects.filter(name="h200-4b").update(enabled=False)
    targets = {target.replica: target for target in monitor_targets()}
    assert set(targets) == {"27b-0", "27b-1", "9b-1"}
    assert targets["9b-1"].operator is OperatorState.DRAINING
    assert targets["27b-0"].capacity == backend("h200-27b").rates.get(active=True).capacity


def test_capacity_without_rates_is_what_the_server_admits() -> None:
    demo()
    backend("h200-4b").rates.all().delete()
    assert {t.capacity for t in monitor_targets() if t.replica == "4b-0"} == {32.0}


def test_every_enabled_class_shows_even_without_a_replica() -> None:
    demo()
    Replica.objects.filter(name="4b-0").delete()
    Fleet.objects.create(name="empty")
    assert planned_models() == {"demo": ("qwen3.5-27b", "qwen3.5-4b", "qwen3.5-9b"), "empty": ()}


# --- Pressure ---


def test_no_pressure_when_nobody_published_or_redis_is_away(valkey: str, settings: Settings) -> None:
    fleet = demo()
    assert pressure(fleet) is None
    settings.REDIS_URL = "unix:///nonexistent/valkey.sock"
    assert pressure(fleet) is None


def test_published_pressure_is_read_back(valkey: str) -> None:
    ready = ReplicaSignals(
        replica="9b-0", backend="h200-9b", model="qwen3.5-9b", capacity=8, running=4, waiting=0, scraped_at=100.0
    )
    published = fuse([ready], {"qwen3.5-9b": 2}, 100.0, models=["qwen3.5-4b"])
    publish(published.to_json())
    read = pressure(demo())
    assert read == published
    assert read is not None
    nine, four = read.of_class("qwen3.5-9b"), read.of_class("qwen3.5-4b")
    assert nine is not None
    assert nine.load == 0.75
    assert four is not None
    assert four.state == "overloaded"


def test_unreadable_pressure_is_no_pressure(valkey: str) -> None:
    publish({"odd": 1})
    assert pressure(demo()) is None


def test_history_starts_where_asked_and_is_in_order() -> None:
    fleet = demo()
    for at in (30.0, 10.0, 20.0):
        PressureSample.objects.create(
            fleet=fleet, model="m", at=at, load=0.5, state="ok", outstanding=1, planned=0, capacity=2
        )
    assert [sample.at for sample in pressure_history(fleet, 20.0)] == [20.0, 30.0]
