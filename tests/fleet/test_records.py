"""The monitor's rows: what is unknown or infinite is stored empty, old samples go."""

from __future__ import annotations

import pytest

from fleet.models import PressureSample
from fleet.records import DatabaseRecords
from fleet.serving.pressure import ReplicaSignals, fuse
from tests.fleet.rows import demo

pytestmark = pytest.mark.django_db(transaction=True)


def test_targets_and_models_come_from_the_database() -> None:
    demo()
    records = DatabaseRecords()
    assert {target.replica for target in records.targets()} == {"27b-0", "27b-1", "9b-0", "9b-1", "4b-0"}
    assert records.models() == {"demo": ("qwen3.5-27b", "qwen3.5-4b", "qwen3.5-9b")}


def test_one_sample_per_class_and_no_invented_loads() -> None:
    demo()
    ready = ReplicaSignals(
        replica="a", backend="x", model="busy", capacity=4, running=2, waiting=1, scraped_at=100.0, progressed_at=100.0
    )
    unseen = ReplicaSignals(replica="b", backend="y", model="unseen", capacity=4)
    pressure = fuse([ready, unseen], {"busy": 1}, 100.0, models=["gone"])
    DatabaseRecords().sample({"demo": pressure, "no such fleet": pressure})
    rows = {row.model: row for row in PressureSample.objects.all()}
    assert {model: (row.state, row.load) for model, row in rows.items()} == {
        "busy": ("ok", 1.0),
        "unseen": ("unknown", None),
        "gone": ("overloaded", None),
    }
    assert (rows["busy"].at, rows["busy"].outstanding, rows["busy"].planned, rows["busy"].capacity) == (100, 3, 1, 4)


def test_prune_removes_what_is_older() -> None:
    fleet = demo()
    for at in (10.0, 20.0, 30.0):
        PressureSample.objects.create(fleet=fleet, model="m", at=at, state="ok", outstanding=0, planned=0, capacity=1)
    DatabaseRecords().prune(20.0)
    assert [row.at for row in PressureSample.objects.all()] == [20.0, 30.0]
