"""Load as MATH.md defines it; what is not known is unknown; values survive JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.serving.metrics import MetricsPage
from fleet.serving.pressure import (
    ClassPressure,
    FleetPressure,
    PressureRules,
    ReplicaSignals,
    after_scrape,
    fuse,
    outstanding,
)
from tests.sampling import sampled

NOW = 1000.0


def _signals(name: str = "r1", **changes: Any) -> ReplicaSignals:
    values: dict[str, Any] = {
        "backend": "b",
        "model": "27b",
        "capacity": 10,
        "running": 4.0,
        "waiting": 0.0,
        "generation_tokens": 100.0,
        "scraped_at": NOW - 1,
        "progressed_at": NOW - 1,
    }
    return ReplicaSignals(replica=name, **{**values, **changes})


def _one(*signals: ReplicaSignals, planned: float = 0.0, now: float = NOW) -> ClassPressure:
    found = fuse(signals, {"27b": planned}, now).of_class("27b")
    assert found is not None
    return found


def test_the_larger_of_scraped_and_own_counts() -> None:
    assert outstanding(_signals(running=3.0, waiting=2.0, inflight=4)) == 5
    assert outstanding(_signals(running=3.0, waiting=2.0, inflight=9)) == 9
    assert outstanding(_signals(running=None, waiting=None, inflight=2)) == 2


def test_load_of_a_class_sums_its_replicas_and_adds_planned_demand() -> None:
    pressure = _one(_signals("a"), _signals("b", running=2.0, waiting=3.0), planned=3)
    assert (pressure.state, pressure.outstanding, pressure.capacity) == ("ok", 9, 20)
    assert pressure.load == pytest.approx(12 / 20)
    assert pressure.age_s == 1


def test_a_stale_replica_counts_in_neither_sum() -> None:
    pressure = _one(_signals("a"), _signals("b", running=10.0, scraped_at=NOW - 10))
    assert (pressure.load, pressure.healthy, pressure.fresh) == (0.4, 2, 1)


def test_exactly_half_fresh_is_known_and_less_is_unknown() -> None:
    stale = _signals("b", scraped_at=NOW - 11)
    assert _one(_signals("a"), stale).state == "ok"
    unknown = _one(_signals("a"), replace(stale, capacity=11))
    assert (unknown.state, unknown.load) == ("unknown", None)
    assert _one(stale).state == "unknown"
    assert _one(_signals("new", scraped_at=None, inflight=3)).state == "unknown"


def test_no_healthy_replica_is_infinite_load() -> None:
    for pressure in (_one(_signals(healthy=False)), fuse((), {}, NOW, models=["27b"]).of_class("27b")):
        assert pressure is not None
        assert (pressure.state, pressure.load) == ("overloaded", math.inf)


def test_waiting_without_token_progress_is_a_stall_whatever_health_says() -> None:
    stuck = _signals(waiting=5.0, progressed_at=NOW - 15)
    (replica,) = fuse([stuck], {}, NOW).replicas
    assert (replica.state, replica.load) == ("stalled", None)
    assert _one(stuck).state == "overloaded"
    assert _one(replace(stuck, waiting=0.0)).state == "ok"
    assert _one(replace(stuck, progressed_at=NOW - 14)).state == "ok"


def test_progress_is_followed_over_scrapes() -> None:
    page = MetricsPage(running=8, waiting=3, kv_usage=0.1, prompt_tokens=10, generation_tokens=100)
    first = after_scrape(_signals(scraped_at=None, progressed_at=None, generation_tokens=None), page, 0.0)
    moved = after_scrape(first, replace(page, generation_tokens=150), 2.0)
    stuck = after_scrape(moved, replace(page, generation_tokens=150), 20.0)
    idle = after_scrape(stuck, replace(page, generation_tokens=150, waiting=0), 22.0)
    assert (first.progressed_at, moved.progressed_at, stuck.progressed_at, idle.progressed_at) == (0, 2, 2, 22)
    assert (first.generation_tokens_per_s, moved.generation_tokens_per_s) == (None, 25)


def test_a_page_without_the_gauges_is_no_good_scrape() -> None:
    before = _signals(scraped_at=NOW - 9)
    after = after_scrape(before, MetricsPage(generation_tokens=5), NOW)
    assert (after.scraped_at, after.running) == (before.scraped_at, before.running)
    assert "running" in after.missing
    assert _one(after, now=NOW + 1).state == "unknown"


def test_a_page_without_token_counters_accuses_nobody() -> None:
    page = MetricsPage(running=1, waiting=5)
    signals = after_scrape(_signals(generation_tokens=None, progressed_at=0.0), page, NOW)
    assert signals.progressed_at == NOW


def test_classes_are_told_apart_and_ordered() -> None:
    pressure = fuse([_signals("z"), _signals("a", model="9b", running=9.0)], {"9b": 1}, NOW)
    assert [item.model for item in pressure.classes] == ["27b", "9b"]
    assert [item.replica for item in pressure.replicas] == ["a", "z"]
    assert [item.load for item in pressure.classes] == [0.4, 1.0]
    assert pressure.of_class("4b") is None


OPTIONAL = st.one_of(st.none(), st.floats(0, 1000))
SIGNALS = st.builds(
    ReplicaSignals,
    replica=st.text(min_size=1, max_size=5),
    backend=st.just("b"),
    model=st.sampled_from(["27b", "9b"]),
    capacity=st.floats(1, 100),
    healthy=st.booleans(),
    inflight=st.integers(0, 50),
    running=OPTIONAL,
    waiting=OPTIONAL,
    kv_usage=OPTIONAL,
    scraped_at=OPTIONAL,
    progressed_at=OPTIONAL,
    missing=st.sampled_from([(), ("kv_usage",)]),
)


@given(signals=st.lists(SIGNALS, max_size=6), now=st.floats(0, 1000), planned=st.floats(0, 50))
@sampled(60)
def test_pressure_survives_json_and_load_is_what_its_sums_say(
    signals: list[ReplicaSignals], now: float, planned: float
) -> None:
    pressure = fuse(signals, {"27b": planned}, now, models=["4b"])
    wire = json.dumps(pressure.to_json(), allow_nan=False)
    assert FleetPressure.from_json(json.loads(wire)) == pressure
    for item in pressure.classes:
        assert (item.state == "overloaded") == (item.load == math.inf) == (item.healthy == 0)
        assert (item.state == "unknown") == (item.load is None)
        if item.state == "ok":
            assert item.load == pytest.approx((item.outstanding + item.planned) / item.capacity)
        assert 0 <= item.fresh <= item.healthy <= item.replicas


@given(signals=st.lists(SIGNALS, min_size=1, max_size=6), now=st.floats(0, 1000))
@sampled(40)
def test_planned_demand_never_lowers_a_load(signals: list[ReplicaSignals], now: float) -> None:
    for without, with_ in zip(
        fuse(signals, {}, now).classes, fuse(signals, {"27b": 5, "9b": 5}, now).classes, strict=True
    ):
        assert without.state == with_.state
        assert without.load is None or with_.load is None or with_.load >= without.load


def test_a_newer_publisher_s_fields_are_ignored_and_rubbish_is_named() -> None:
    data = fuse([_signals()], {}, NOW).to_json()
    data["classes"][0]["new_field"] = 1
    assert FleetPressure.from_json(data).at == NOW
    unreadable: list[dict[str, Any]] = [
        {},
        {"at": 1, "replicas": [{}], "classes": []},
        {"at": None, "replicas": [], "classes": []},
    ]
    for bad in unreadable:
        with pytest.raises(ValueError, match="no published pressure"):
            FleetPressure.from_json(bad)


def test_rules_are_the_caller_s() -> None:
    fresh = fuse([_signals(scraped_at=NOW - 20)], {}, NOW, rules=PressureRules(stale_s=30)).of_class("27b")
    assert fresh is not None
    assert fresh.state == "ok"


def test_a_replica_without_capacity_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity"):
        _signals(capacity=0)
