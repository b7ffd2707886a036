"""The switching rule as a table, and what must hold for every load."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.plan import Bundle
from runtime.engine.ports import ClassLoad, Decision, SwitchSettings
from runtime.engine.switching import class_load, decide, is_quiet, quality_dropped, repeats
from tests.runtime.engine.samples import BIG, SMALL, START, TINY, bundle, impl, plan

NODES = ("a", "b")


def variants(*rows: tuple[str, float]) -> Bundle:
    """One variant per (dominant class, estimated quality), all nodes on that class, each with another policy."""
    policies = ("none", "self_check", "self_refine", "debate")
    return bundle(
        *(
            plan({node: impl(model, policies[index]) for node in NODES}, level=float(index), quality=quality)
            for index, (model, quality) in enumerate(rows)
        )
    )


THREE = variants((BIG, 0.90), (SMALL, 0.85), (TINY, 0.80))


def loads(**by_class: float | None) -> dict[str, ClassLoad]:
    names = {"big": BIG, "small": SMALL, "tiny": TINY}
    return {
        names[key]: ClassLoad(
            model=names[key],
            load=load,
            state="unknown" if load is None else "overloaded" if math.isinf(load) else "ok",
            capacity=100.0,
        )
        for key, load in by_class.items()
    }


def decided(active: int = 0, plans: Bundle = THREE, **more: Any) -> Decision:
    settings = more.pop("settings", SwitchSettings())
    last_switch_at = more.pop("last_switch_at", None)
    undispatched = more.pop("undispatched", NODES)
    return decide(
        active=active,
        bundle=plans,
        loads=loads(**more),
        settings=settings,
        now=START,
        last_switch_at=last_switch_at,
        undispatched=undispatched,
    )


INF = math.inf
TWICE_BIG = variants((BIG, 0.90), (BIG, 0.88), (SMALL, 0.85))
TWO = variants((BIG, 0.90), (SMALL, 0.85))
ALONE = variants((BIG, 0.90))

# What happens, active variant, plans, loads of 27B, 9B and 4B ("-": no reading), then the variant switched to, the
# reason, and the reasons of the candidates in the order in which they were looked at.
# fmt: off
TABLE: list[tuple[Any, ...]] = [
    ("calm keeps", 0, THREE, (0.7, 0.1, "-"),
        None, "within_limits", ""),
    ("at the threshold keeps", 0, THREE, (0.85, 0.1, "-"),
        None, "within_limits", ""),
    ("congested takes the first later one that passes", 0, THREE, (1.31, 0.2, 0.1),
        1, "congested", "accepted"),
    ("skips an overloaded class", 0, THREE, (1.31, 0.9, 0.1),
        2, "congested", "overloaded accepted"),
    ("skips an unknown class", 0, THREE, (1.31, None, 0.1),
        2, "congested", "unknown_load accepted"),
    ("skips a class without a reading", 0, THREE, (1.31, "-", 0.1),
        2, "congested", "unknown_load accepted"),
    ("skips a class that is hardly better", 0, THREE, (0.9, 0.64, 0.1),
        2, "congested", "not_enough_relief accepted"),
    ("just enough relief passes", 0, THREE, (0.9, 0.63, "-"),
        1, "congested", "accepted"),
    ("skips the congested class", 0, TWICE_BIG, (1.31, 0.2, "-"),
        2, "congested", "same_class accepted"),
    ("an absolute drop is refused", 0, variants((BIG, 0.9), (SMALL, 0.74)), (1.31, 0.1, "-"),
        None, "no_candidate", "quality_drop"),
    ("a drop at the tolerance passes", 0, variants((BIG, 0.9), (SMALL, 0.75)), (1.31, 0.1, "-"),
        1, "congested", "accepted"),
    ("a relative drop is refused", 0, variants((BIG, 0.4), (SMALL, 0.29)), (1.31, 0.1, "-"),
        None, "no_candidate", "quality_drop"),
    ("the active plan counts, not the first", 1, THREE, (0.95, 1.2, 0.1),
        2, "congested", "accepted"),
    ("no healthy replica is congested", 0, THREE, (INF, 0.2, "-"),
        1, "congested", "accepted"),
    ("nobody takes an unhealthy class", 0, TWO, (1.2, INF, "-"),
        None, "no_candidate", "overloaded"),
    ("a single variant has no alternative", 0, ALONE, (1.31, "-", "-"),
        None, "no_candidate", ""),
    ("unknown keeps", 0, THREE, (None, 0.1, "-"),
        None, "unknown_load", ""),
    ("no reading keeps", 0, THREE, ("-", 0.1, "-"),
        None, "unknown_load", ""),
    ("returns when load subsides", 2, THREE, (0.2, 0.2, 0.2),
        0, "relieved", "accepted"),
    ("returns to the lowest that is low", 2, THREE, (0.5, 0.2, 0.2),
        1, "relieved", "not_low accepted"),
    ("leaves a congested lower class for a free upper one", 1, THREE, (0.3, 0.95, 2.0),
        0, "relieved", "overloaded accepted"),
    ("later ones come before earlier ones", 1, THREE, (0.1, 0.95, 0.1),
        2, "congested", "accepted"),
    ("keeps when the upper class is not low", 1, THREE, (0.8, 0.6, 0.1),
        None, "not_relieved", "not_low"),
    ("does not return to an unknown class", 1, THREE, (None, 0.6, "-"),
        None, "not_relieved", "unknown_load"),
    ("returning checks quality too", 1, variants((BIG, 0.6), (SMALL, 0.9)), (0.1, 0.6, "-"),
        None, "not_relieved", "quality_drop"),
    ("a congested last variant without a way out keeps", 2, THREE, (0.6, 0.7, 2.0),
        None, "no_candidate", "not_low not_low"),
]
# fmt: on


def readings(row: tuple[Any, ...]) -> dict[str, ClassLoad]:
    named = zip(("big", "small", "tiny"), row, strict=True)
    return loads(**{name: load for name, load in named if load != "-"})


@pytest.mark.parametrize(
    ("active", "plans", "row", "to", "reason", "looked_at"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_the_rule(
    active: int, plans: Bundle, row: tuple[Any, ...], to: int | None, reason: str, looked_at: str
) -> None:
    decision = decide(
        active=active,
        bundle=plans,
        loads=readings(row),
        settings=SwitchSettings(),
        now=START,
        last_switch_at=None,
        undispatched=NODES,
    )
    assert (decision.to_variant, decision.reason) == (to, reason)
    assert " ".join(candidate.reason for candidate in decision.candidates) == looked_at
    accepted = [candidate.variant for candidate in decision.candidates if candidate.verdict == "accepted"]
    assert accepted == ([] if to is None else [to])


@pytest.mark.parametrize(
    ("since_s", "to", "reason"), [(0.0, None, "dwell"), (4.9, None, "dwell"), (5.0, 1, "congested")]
)
def test_dwell(since_s: float, to: int | None, reason: str) -> None:
    decision = decided(big=1.31, small=0.1, last_switch_at=START - since_s)
    assert (decision.to_variant, decision.reason) == (to, reason)


def test_dwell_is_no_reason_where_nothing_would_be_taken() -> None:
    assert decided(big=0.3, last_switch_at=START - 1).reason == "within_limits"
    assert decided(big=1.31, small=0.9, tiny=0.9, last_switch_at=START - 1).reason == "no_candidate"


def test_a_switch_says_what_it_changes_and_what_it_keeps() -> None:
    decision = decided(big=1.31, small=0.2, undispatched=("b",))
    assert (decision.changed, decision.kept) == (("b",), ("a",))
    assert decision.text == ("Switched to variant 1 because qwen3.5-27b is at 1.31 of its capacity (above 0.85).")


def test_a_switch_names_what_it_skipped() -> None:
    plans = variants((BIG, 0.9), (BIG, 0.88), (SMALL, 0.85))
    assert decided(plans=plans, big=1.31, small=0.2).text == (
        "Switched to variant 2 because qwen3.5-27b is at 1.31 of its capacity (above 0.85); "
        "variant 1 skipped: same dominant class."
    )


def test_refusals_are_sentences() -> None:
    assert decided(big=1.31, small=0.9, tiny=None).text == (
        "Kept variant 0: qwen3.5-27b is at 1.31 of its capacity (above 0.85), but no variant passes; "
        "variant 1 skipped: qwen3.5-9b is at 0.90 itself (above 0.85); "
        "variant 2 skipped: the load of qwen3.5-4b is unknown."
    )
    assert decided(last_switch_at=START - 1.2, big=1.31, small=0.1).text == (
        "Kept variant 0: qwen3.5-27b is at 1.31 of its capacity (above 0.85) and variant 1 passes, "
        "but the last switch was 1.2 s ago (dwell 5 s)."
    )
    assert decided(big=INF, plans=variants((BIG, 0.9))).text == (
        "Kept variant 0: qwen3.5-27b has no healthy replica, but the bundle has no other variant."
    )
    assert decided(1, big=0.1, small=0.6, tiny=0.1).text == (
        "Switched to variant 0 because qwen3.5-9b is at 0.60 of its capacity (not above 0.85), "
        "and qwen3.5-27b is at 0.10, estimated quality 0.90 (below 0.5)."
    )


def test_a_decision_carries_what_it_read() -> None:
    decision = decided(big=1.31, small=0.2, settings=SwitchSettings(high=0.9))
    assert set(decision.loads) == {BIG, SMALL}
    assert decision.thresholds["high"] == 0.9
    assert decision.at == START


def test_an_incomplete_bundle_is_the_reason_while_it_is_incomplete() -> None:
    partial = bundle(THREE.variants[0], complete=False)
    assert decided(plans=partial, big=1.31).reason == "bundle_pending"
    assert decided(plans=partial, big=0.3).reason == "within_limits"


def test_a_variant_that_changes_nothing_is_not_switched_to() -> None:
    same = plan({"a": impl(SMALL), "b": impl(BIG)}, quality=0.9, dominant=BIG)
    other = plan({"a": impl(SMALL), "b": impl(SMALL)}, level=1.0, quality=0.9, dominant=SMALL)
    decision = decided(plans=bundle(same, other), big=1.31, small=0.1, undispatched=("a",))
    assert (decision.to_variant, decision.reason) == (None, "no_effect")
    assert "the selection has no effect" in decision.text
    assert [candidate.verdict for candidate in decision.candidates] == ["skipped"]


def test_planned_demand_counts_unless_a_setting_turns_it_off() -> None:
    load = {BIG: ClassLoad(model=BIG, load=1.2, state="ok", outstanding=60, planned=60, capacity=100)}
    assert class_load(load, BIG) == 1.2
    assert class_load(load, BIG, count_planned=False) == 0.6
    assert class_load(load, None) is None
    lost = {BIG: ClassLoad(model=BIG, load=None, state="overloaded")}
    assert class_load(lost, BIG) == math.inf


def test_refusals_repeat_until_something_changes() -> None:
    first = decided(big=1.31, small=0.90, tiny=0.9)
    assert not repeats(first, None)
    assert repeats(decided(big=1.90, small=0.95, tiny=0.9), first), "other loads, the same verdicts"
    assert not repeats(decided(big=1.31, small=0.90, tiny=None), first), "another verdict"
    assert not repeats(decided(big=None), first), "another reason"
    switch = decided(big=1.31, small=0.1)
    assert not repeats(switch, switch), "a switch is always recorded"


def test_only_a_calm_keep_is_quiet() -> None:
    assert is_quiet(decided(big=0.1))
    assert not is_quiet(decided(big=1.31, small=0.1))
    assert not is_quiet(decided(1, big=0.8, small=0.6))


# --- Properties ---

CLASSES = (BIG, SMALL, TINY)
some_load = st.one_of(st.none(), st.just(INF), st.floats(0, 3))
some_variant = st.tuples(st.sampled_from(CLASSES), st.floats(0.05, 1))


@st.composite
def situations(draw: st.DrawFn) -> dict[str, Any]:
    rows = draw(st.lists(some_variant, min_size=1, max_size=4))
    return {
        "active": draw(st.integers(0, len(rows) - 1)),
        "bundle": variants(*rows),
        "loads": loads(big=draw(some_load), small=draw(some_load), tiny=draw(some_load)),
        "settings": SwitchSettings(),
        "now": START,
        "last_switch_at": draw(st.one_of(st.none(), st.floats(START - 20, START))),
        "undispatched": draw(st.sets(st.sampled_from(NODES), min_size=1)),
    }


@given(situations())
def test_what_holds_for_every_switch(situation: dict[str, Any]) -> None:
    decision = decide(**situation)
    plans, settings = situation["bundle"].variants, situation["settings"]
    active = plans[situation["active"]]
    active_load = class_load(situation["loads"], active.dominant_model)
    if decision.to_variant is None:
        assert decision.changed == ()
        return
    target = plans[decision.to_variant]
    load = class_load(situation["loads"], target.dominant_model)
    assert active_load is not None, "never away from an unknown class"
    assert load is not None, "never to an unknown class"
    assert load <= settings.high, "never to an overloaded class"
    last = situation["last_switch_at"]
    assert last is None or START - last >= settings.dwell_s
    drop = active.estimated_quality - target.estimated_quality
    assert drop <= 0.15 + 1e-6
    assert drop <= 0.25 * active.estimated_quality + 1e-6
    assert decision.changed, "a switch changes something"
    assert set(decision.changed) <= situation["undispatched"]
    assert not set(decision.kept) & situation["undispatched"]
    if decision.to_variant > situation["active"]:
        assert active_load > settings.high
        assert target.dominant_model != active.dominant_model
        assert load <= settings.ratio * active_load
    else:
        assert load < settings.low


@given(situations())
def test_a_decision_is_a_function_of_what_it_reads(situation: dict[str, Any]) -> None:
    assert decide(**situation) == decide(**situation)


@given(situations())
def test_every_decision_explains_itself(situation: dict[str, Any]) -> None:
    decision = decide(**situation)
    assert decision.text.startswith("Switched to variant " if decision.to_variant is not None else "Kept variant ")
    assert decision.text.endswith(".")
    assert all(candidate.text for candidate in decision.candidates)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_gain_is_never_a_drop(before: float, gain: float) -> None:
    assert not quality_dropped(before, before + gain, SwitchSettings())
