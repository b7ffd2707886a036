"""Plans against brute force, and what holds of every plan."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from planner.compiler import exact
from planner.compiler.bundle import compile_bundle
from planner.compiler.certificate import verify_plan
from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Choice, Solution, evaluate
from planner.compiler.exact import Found
from planner.compiler.limits import parse_limits
from planner.compiler.mip.cbc import logged_bound
from planner.compiler.mip.fallback import incumbent, upper_bound
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import SHARE_WITH_CAPS, Solver, compile_plan, decode, plan_digest
from planner.compiler.weights import Weights
from tests.planner.compiler.cases import (
    LARGE,
    brute_force,
    bundled,
    coefficients_of,
    h200_catalog,
    linked_problem,
    llm,
    longest_path_by_enumeration,
    pair,
    planned,
    problems,
    profile_set,
    tool,
    workflow,
)
from tests.sampling import sampled

few = sampled(25)


@few
@given(problem=problems())
def test_the_plan_is_optimal(problem: PlanningProblem) -> None:
    for level in (0.0, 3.0):
        plan = planned(compile_plan(problem, level))
        assert plan.objective == pytest.approx(brute_force(coefficients_of(problem), level).objective, abs=1e-7)
        assert plan.gap == 0.0


@few
@given(problem=problems(max_nodes=6))
def test_every_plan_is_what_it_says(problem: PlanningProblem) -> None:
    plan = planned(compile_plan(problem, 1.5))
    assert set(plan.assignment) == {node.id for node in problem.workflow.llm_nodes}
    assert plan.makespan_s == pytest.approx(longest_path_by_enumeration(problem.workflow, plan.durations_s))
    assert sum(plan.terms.values()) == pytest.approx(plan.objective)
    assert verify_plan(problem, plan) == ()


@few
@given(problem=problems(max_nodes=6))
def test_demand_never_rises_with_the_level(problem: PlanningProblem) -> None:
    """D is what L penalises: work, or the sum of tau where the problem says so."""
    demands = []
    for level in (0.0, 0.5, 1.5, 3.0, 6.0):
        plan = planned(compile_plan(problem, level))
        coefficients = coefficients_of(problem)
        columns = [coefficients.nodes[n].column(impl) for n, impl in plan.assignment.items()]
        demands.append(sum(coefficients.demand(column) for column in columns if column is not None))
    for lower, higher in pairwise(demands):
        assert higher <= lower * (1 + 1e-4) + 1e-6


@few
@given(problem=problems(max_nodes=6))
def test_the_fallback_brackets_the_optimum(problem: PlanningProblem) -> None:
    coefficients = coefficients_of(problem)
    plan = planned(compile_plan(problem, 1.5))
    assert upper_bound(coefficients, 1.5) >= plan.objective - 1e-9
    assert evaluate(coefficients, incumbent(coefficients, 1.5), 1.5).objective <= plan.objective + 1e-7


@pytest.mark.parametrize(("solver", "said"), [("auto", "exact"), ("cbc", "fallback")])
def test_without_time_there_is_a_plan_with_its_proven_gap(solver: Solver, said: str) -> None:
    """A limit of 0 s is the one that no machine is fast enough for."""
    problem = linked_problem(60)
    hurried = planned(compile_plan(problem, 0.0, time_limit_s=0, solver=solver))
    patient = planned(compile_plan(problem, 0.0, time_limit_s=60))
    assert hurried.solver == said
    assert hurried.objective <= patient.objective + 1e-7
    assert 0 < hurried.gap < 0.1
    assert hurried.objective + hurried.gap * abs(hurried.objective) >= patient.objective - 1e-7
    assert verify_plan(problem, hurried) == ()


def test_an_incumbent_carries_its_distance_to_the_bound() -> None:
    coefficients = coefficients_of(linked_problem(4))
    choice = incumbent(coefficients, 0.0)
    best = evaluate(coefficients, choice, 0.0).objective
    plan = decode(coefficients, Solution(choice=choice, solver="cbc", bound=best * 1.05), 0.0)
    assert plan.gap == pytest.approx(0.05)


def test_the_solvers_own_bound_is_read_from_its_log() -> None:
    log = "Result - Stopped on time limit\n\nObjective value:  251.867\nUpper bound:      267.440\nGap: -0.06\n"
    assert logged_bound(log) == pytest.approx(0.26744)
    assert logged_bound("Result - Stopped on time limit\n") == float("inf")


def test_one_node_workflow_and_timer() -> None:
    ticks = iter([1.0, 4.0, 10.0, 12.0, 12.5])
    problem = PlanningProblem(workflow=workflow(llm("only")), catalog=h200_catalog(), profiles=profile_set([pair()]))
    plan = planned(compile_plan(problem, 0.0, timer=lambda: next(ticks)))
    assert plan.solve_s == 2.5
    assert {"coefficients": 3.0, "decode": 0.5}.items() <= plan.phases_s.items()
    assert plan.pruning["columns"] == plan.pruning["points"] == plan.pruning["kept"] == 1
    assert plan.assignment["only"].label == f"{LARGE}.none"
    assert coefficients_of(problem).nodes["only"].rho == 1.0


def test_a_workflow_of_tools_needs_no_solve() -> None:
    problem = PlanningProblem(
        workflow=workflow(tool("a", 2.0), tool("b", 3.0), edges=[("a", "b")]),
        catalog=h200_catalog(),
        profiles=profile_set([pair()]),
    )
    plan = planned(compile_plan(problem, 1.5))
    assert (plan.assignment, plan.solver, plan.makespan_s, plan.dominant_model) == ({}, "none", 5.0, None)
    assert (plan.estimated_quality, plan.objective) == (1.0, 0.0)
    assert verify_plan(problem, plan) == ()


def test_every_unplannable_node_is_named_with_a_remedy() -> None:
    problem = PlanningProblem(
        workflow=workflow(llm("a", "dancing"), llm("b", models=("gpt-9",)), llm("c")),
        catalog=h200_catalog(),
        profiles=profile_set([pair()]),
    )
    result = compile_plan(problem, 0.0)
    assert isinstance(result, Infeasible)
    assert "node a" in result.reasons[0]
    assert "profiled skills: plan" in result.reasons[0]
    assert "node b" in result.reasons[1]
    assert "gpt-9" in result.reasons[1]
    assert len(result.reasons) == 2
    assert isinstance(compile_bundle(problem), Infeasible)


def test_a_free_fleet_has_no_cost_term() -> None:
    catalog = h200_catalog()
    free = replace(catalog, models=tuple(replace(m, price_in=0.0, price_out=0.0) for m in catalog.models))
    problem = PlanningProblem(workflow=workflow(llm("a")), catalog=free, profiles=profile_set([pair()]))
    plan = planned(compile_plan(problem, 0.0))
    assert plan.terms["cost"] == 0.0
    assert verify_plan(problem, plan) == ()


def test_compiling_in_threads_gives_the_same_plans_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    problem = linked_problem(8)
    alone = bundled(compile_bundle(problem))
    with ThreadPoolExecutor(4) as pool:
        bundles = [bundled(b) for b in pool.map(lambda _: compile_bundle(linked_problem(8)), range(4))]
    for bundle in bundles:
        assert [v.digest for v in bundle.variants] == [v.digest for v in alone.variants]
    assert list(tmp_path.iterdir()) == []


def test_the_digest_ignores_how_the_plan_was_found() -> None:
    plan: Plan = planned(compile_plan(linked_problem(4), 0.0))
    assert plan_digest(replace(plan, solve_s=9.0, solver="other", gap=0.1)) == plan.digest
    assert plan_digest(replace(plan, level=3.0)) != plan.digest
    assert Plan.from_json(plan.to_json()) == plan


def test_an_objective_that_no_number_holds_is_refused() -> None:
    problem = replace(linked_problem(2), weights=Weights(lambda_r=1e308, lambda_d=1e308))
    with pytest.raises(ValueError, match=r"node n0 has no finite gain at level 1000.0: use smaller weights"):
        compile_plan(problem, 1e3)


@pytest.mark.parametrize(("limit", "share"), [("max_cost=1e9", SHARE_WITH_CAPS), ("pin.*=*/none", 1.0)])
def test_where_there_are_caps_most_time_is_left_to_a_solver_that_knows_them(
    limit: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, given = replace(linked_problem(4), limits=parse_limits([limit])), list[float]()
    own = exact.solve

    def solve(coefficients: Coefficients, level: float, time_limit_s: float, **others: Any) -> tuple[Found, Choice]:
        given.append(time_limit_s)
        return own(coefficients, level, time_limit_s, **others)

    monkeypatch.setattr(exact, "solve", solve)
    assert planned(compile_plan(problem, 0.0, time_limit_s=1e6)).solver == "exact"
    assert given == [pytest.approx(share * 1e6, rel=1e-3)]


@pytest.mark.parametrize("level", [-1.0, float("inf"), float("nan")])
def test_a_level_has_to_be_a_finite_number_from_0(level: float) -> None:
    problem = PlanningProblem(workflow=workflow(llm("only")), catalog=h200_catalog(), profiles=profile_set([pair()]))
    with pytest.raises(ValueError, match="level must"):
        compile_plan(problem, level)
