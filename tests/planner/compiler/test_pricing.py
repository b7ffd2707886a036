"""The priced objective: a fleet's prices, plans that an emulator's speed does not change, and variants by price."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.serving.catalog import Catalog
from planner.compiler.bundle import compile_bundle
from planner.compiler.certificate import verify_plan
from planner.compiler.plan import Plan
from planner.compiler.pricing import EPSILON_PER_S, PRICE_LEVELS, Pricing, default_prices, fleet_pricing, time_scale
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan
from planner.compiler.workflow import ToolNode
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    SMALL,
    brute_force,
    bundled,
    coefficients_of,
    h200_catalog,
    llm,
    pair,
    planned,
    problems,
    profile_set,
    tool,
    workflow,
)
from tests.sampling import sampled


def priced(problem: PlanningProblem) -> PlanningProblem:
    return replace(problem, pricing=fleet_pricing(problem.catalog))


def emulated(catalog: Catalog, factor: float) -> Catalog:
    return replace(catalog, backends=tuple(replace(b, rates=b.rates.scaled(factor)) for b in catalog.backends))


def gpu_s(problem: PlanningProblem, plan: Plan) -> float:
    """GPU-seconds of all classes."""
    nodes = coefficients_of(problem).nodes
    columns = [nodes[node_id].column(chosen) for node_id, chosen in plan.assignment.items()]
    return sum(sum(column.gpu_s.values()) for column in columns if column is not None)


# --- Prices ---


def test_the_largest_served_class_costs_more_than_all_others() -> None:
    assert default_prices(h200_catalog()) == {SMALL: 0.7, MIDDLE: 0.7, LARGE: 1 / 0.7}
    without_large = replace(h200_catalog(), backends=h200_catalog().backends[:2])
    assert default_prices(without_large) == {SMALL: 0.7, MIDDLE: 1 / 0.7}
    assert default_prices(replace(h200_catalog(), backends=h200_catalog().backends[:1])) == {SMALL: 1 / 0.7}
    assert default_prices(replace(h200_catalog(), backends=())) == {}


def test_a_fleet_may_set_single_prices() -> None:
    assert fleet_pricing(h200_catalog(), {MIDDLE: 3.0}).prices == {SMALL: 0.7, MIDDLE: 3.0, LARGE: 1 / 0.7}


def test_a_price_of_a_class_that_is_not_served_is_refused() -> None:
    with pytest.raises(ValueError, match=r"prices name moon; this fleet serves qwen3\.5-4b"):
        fleet_pricing(h200_catalog(), {"moon": 1.0})
    with pytest.raises(ValueError, match="serves no class"):
        fleet_pricing(replace(h200_catalog(), backends=()), {LARGE: 1.0})


@pytest.mark.parametrize("wrong", [-1.0, nan, inf])
def test_prices_and_epsilon_must_be_numbers_that_are_not_negative(wrong: float) -> None:
    with pytest.raises(ValueError, match=f"the price of {LARGE}"):
        Pricing(prices={SMALL: 1.0, LARGE: wrong})
    with pytest.raises(ValueError, match="epsilon"):
        Pricing(prices={}, epsilon=wrong)


def test_a_problem_needs_a_price_for_every_served_class() -> None:
    with pytest.raises(ValueError, match=f"no price for {SMALL}, {LARGE}: price every class"):
        case(pricing=Pricing(prices={MIDDLE: 1.0}))


# --- The time scale ---


def test_a_fleets_time_scale_is_its_slowest_backends() -> None:
    catalog = h200_catalog()
    assert (time_scale(catalog), time_scale(emulated(catalog, 20))) == (1.0, 20.0)
    mixed = replace(catalog, backends=(catalog.backends[0], *emulated(catalog, 20).backends[1:]))
    assert time_scale(mixed) == 1.0
    assert time_scale(replace(catalog, backends=())) == 1.0
    assert fleet_pricing(emulated(catalog, 20)).epsilon == 20 * EPSILON_PER_S


@given(problem=problems(), level=st.sampled_from(PRICE_LEVELS), factor=st.sampled_from([0.5, 20.0, 1000.0]))
@sampled(40)
def test_a_scaled_fleet_gets_the_same_plans(problem: PlanningProblem, level: float, factor: float) -> None:
    """Tools take no time here: an emulator does not speed them up."""
    nodes = (replace(n, expected_s=0.0) if isinstance(n, ToolNode) else n for n in problem.workflow.nodes)
    real = priced(replace(problem, workflow=replace(problem.workflow, nodes=tuple(nodes))))
    fast = priced(replace(real, catalog=emulated(real.catalog, factor)))
    one, other = (planned(compile_plan(p, level)) for p in (real, fast))
    assert other.objective == pytest.approx(one.objective, rel=1e-9)
    assert other.makespan_s * factor == pytest.approx(one.makespan_s)
    assert gpu_s(fast, other) == pytest.approx(gpu_s(real, other))


# --- Plans ---


def case(pricing: Pricing | None = None) -> PlanningProblem:
    """A tool between two LLM nodes; the larger a class, the better."""
    pairs = [
        pair("plan", name, policy, quality + bonus, output_tokens=900)
        for name, quality in ((SMALL, 0.6), (MIDDLE, 0.7), (LARGE, 0.8))
        for policy, bonus in (("none", 0.0), ("self_check", 0.05), ("multi_critique", 0.1))
    ]
    return PlanningProblem(
        workflow=workflow(llm("a"), tool("t", 2.0), llm("b"), edges=[("a", "t"), ("t", "b")]),
        catalog=h200_catalog(),
        profiles=profile_set(pairs),
        pricing=pricing or fleet_pricing(h200_catalog()),
    )


@given(problem=problems(), level=st.sampled_from((0.0, *PRICE_LEVELS, 5.0)))
@sampled(60)
def test_a_priced_plan_is_optimal_and_certified(problem: PlanningProblem, level: float) -> None:
    chosen = priced(problem)
    plan = planned(compile_plan(chosen, level))
    assert plan.objective == pytest.approx(brute_force(coefficients_of(chosen), level).objective, abs=1e-9)
    assert verify_plan(chosen, plan) == ()


def test_the_terms_are_those_of_the_objective() -> None:
    problem = case()
    plan = planned(compile_plan(problem, 0.04))
    assert set(plan.terms) == {"log_quality", "gpu", "latency"}
    assert plan.terms["log_quality"] == pytest.approx(log(plan.estimated_quality))
    assert plan.terms["latency"] == pytest.approx(-EPSILON_PER_S * plan.makespan_s)
    largest = {node for node, chosen in plan.assignment.items() if chosen.model == LARGE}
    assert plan.terms["gpu"] == pytest.approx(-0.04 * gpu_s(problem, plan) * (1 / 0.7 if len(largest) == 2 else 0.7))


@given(problem=problems(), low=st.floats(0.001, 2), more=st.floats(0.01, 5))
@sampled(40)
def test_a_higher_price_never_asks_for_dearer_gpu_seconds(problem: PlanningProblem, low: float, more: float) -> None:
    chosen = priced(problem)
    spent = [-planned(compile_plan(chosen, level)).terms["gpu"] / level for level in (low, low + more)]
    assert spent[1] <= spent[0] + 1e-9


def test_a_quality_of_nothing_is_bounded_below() -> None:
    """v = 1 and Q = 0: the logarithm would be minus infinity."""
    hopeless = replace(case(), profiles=profile_set([pair("plan", SMALL, "none", 0.0)], 1.0))
    plan = planned(compile_plan(hopeless, 0.04))
    assert plan.terms["log_quality"] == pytest.approx(2 * log(1e-6))
    assert verify_plan(hopeless, plan) == ()


# --- Bundles ---


def test_variants_are_ordered_by_price_and_pi0_is_the_smallest() -> None:
    bundle = bundled(compile_bundle(case()))
    assert bundle.kind == "priced"
    assert bundle.variants[0].level == PRICE_LEVELS[0]
    assert [v.level for v in bundle.variants] == sorted({v.level for v in bundle.variants})
    spent = [gpu_s(case(), variant) for variant in bundle.variants]
    assert len(spent) > 1
    assert spent[-1] < spent[0]


def test_equal_assignments_are_kept_once() -> None:
    only = replace(case(), profiles=profile_set([pair("plan", SMALL, "none", 0.5)]))
    bundle = bundled(compile_bundle(only))
    assert [variant.level for variant in bundle.variants] == [PRICE_LEVELS[0]]


def test_a_workflow_without_llm_nodes_has_the_empty_plan() -> None:
    empty = replace(case(), workflow=workflow(tool("t", 2.0)))
    bundle = bundled(compile_bundle(empty))
    assert [dict(variant.assignment) for variant in bundle.variants] == [{}]
    assert verify_plan(empty, bundle.variants[0]) == ()
    assert bundle.variants[0].objective == pytest.approx(-EPSILON_PER_S * 2.0)


def test_the_same_assignment_at_the_same_level_of_another_kind_is_another_plan() -> None:
    levels = replace(case(), profiles=profile_set([pair("plan", SMALL, "none", 0.5)]), pricing=None)
    plans = [planned(compile_plan(p, 0.04)) for p in (levels, priced(levels))]
    assert plans[0].assignment == plans[1].assignment
    assert plans[0].digest != plans[1].digest
