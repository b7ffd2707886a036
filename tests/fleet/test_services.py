"""Seeding is idempotent, rates are never overwritten, a person's changes are audited."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User

from fleet.demo import BACKENDS, REPLICAS
from fleet.errors import ReplicaRejected
from fleet.models import Backend, Fleet, ModelClass, RatesVersion, Replica
from fleet.services import activate_rates, record_rates, register_replica, seed_demo_fleet, set_replica_state
from tests.fleet.rows import backend, demo, rates

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return User.objects.create_user("olga")


def addresses() -> dict[str, str]:
    return dict(Replica.objects.values_list("name", "url"))


# --- The demo fleet ---


def test_seed_makes_the_whole_demo_fleet() -> None:
    fleet = demo(base_port=18100)
    assert fleet.is_default
    assert set(addresses()) == set(REPLICAS)
    assert addresses()["27b-0"] == "http://127.0.0.1:18100"
    assert addresses()["4b-0"] == "http://127.0.0.1:18104"
    assert {b.name: b.rates.get(active=True).time_scale for b in Backend.objects.all()} == {
        "h200-27b": 10.0,
        "h200-9b": 10.0,
        "h200-4b": 10.0,
    }


def test_seeding_again_changes_nothing() -> None:
    demo()
    before = (addresses(), list(RatesVersion.objects.values()), list(ModelClass.objects.values()))
    demo()
    assert (addresses(), list(RatesVersion.objects.values()), list(ModelClass.objects.values())) == before
    assert Fleet.objects.count() == 1
    assert Backend.objects.count() == len(BACKENDS)


def test_seeding_keeps_what_an_operator_changed() -> None:
    demo()
    ModelClass.objects.filter(name="qwen3.5-9b").update(price_out=99.0)
    Replica.objects.filter(name="9b-1").update(state=Replica.State.DRAINING)
    demo()
    assert ModelClass.objects.get(name="qwen3.5-9b").price_out == 99.0
    assert Replica.objects.get(name="9b-1").state == Replica.State.DRAINING


def test_other_time_scale_makes_new_versions_and_keeps_the_old() -> None:
    demo(time_scale=10.0)
    demo(time_scale=5.0)
    versions = RatesVersion.objects.filter(backend__name="h200-9b").order_by("version")
    assert [(row.version, row.time_scale, row.active) for row in versions] == [(1, 10.0, False), (2, 5.0, True)]


def test_calibrated_rates_outlive_a_changed_time_scale() -> None:
    demo(time_scale=10.0)
    record_rates(backend(), rates())
    demo(time_scale=5.0)
    assert backend().rates.get(active=True).source == "calibrated"


@pytest.mark.parametrize("shift", [1, -1, 100])
def test_moved_ports_are_updated_even_where_they_overlap(shift: int) -> None:
    demo(base_port=18100)
    demo(base_port=18100 + shift)
    assert addresses() == {name: f"http://127.0.0.1:{18100 + shift + i}" for i, name in enumerate(REPLICAS)}


def test_seed_leaves_another_default_fleet_alone() -> None:
    Fleet.objects.create(name="mine", is_default=True)
    assert not seed_demo_fleet(18100, 10.0).is_default


# --- Rates ---


def test_recorded_rates_get_the_next_number_and_become_active() -> None:
    demo()
    new = record_rates(backend(), rates(), note="measured")
    assert (new.version, new.active, new.note) == (2, True, "measured")
    assert backend().rates.get(active=True) == new
    assert backend().rates.count() == 2


def test_an_earlier_version_can_be_made_active_again(user: User) -> None:
    demo()
    record_rates(backend(), rates())
    activate_rates(backend().rates.get(version=1), user)
    assert backend().rates.get(active=True).version == 1
    assert LogEntry.objects.get().change_message == "Made active."


# --- Replicas ---


def test_state_changes_are_audited_once(user: User) -> None:
    demo()
    replica = Replica.objects.get(name="9b-0")
    assert set_replica_state(replica, "draining", user).state == "draining"
    set_replica_state(replica, "draining", user)
    assert Replica.objects.get(name="9b-0").state == "draining"
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_repr, entry.change_message) == (user, "9b-0", "State set to draining.")


def test_unknown_state_is_refused(user: User) -> None:
    demo()
    with pytest.raises(ValueError, match="asleep"):
        set_replica_state(Replica.objects.get(name="9b-0"), "asleep", user)


def test_registered_replica_is_stored_and_audited(user: User) -> None:
    demo()
    replica = register_replica(backend=backend(), name="9b-7", url="http://127.0.0.1:18200/", by=user)
    assert Replica.objects.get(name="9b-7").url == "http://127.0.0.1:18200"
    assert LogEntry.objects.get().object_id == str(replica.pk)


@pytest.mark.parametrize(
    ("name", "url", "key", "field", "message"),
    [
        ("ok", "http://169.254.169.254/", "", "url", "link-local"),
        ("ok", "http://10.1.2.3:8000", "", "url", "no allowed network"),
        ("ok", "http://user:secret@127.0.0.1:1", "", "url", "password"),
        ("Bad Name", "http://127.0.0.1:18200", "", "name", "lower-case"),
        ("ok", "http://127.0.0.1:18200", "AWS_SECRET", "api_key_env", "DYSERVE_KEY_"),
        ("9b-0", "http://127.0.0.1:18200", "", "name", "already exists"),
    ],
)
def test_bad_replicas_are_refused_with_the_field(name: str, url: str, key: str, field: str, message: str) -> None:
    demo()
    with pytest.raises(ReplicaRejected) as caught:
        register_replica(backend=backend(), name=name, url=url, api_key_env=key)
    assert message in " ".join(caught.value.problems[field])
    assert Replica.objects.count() == len(REPLICAS)
