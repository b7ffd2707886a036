from __future__ import annotations

from planner.compiler.policies import POLICIES
from runtime.engine.demand import planned_calls, planned_until, uses
from tests.runtime.engine.samples import BIG, SMALL, impl, llm, plan

NEXT = (llm("a"), llm("b"))


def test_the_widest_stage_of_any_next_node_counts() -> None:
    one = plan({"a": impl(SMALL), "b": impl(SMALL)})
    assert planned_calls(NEXT, one, POLICIES, SMALL) == 1
    votes = plan({"a": impl(SMALL), "b": impl(SMALL, "self_consistency")})
    assert planned_calls(NEXT, votes, POLICIES, SMALL) == 5
    critiques = plan({"a": impl(SMALL, "multi_critique"), "b": impl(SMALL)})
    assert planned_calls(NEXT, critiques, POLICIES, SMALL) == 3


def test_only_calls_on_the_class_count() -> None:
    mixed = plan({"a": impl(BIG, "self_consistency"), "b": impl(SMALL)})
    assert planned_calls(NEXT, mixed, POLICIES, SMALL) == 1
    verified = plan({"a": impl(SMALL, "cross_check", BIG), "b": impl(SMALL)})
    assert planned_calls(NEXT, verified, POLICIES, BIG) == 1
    assert planned_calls((), verified, POLICIES, BIG) == 0


def test_an_announcement_lasts_for_the_dwell_time_and_five_seconds_at_least() -> None:
    assert planned_until(100.0, 2.0) == 105.0
    assert planned_until(100.0, 30.0) == 130.0


def test_a_verifier_uses_its_class_too() -> None:
    assert uses(impl(SMALL, "cross_check", BIG), BIG)
    assert uses(impl(BIG), BIG)
    assert not uses(impl(SMALL), BIG)
    assert not uses(None, BIG)
