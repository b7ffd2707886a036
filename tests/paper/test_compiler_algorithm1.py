"""Algorithm 1 (paper 4.4): coefficients once, pi(0) at the smallest level, one more solve per further level."""

from __future__ import annotations

import pytest

from planner.compiler import problem as problem_module
from planner.compiler.bundle import LEVELS, compile_bundle, initial_bundle
from planner.compiler.coefficients import Coefficients, build_coefficients
from planner.compiler.plan import Bundle, Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan
from tests.paper.compiler_walkthrough import walkthrough_problem


def compiled(problem: PlanningProblem, level: float) -> Plan:
    plan = compile_plan(problem, level)
    assert isinstance(plan, Plan)
    return plan


def test_the_bundle_is_one_solve_per_level_with_equal_assignments_kept_once() -> None:
    problem = walkthrough_problem()
    plans = [compiled(problem, level) for level in LEVELS]
    bundle = compile_bundle(problem)
    assert isinstance(bundle, Bundle)
    assert plans[0].assignment == plans[1].assignment != plans[2].assignment
    assert [plan.digest for plan in bundle.variants] == [plans[0].digest, plans[2].digest]
    assert bundle.complete


def test_pi0_is_the_solve_at_the_smallest_level_whatever_the_order() -> None:
    problem = walkthrough_problem()
    bundle = compile_bundle(problem, (3.0, 0.0, 1.5, 0.0))
    assert isinstance(bundle, Bundle)
    assert bundle.variants[0].level == 0.0
    assert [plan.level for plan in bundle.variants] == [0.0, 3.0]


def test_execution_starts_on_pi0_and_the_variants_join_it_unchanged() -> None:
    problem = walkthrough_problem()
    first = compiled(problem, 0.0)
    started = initial_bundle(problem, first)
    assert not started.complete
    assert started.variants == (first,)
    completed = compile_bundle(problem, first=first)
    assert isinstance(completed, Bundle)
    assert completed.key == started.key
    assert completed.variants[0] is first


def test_only_the_level_changes_across_the_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiles, rates and legality stay fixed: the coefficients are built once for the whole bundle."""
    built = []

    def counting(problem: PlanningProblem) -> Coefficients | Infeasible:
        built.append(problem)
        return build_coefficients(problem)

    monkeypatch.setattr(problem_module, "build_coefficients", counting)
    compile_bundle(walkthrough_problem())
    assert len(built) == 1


def test_every_variant_carries_the_annotations_that_the_runtime_selects_by() -> None:
    bundle = compile_bundle(walkthrough_problem())
    assert isinstance(bundle, Bundle)
    for plan in bundle.variants:
        assert set(plan.assignment) == {"P", "C", "D", "A"}
        assert set(plan.durations_s) == {"P", "C", "D", "R", "A"}
        assert plan.dominant_model == max(plan.demand, key=lambda name: plan.demand[name])
        assert set(plan.versions) == {"profiles", "catalog", "policies"}
        assert (plan.solver, plan.gap) == ("exact", 0.0)
        assert plan.solve_s > 0
        assert 0 < plan.estimated_quality < 1
