"""Ranges of weights in which a plan stays optimal, against the lines of all plans there are."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.evaluate import Choice, evaluate
from planner.compiler.explain import choice_of
from planner.compiler.limits import Limits
from planner.compiler.plan import Plan
from planner.compiler.pricing import Pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.sensitivity import SPANS, End, NotOptimal, Parameter, Range, sensitivity
from planner.compiler.solve import compile_plan
from planner.compiler.weights import Weights
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    SMALL,
    all_choices,
    coefficients_of,
    h200_catalog,
    linked_problem,
    llm,
    pair,
    planned,
    problems,
    profile_set,
    tool,
    workflow,
)
from tests.sampling import sampled


def at(problem: PlanningProblem, level: float, parameter: Parameter, value: float) -> tuple[PlanningProblem, float]:
    if parameter == "level":
        return problem, value
    if parameter == "effort":
        return replace(problem, effort=value), level
    return replace(problem, weights=replace(problem.weights, lambda_l=value)), level


def objective(problem: PlanningProblem, level: float, parameter: Parameter, value: float, choice: Choice) -> float:
    changed, level = at(problem, level, parameter, value)
    return evaluate(coefficients_of(changed), choice, level).objective


def brute_force_range(problem: PlanningProblem, plan: Plan, parameter: Parameter, value: float) -> tuple[float, float]:
    """Where no other plan's line lies above the plan's own; lines from the ends of the span, by evaluation alone."""
    low, high = bounds = SPANS[parameter]
    own, *rest = (
        [objective(problem, plan.level, parameter, v, choice) for v in (value, *bounds)]
        for choice in (choice_of(coefficients_of(problem), plan), *all_choices(coefficients_of(problem)))
    )
    for here, first, last in rest:
        behind, steeper = max(0.0, own[0] - here), ((last - first) - (own[2] - own[1])) / (bounds[1] - bounds[0])
        if steeper > 1e-9:
            high = min(high, value + behind / steeper)
        elif steeper < -1e-9:
            low = max(low, value + behind / steeper)
    return low, high


PARAMETERS: tuple[Parameter, ...] = ("lambda_l", "effort", "level")


@sampled(40)
@given(problem=problems(max_nodes=3), level=st.sampled_from([0.0, 1.5, 3.0]))
def test_the_plan_is_optimal_inside_and_another_one_outside(problem: PlanningProblem, level: float) -> None:
    plan = planned(compile_plan(problem, level))
    own = choice_of(coefficients_of(problem), plan)
    for found in sensitivity(problem, plan):
        assert found.proved
        assert found.low.at <= found.value <= found.high.at
        for end, bound in zip((found.low, found.high), SPANS[found.parameter], strict=True):
            here, there = at(problem, level, found.parameter, end.at)
            best = max(evaluate(coefficients_of(here), c, there).objective for c in all_choices(coefficients_of(here)))
            scale = max(1.0, abs(best))
            assert evaluate(coefficients_of(here), own, there).objective >= best - 2e-9 * scale
            assert end.open == (end.plan is None)
            if end.open:
                assert end.at == bound
            else:
                takes_over_beyond(problem, plan, found, end, bound)


def takes_over_beyond(problem: PlanningProblem, plan: Plan, found: Range, end: End, bound: float) -> None:
    """The named plan beats the plan right behind the end, and no plan beats it there."""
    assert end.plan is not None
    assert {**plan.assignment, **end.changes} == end.plan.assignment
    assert end.changes
    coefficients = coefficients_of(problem)
    other, own = choice_of(coefficients, end.plan), choice_of(coefficients, plan)
    beyond = end.at + 1e-3 * (bound - end.at)
    ours, theirs = (objective(problem, plan.level, found.parameter, beyond, choice) for choice in (own, other))
    assert theirs > ours - 1e-12
    ours, theirs = (objective(problem, plan.level, found.parameter, bound, choice) for choice in (own, other))
    assert theirs > ours


@sampled(25)
@given(problem=problems(max_nodes=2), parameter=st.sampled_from(PARAMETERS))
def test_ranges_are_those_of_all_plans_lines(problem: PlanningProblem, parameter: Parameter) -> None:
    """Never shorter; longer only by what the tie tolerance allows."""
    plan = planned(compile_plan(problem, 1.5))
    (found,) = sensitivity(problem, plan, parameters=(parameter,))
    low, high = brute_force_range(problem, plan, parameter, found.value)
    assert found.low.at <= low + 1e-6 * max(1.0, low)
    assert found.high.at >= high - 1e-6 * max(1.0, high)
    for end, expected in ((found.low.at, low), (found.high.at, high)):
        if end != pytest.approx(expected, rel=1e-6, abs=1e-6):
            here = coefficients_of(at(problem, 1.5, parameter, end)[0])
            best = max(objective(problem, 1.5, parameter, end, choice) for choice in all_choices(here))
            own = objective(problem, 1.5, parameter, end, choice_of(here, plan))
            assert best - own <= 2e-9 * max(1.0, abs(own))


def one_node(*pairs: tuple[str, str, float, int], weights: Weights | None = None) -> PlanningProblem:
    profiles = [pair(model=m, policy=p, quality=q, output_tokens=t) for m, p, q, t in pairs]
    return PlanningProblem(
        workflow=workflow(llm("n")),
        catalog=h200_catalog(),
        profiles=profile_set(profiles),
        weights=weights or Weights(lambda_c=0.0),
    )


def test_one_node_two_models_by_hand() -> None:
    """The large class gains g more and takes s more seconds of T_ref: it stays up to lambda_l = g T_ref / s."""
    problem = one_node((LARGE, "none", 0.9, 500), (MIDDLE, "none", 0.8, 500))
    plan = planned(compile_plan(problem, 0.0))
    small, large = coefficients_of(problem).nodes["n"].columns
    assert plan.assignment["n"] == large.implementation
    (found,) = sensitivity(problem, plan, parameters=("lambda_l",))
    gained = 0.1 * (1 + 0.4)  # rho is 1 and v is 0.4
    assert found.high.at == pytest.approx(gained * large.duration_s / (large.duration_s - small.duration_s))
    assert found.high.changes == {"n": small.implementation}
    assert (found.low.open, found.low.at, found.high.open) == (True, 0.0, False)


def test_a_node_with_one_column_is_optimal_everywhere() -> None:
    problem = one_node((LARGE, "none", 0.9, 500))
    for found in sensitivity(problem, planned(compile_plan(problem, 0.0))):
        assert (found.low.at, found.high.at) == SPANS[found.parameter]
        assert found.low.open
        assert found.high.open
        assert found.proved


def test_a_tie_at_the_plans_own_value_ends_the_range_there() -> None:
    """At lambda_l = 0 two backends of equal quality tie; any price of time decides between them."""
    problem = one_node((LARGE, "none", 0.8, 500), (MIDDLE, "none", 0.8, 500), weights=Weights(lambda_l=0, lambda_c=0))
    coefficients = coefficients_of(problem)
    plan = planned(compile_plan(problem, 0.0))
    slow = next(c for c in coefficients.nodes["n"].columns if c.implementation.model == LARGE)
    tied = replace(plan, assignment={"n": slow.implementation})
    (found,) = sensitivity(problem, tied, parameters=("lambda_l",))
    assert found.high.at == pytest.approx(0.0, abs=1e-6)
    assert not found.high.open
    assert found.high.changes["n"].model == MIDDLE


def test_no_llm_node_no_end() -> None:
    problem = PlanningProblem(workflow=workflow(tool("t")), catalog=h200_catalog(), profiles=profile_set([pair()]))
    found = sensitivity(problem, planned(compile_plan(problem, 0.0)))
    assert [(r.low.open, r.high.open, r.proved) for r in found] == [(True, True, True)] * 3


def test_a_value_outside_the_span_is_a_bound_itself() -> None:
    problem = one_node((LARGE, "none", 0.9, 500), (MIDDLE, "none", 0.8, 500), weights=Weights(lambda_l=5000.0))
    (found,) = sensitivity(problem, planned(compile_plan(problem, 0.0)), parameters=("lambda_l",))
    assert (found.value, found.high.at, found.high.open) == (5000.0, 5000.0, True)
    assert found.low.at < 1000


def test_a_priced_problem_has_a_range_of_price_levels_only() -> None:
    prices = dict.fromkeys((SMALL, MIDDLE, LARGE), 1.0)
    problem = replace(
        one_node((LARGE, "none", 0.9, 500), (MIDDLE, "none", 0.8, 500)), pricing=Pricing(prices=prices, epsilon=0.0)
    )
    plan = planned(compile_plan(problem, 0.001))
    (found,) = sensitivity(problem, plan)
    assert found.parameter == "level"
    assert plan.assignment["n"].model == LARGE
    beyond = planned(compile_plan(problem, 1.01 * found.high.at))
    within = planned(compile_plan(problem, 0.99 * found.high.at))
    assert (within.assignment, beyond.assignment["n"].model) == (plan.assignment, MIDDLE)


def test_limits_hold_for_the_plans_that_take_over() -> None:
    """Without the pin the middle class would take over from the large one."""
    free = one_node((LARGE, "none", 0.9, 500), (MIDDLE, "none", 0.8, 500), (SMALL, "none", 0.7, 500))
    problem = replace(free, limits=Limits(forbidden={"n": (MIDDLE,)}))
    (found,) = sensitivity(problem, planned(compile_plan(problem, 0.0)), parameters=("lambda_l",))
    assert found.high.changes["n"].model == SMALL


def test_a_plan_that_is_not_optimal_is_refused() -> None:
    problem = one_node((LARGE, "none", 0.9, 500), (MIDDLE, "none", 0.8, 500))
    worse = replace(planned(compile_plan(problem, 100.0)), level=0.0)
    with pytest.raises(NotOptimal, match="not optimal at its own weights"):
        sensitivity(problem, worse)
    other = one_node((SMALL, "none", 0.9, 500))
    with pytest.raises(ValueError, match="node n is not legal"):
        sensitivity(other, worse)


def test_without_time_nothing_is_proved() -> None:
    problem = linked_problem(6)
    found = sensitivity(problem, planned(compile_plan(problem, 0.0)), time_limit_s=0.0, timer=lambda: 1.0)
    assert [r.proved for r in found] == [False] * 3


def test_the_json_form_names_what_changes() -> None:
    problem = one_node((LARGE, "none", 0.9, 500), (MIDDLE, "none", 0.8, 500))
    data = json.loads(json.dumps([r.to_json() for r in sensitivity(problem, planned(compile_plan(problem, 0.0)))]))
    assert [r["parameter"] for r in data] == list(PARAMETERS)
    assert data[0]["high"]["changes"]["n"]["model"] == MIDDLE
    assert data[0]["low"]["takes_over"] is None
