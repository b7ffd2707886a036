from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from fleet.serving.pressure import FleetPressure, ReplicaSignals, fuse
from runtime.adapters.pressure import OwnCounters, PressureBoard

BIG, SMALL = "27b", "9b"


class World:
    """A clock and a worker's books that a test writes."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.replicas: dict[str, int] = {}
        self.planned: dict[str, int] = {}

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def counters(self) -> OwnCounters:
        return OwnCounters(at=self.now_s, replicas=dict(self.replicas), planned=dict(self.planned))


def published(at: float, inflight: int = 4, planned: Mapping[str, float] | None = None) -> FleetPressure:
    """Two replicas of each class with capacity 10; the scrape is as old as the publication."""
    signals = [
        ReplicaSignals(
            replica=f"{model}-{index}",
            backend=f"h200-{model}",
            model=model,
            capacity=10,
            inflight=inflight,
            running=0.0,
            waiting=0.0,
            scraped_at=at,
            progressed_at=at,
        )
        for model in (BIG, SMALL)
        for index in (0, 1)
    ]
    return fuse(signals, planned or {}, at)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def board(world: World) -> PressureBoard:
    return PressureBoard(counters=world.counters, clock=world)


def test_a_fresh_publication_is_taken_as_it_is(world: World, board: PressureBoard) -> None:
    board.update("demo", published(world.now_s, planned={SMALL: 2.0}))
    loads = board.of("demo").loads()
    assert (loads[BIG].load, loads[BIG].state, loads[BIG].capacity) == (0.4, "ok", 20.0)
    assert (loads[SMALL].load, loads[SMALL].planned) == (0.5, 2.0)


def test_without_a_publication_nothing_is_known(board: PressureBoard) -> None:
    assert board.of("demo").loads() == {}
    board.update("demo", None)
    assert board.of("demo").loads() == {}


def test_an_old_publication_is_unknown_and_not_idle(world: World, board: PressureBoard) -> None:
    board.update("demo", published(world.now_s, inflight=0))
    world.now_s += 9.9
    assert board.of("demo").loads()[BIG].load == 0.0
    board.update("demo", None)
    world.now_s += 0.1
    for load in board.of("demo").loads().values():
        assert (load.load, load.state) == (None, "unknown")
        assert load.age_s == pytest.approx(10.0)


def test_what_came_since_the_publication_is_added(world: World, board: PressureBoard) -> None:
    world.replicas = {"27b-0": 4}
    board.note_published(world.counters())
    board.update("demo", published(world.now_s + 0.1))
    world.now_s += 0.2
    world.replicas = {"27b-0": 10, "9b-1": 3, "elsewhere": 50}
    world.planned = {SMALL: 5}
    loads = board.of("demo").loads()
    assert loads[BIG].load == pytest.approx((8 + 6) / 20)
    assert loads[SMALL].load == pytest.approx((8 + 3 + 5) / 20)
    assert loads[SMALL].planned == 5


def test_what_the_monitor_knew_is_not_counted_twice(world: World, board: PressureBoard) -> None:
    world.planned = {SMALL: 5}
    board.note_published(world.counters())
    board.update("demo", published(world.now_s + 0.1, planned={SMALL: 5.0}))
    assert board.of("demo").loads()[SMALL].load == pytest.approx((8 + 5) / 20)
    world.planned = {}
    assert board.of("demo").loads()[SMALL].load == pytest.approx(8 / 20), "what was dispatched is not planned"


def test_counters_published_after_the_pressure_were_not_in_it(world: World, board: PressureBoard) -> None:
    board.note_published(world.counters())
    board.update("demo", published(world.now_s + 0.1))
    world.now_s += 0.2
    world.planned = {SMALL: 5}
    board.note_published(world.counters())
    assert board.of("demo").loads()[SMALL].planned == 5


def test_unknown_and_overloaded_classes_stay_what_they_are(world: World, board: PressureBoard) -> None:
    at = world.now_s
    replicas = [replace(item, state="stale", load=None) for item in published(at).replicas]
    unknown = replace(published(at).classes[0], model=BIG, state="unknown", load=None, capacity=0.0)
    overloaded = replace(published(at).classes[0], model=SMALL, state="overloaded", load=math.inf, capacity=0.0)
    board.update("demo", FleetPressure(at=at, replicas=tuple(replicas), classes=(unknown, overloaded)))
    world.planned = {BIG: 9, SMALL: 9}
    loads = board.of("demo").loads()
    assert (loads[BIG].load, loads[BIG].state) == (None, "unknown")
    assert (loads[SMALL].load, loads[SMALL].state) == (math.inf, "overloaded")
