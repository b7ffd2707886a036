"""Worked examples of the switching rule (MATH.md) and the paper's walk-through at run time (6, Cases A and B)."""

from __future__ import annotations

import asyncio

import pytest

from planner.compiler.plan import Bundle
from runtime.engine.events import EventKind
from runtime.engine.ports import CallRequest, ClassLoad, Decision, SwitchSettings
from runtime.engine.switching import decide
from tests.runtime.engine.fakes import FakePressure, Finished, World, serve
from tests.runtime.engine.samples import (
    BIG,
    SMALL,
    START,
    TINY,
    bundle,
    impl,
    plan,
    snapshot,
    walkthrough,
    walkthrough_bundle,
)

THREE = bundle(
    plan({"a": impl(BIG)}, quality=0.90),
    plan({"a": impl(SMALL)}, level=1.5, quality=0.85),
    plan({"a": impl(TINY)}, level=3.0, quality=0.80),
)


def decided(active: int, plans: Bundle = THREE, **loads: float) -> Decision:
    names = {"big": BIG, "small": SMALL, "tiny": TINY}
    return decide(
        active=active,
        bundle=plans,
        loads={names[key]: ClassLoad(model=names[key], load=load, state="ok") for key, load in loads.items()},
        settings=SwitchSettings(),
        now=START,
        last_switch_at=None,
        undispatched=("a",),
    )


def test_active_0_with_27b_at_70_percent_keeps() -> None:
    assert decided(0, big=0.70, small=0.1, tiny=0.1).to_variant is None


def test_active_1_with_9b_at_95_and_27b_at_30_percent_returns_to_0() -> None:
    assert decided(1, big=0.30, small=0.95).to_variant == 0
    assert decided(1, bundle(*THREE.variants[:2]), big=0.30, small=0.95).to_variant == 0


def test_active_1_with_27b_at_80_9b_at_60_and_4b_at_10_percent_keeps() -> None:
    assert decided(1, big=0.80, small=0.60, tiny=0.10).to_variant is None


# --- The walk-through (6) ---

SECONDS = {"P": (1.0,), "C": (10.0,), "D": (4.0, 3.0), "A": (1.0,)}


def walked(congested_at_s: float) -> tuple[World, Finished]:
    """Serve P -> C, D -> R -> A; 27B is overloaded from `congested_at_s` on, 9B stays less loaded."""
    world = World(pressure=FakePressure({BIG: 0.70, SMALL: 0.30}))

    def seconds(request: CallRequest) -> float:
        small_c = request.node == "C" and request.model == SMALL
        return 6.0 if small_c else SECONDS[request.node][request.stage]

    world.dispatcher.seconds = seconds

    async def burst() -> None:
        await asyncio.sleep(congested_at_s)
        world.pressure.by_model[BIG] = 1.31

    return world, serve(world, snapshot(walkthrough(), walkthrough_bundle()), burst)


def test_without_a_burst_the_fork_takes_ten_units() -> None:
    _, finished = walked(100.0)
    assert finished.seconds == 12.0
    assert finished.data(EventKind.SWITCHED) == []


def test_case_a_both_branches_undispatched_change_together() -> None:
    _, finished = walked(0.5)
    switched = finished.data(EventKind.SWITCHED)
    assert [(one["changed"], one["kept"]) for one in switched] == [(["C", "D"], ["P"])]
    assert finished.bindings() == dict.fromkeys("PCDA", f"{SMALL}.none")
    assert finished.seconds == pytest.approx(8.0), "the fork takes six units"
    assert switched[0]["text"] == ("Switched to variant 1 because qwen3.5-27b is at 1.31 of its capacity (above 0.85).")


def test_case_b_both_branches_dispatched_nothing_changes() -> None:
    world, finished = walked(1.5)
    assert finished.data(EventKind.SWITCHED) == []
    bindings = finished.bindings()
    assert (bindings["C"], bindings["D"]) == (f"{BIG}.none", f"{SMALL}.self_check")
    assert [request.role for request in world.dispatcher.sent if request.node == "D"] == ["generate", "verdict"]
    refused = finished.data(EventKind.SWITCH_REFUSED)
    assert [one["reason"] for one in refused] == ["no_effect"]
    assert "the selection has no effect" in refused[0]["text"]
    assert finished.seconds == 12.0
