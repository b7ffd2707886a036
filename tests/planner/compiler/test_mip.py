"""Plans within caps: three solvers against brute force, caps kept exactly, time limits, threads and processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.certificate import verify_plan
from planner.compiler.evaluate import Choice, evaluate
from planner.compiler.limits import Limits
from planner.compiler.limits.caps import caps_of, least, presolved, undominated
from planner.compiler.mip import cbc, highs
from planner.compiler.mip import checked as mip
from planner.compiler.mip.feasibility import find_within
from planner.compiler.mip.ilp import Answer, PlanModel, build_model
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import Solver, compile_plan
from planner.compiler.weights import Weights
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    all_choices,
    best_within,
    coefficients_of,
    h200_catalog,
    keeps_limits,
    limited_problems,
    linked_problem,
    llm,
    pair,
    planned,
    profile_set,
    tool,
    workflow,
)
from tests.sampling import sampled

SOLVERS: tuple[Solver, ...] = ("auto", "highs", "cbc")
FOREVER = float("inf")


def limited(problem: PlanningProblem, **limits: object) -> PlanningProblem:
    return replace(problem, limits=Limits(**limits))  # type: ignore[arg-type]  # test shorthand


def choice_of(problem: PlanningProblem, plan: Plan) -> Choice:
    columns = {node_id: node.columns for node_id, node in coefficients_of(problem).nodes.items()}
    return {n: next(c for c in columns[n] if c.implementation == impl) for n, impl in plan.assignment.items()}


@sampled(60)
@given(case=limited_problems())
def test_every_solver_finds_the_best_plan_within_the_limits(case: tuple[PlanningProblem, Limits]) -> None:
    problem, limits = case
    for level in (0.0, 3.0):
        best = best_within(coefficients_of(problem), level, limits)
        for solver in SOLVERS:
            plan = compile_plan(replace(problem, limits=limits), level, solver=solver)
            if best is None:
                assert isinstance(plan, Infeasible)
                assert plan.proved
            else:
                assert planned(plan).objective == pytest.approx(best.objective, rel=1e-7, abs=1e-8)
                assert planned(plan).gap == 0.0
                assert keeps_limits(coefficients_of(problem), choice_of(problem, planned(plan)), limits)
                assert verify_plan(replace(problem, limits=limits), planned(plan)) == ()


@sampled(60)
@given(case=limited_problems(max_limits=3), below=st.sampled_from([3e-9, 1e-8, 1e-7, 1e-6]))
def test_a_cap_missed_by_less_than_a_solvers_tolerance_is_missed(
    case: tuple[PlanningProblem, Limits], below: float
) -> None:
    """Every cap that a plan reaches exactly is lowered by a little, or raised for a quality."""
    problem, limits = case
    closer = {
        name: value * (1 - below) if name != "min_quality" else min(1.0, value * (1 + below))
        for name, value in limits.to_json().items()
        if name in ("max_cost", "max_tokens", "max_makespan_s", "min_quality")
    }
    limits = Limits.from_json(limits.to_json() | closer)
    best = best_within(coefficients_of(problem), 0.0, limits)
    for solver in SOLVERS:
        plan = compile_plan(replace(problem, limits=limits), 0.0, solver=solver)
        if best is None:
            assert isinstance(plan, Infeasible)
        else:
            assert planned(plan).objective == pytest.approx(best.objective, rel=1e-7, abs=1e-8)
            assert keeps_limits(coefficients_of(problem), choice_of(problem, planned(plan)), limits)


@sampled(60)
@given(case=limited_problems(max_nodes=3), solver=st.sampled_from(["highs", "cbc"]))
def test_cuts_alone_lead_to_the_best_plan_within_the_caps(
    case: tuple[PlanningProblem, Limits], solver: mip.MipSolver
) -> None:
    """A model that knows none of the caps, so that every plan that breaks one has to be cut off."""
    problem, limits = case
    coefficients = replace(coefficients_of(problem), problem=replace(problem, limits=limits))
    caps = [cap for cap in caps_of(coefficients) if cap.keeps(coefficients, least(coefficients, cap))]
    kept = [c for c in all_choices(coefficients) if all(cap.keeps(coefficients, c) for cap in caps)]
    answer = mip.checked(build_model(coefficients, 0.0), caps, FOREVER, solver)
    if answer.status == "optimal":
        assert answer.choice is not None
        best = max(evaluate(coefficients, choice, 0.0).objective for choice in kept)
        assert evaluate(coefficients, answer.choice, 0.0).objective == pytest.approx(best, abs=1e-8)
    elif answer.status == "infeasible":
        assert kept == []
    else:
        assert (answer.status, answer.choice) == ("unknown", None)


@sampled(60)
@given(case=limited_problems())
def test_what_caps_rule_out_is_in_no_plan_that_keeps_them(case: tuple[PlanningProblem, Limits]) -> None:
    problem, limits = case
    coefficients = replace(coefficients_of(problem), problem=replace(problem, limits=limits))
    caps = caps_of(coefficients)
    kept = [c for c in all_choices(coefficients) if all(cap.keeps(coefficients, c) for cap in caps)]
    possible = presolved(coefficients, caps)
    if possible is None:
        assert kept == []
        return
    for node_id, node in possible.nodes.items():
        in_some = {choice[node_id].implementation for choice in kept}
        assert in_some <= {column.implementation for column in node.columns}
        if len(caps) == 1:
            assert in_some == {column.implementation for column in node.columns}
    if kept:
        smaller = undominated(possible, 1.5, caps)
        best = max(evaluate(coefficients, choice, 1.5).objective for choice in kept)
        within = [c for c in all_choices(smaller) if all(cap.keeps(coefficients, c) for cap in caps)]
        assert max(evaluate(coefficients, c, 1.5).objective for c in within) == pytest.approx(best, abs=1e-12)


@sampled(60)
@given(case=limited_problems())
def test_what_the_heuristic_finds_keeps_the_caps_and_one_cap_it_always_meets(
    case: tuple[PlanningProblem, Limits],
) -> None:
    problem, limits = case
    coefficients = replace(coefficients_of(problem), problem=replace(problem, limits=limits))
    caps = caps_of(coefficients)
    possible = presolved(coefficients, caps)
    if possible is not None:
        found = find_within(possible, 0.0, caps, deadline=0.0)
        assert found is None or all(cap.keeps(coefficients, found) for cap in caps)
        assert found is not None or len(caps) != 1


def test_an_optimum_that_reaches_a_cap_needs_no_other_solver() -> None:
    problem = linked_problem(6)
    free = planned(compile_plan(problem, 0.0))
    plan = planned(compile_plan(limited(problem, max_cost=free.cost, max_makespan_s=free.makespan_s), 0.0))
    assert (plan.assignment, plan.objective, plan.solver) == (free.assignment, free.objective, "exact")


def test_a_broken_cap_goes_to_the_solver_that_is_quicker_at_the_size() -> None:
    small, large = linked_problem(5), linked_problem(40)
    for problem, name in ((small, "highs"), (large, "cbc")):
        cost = planned(compile_plan(problem, 0.0)).cost
        plan = planned(compile_plan(limited(problem, max_cost=0.8 * cost), 0.0, time_limit_s=60))
        assert (plan.solver, plan.gap) == (name, 0.0)
        assert plan.cost <= 0.8 * cost * (1 + 1e-9)


def test_without_limits_the_three_solvers_agree() -> None:
    problem = linked_problem(12)
    own, by_highs, by_cbc = (planned(compile_plan(problem, 1.5, solver=solver)) for solver in SOLVERS)
    assert (own.solver, by_highs.solver, by_cbc.solver) == ("exact", "highs", "cbc")
    assert by_highs.objective == pytest.approx(own.objective, rel=1e-9)
    assert by_cbc.objective == pytest.approx(own.objective, rel=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_time_a_plan_within_the_caps_carries_its_gap(solver: Solver) -> None:
    problem = linked_problem(60)
    problem = limited(problem, max_cost=0.7 * planned(compile_plan(problem, 0.0)).cost)
    hurried = planned(compile_plan(problem, 0.0, time_limit_s=0, solver=solver))
    patient = planned(compile_plan(problem, 0.0, time_limit_s=60))
    assert hurried.solver == "fallback"
    assert hurried.objective <= patient.objective + 1e-9 <= hurried.objective * (1 + hurried.gap) + 2e-9
    assert verify_plan(problem, hurried) == ()


def test_what_was_not_found_in_time_is_not_called_impossible() -> None:
    """The greatest quality that a cost allows: next to no plan reaches both, and only a search finds one that does."""
    problem = linked_problem(30)
    free = planned(compile_plan(problem, 0.0))
    caps = {"max_cost": 0.8 * free.cost, "min_quality": free.estimated_quality}
    impossible = compile_plan(limited(problem, **caps), 0.0, time_limit_s=60)
    assert isinstance(impossible, Infeasible)
    reachable = limited(problem, **caps | {c.limit: c.needed for c in impossible.conflicts if c.limit == "min_quality"})
    for solver in SOLVERS:
        hurried = compile_plan(reachable, 0.0, time_limit_s=0, solver=solver)
        assert isinstance(hurried, Infeasible)
        assert (hurried.proved, hurried.conflicts) == (False, ())
        assert "allow more time" in hurried.text
    assert verify_plan(reachable, planned(compile_plan(reachable, 0.0, time_limit_s=60))) == ()


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_workflow_of_tools_has_a_makespan_to_keep_and_nothing_else(solver: Solver) -> None:
    graph = workflow(tool("a", 2.0), tool("b", 3.0), edges=[("a", "b")])
    problem = PlanningProblem(workflow=graph, catalog=h200_catalog(), profiles=profile_set([pair()]))
    kept = limited(problem, max_makespan_s=5, max_cost=0, max_calls=0, max_tokens=0, min_quality=1)
    assert planned(compile_plan(kept, 0.0, solver=solver)).solver == "none"
    result = compile_plan(limited(problem, max_makespan_s=4.5, max_cost=0), 0.0, solver=solver)
    assert isinstance(result, Infeasible)
    assert [(c.limit, c.asked, c.needed) for c in result.conflicts] == [("max_makespan_s", 4.5, 5.0)]


def test_a_column_that_is_always_wrong_where_it_matters_is_in_no_plan_of_a_quality() -> None:
    pairs = [pair(model=MIDDLE, quality=0.0), pair(model=LARGE, quality=0.6)]
    problem = PlanningProblem(
        workflow=workflow(llm("a")),
        catalog=h200_catalog(),
        profiles=profile_set(pairs, vulnerability=1.0),
        weights=Weights(lambda_l=1000.0),
    )
    assert planned(compile_plan(problem, 0.0)).assignment["a"].model == MIDDLE
    for solver in SOLVERS:
        plan = planned(compile_plan(limited(problem, min_quality=1e-9), 0.0, solver=solver))
        assert plan.assignment["a"].model == LARGE
        hopeless = compile_plan(limited(problem, min_quality=0.7), 0.0, solver=solver)
        assert isinstance(hopeless, Infeasible)
        assert hopeless.conflicts[0].needed == pytest.approx(0.6)


def test_highs_says_nothing_and_a_hopeless_model_is_infeasible(capfd: pytest.CaptureFixture[str]) -> None:
    problem = linked_problem(8)
    coefficients = coefficients_of(limited(problem, max_makespan_s=0.001))
    assert highs.run(build_model(coefficients, 0.0, caps_of(coefficients)), 60.0).status == "infeasible"
    assert cbc.run(build_model(coefficients, 0.0, caps_of(coefficients)), 60.0).status == "infeasible"
    assert planned(compile_plan(problem, 0.0, solver="highs")).gap == 0.0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("run", [highs.run, cbc.run])
@pytest.mark.parametrize("time_limit_s", [0.0, 0.05, 0.2])
def test_at_the_end_of_its_time_a_solver_gives_what_it_has(
    run: Callable[[PlanModel, float], Answer], time_limit_s: float
) -> None:
    """Without time there is no plan; with little there may be one, and its bound."""
    coefficients = coefficients_of(linked_problem(150))
    answer = run(build_model(coefficients, 0.0), time_limit_s)
    optimum = planned(compile_plan(linked_problem(150), 0.0, time_limit_s=60)).objective
    assert answer.status in (("unknown",) if time_limit_s == 0 else ("unknown", "feasible", "optimal"))
    assert answer.bound >= optimum - 1e-9
    if answer.choice is not None:
        assert evaluate(coefficients, answer.choice, 0.0).objective <= optimum + 1e-9


def test_highs_solves_in_threads_and_in_a_forked_process() -> None:
    problem = linked_problem(6)
    problem = limited(problem, max_cost=0.8 * planned(compile_plan(problem, 0.0)).cost)
    alone = planned(compile_plan(problem, 0.0, solver="highs"))
    with ThreadPoolExecutor(4) as pool:
        others = list(pool.map(lambda _: compile_plan(problem, 0.0, solver="highs"), range(16)))
    assert {planned(other).digest for other in others} == {alone.digest}
    child = get_context("fork").Process(target=_solves_alike, args=(problem, alone.objective))
    child.start()
    child.join(60)
    assert child.exitcode == 0


def _solves_alike(problem: PlanningProblem, objective: float) -> None:
    if abs(planned(compile_plan(problem, 0.0, solver="highs")).objective - objective) > 1e-9:
        raise SystemExit(1)
