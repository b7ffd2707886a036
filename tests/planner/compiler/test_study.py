"""Priced bundles on the templates of the simulation study (MATH.md, Priced bundles), and on the shipped workflows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.demo import demo_catalog
from planner.compiler.bundle import compile_bundle
from planner.compiler.certificate import verify_plan
from planner.compiler.menu import Column
from planner.compiler.plan import Bundle, Plan
from planner.compiler.pricing import PRICE_LEVELS, fleet_pricing
from planner.compiler.problem import PlanningProblem
from planner.data import load_profiles
from planner.data.demo import demo_workflows
from tests.planner.compiler.cases import bundled, coefficients_of
from tests.planner.compiler.study import LARGE, priced_problems, read_study

Bundles = list[tuple[PlanningProblem, Bundle]]


@pytest.fixture(scope="module")
def templates(shared_data: Path) -> Bundles:
    if not (shared_data / "study" / "study.json").is_file():
        pytest.skip("the study's inputs are not in shared/data")
    problems = priced_problems(read_study(shared_data)).values()
    return [(problem, bundled(compile_bundle(problem))) for problem in problems]


def column_s(column: Column) -> float:
    return sum(column.gpu_s.values())


def gpu_s(problem: PlanningProblem, plan: Plan) -> float:
    nodes = coefficients_of(problem).nodes
    columns = [nodes[node_id].column(chosen) for node_id, chosen in plan.assignment.items()]
    return sum(column_s(column) for column in columns if column is not None)


def over_the_cheapest(problem: PlanningProblem, bundle: Bundle) -> float:
    """GPU-seconds of the last variant over the least of any plan."""
    least = sum(min(map(column_s, node.columns)) for node in coefficients_of(problem).nodes.values())
    return gpu_s(problem, bundle.variants[-1]) / least


def test_every_bundle_of_the_study_contains_a_near_cheapest_plan(templates: Bundles) -> None:
    """Else one class idles in overload."""
    ratios = [over_the_cheapest(problem, bundle) for problem, bundle in templates]
    assert len(ratios) == 36
    assert max(ratios) < 1.05


def test_bundles_of_the_study_trade_the_classes_against_each_other(templates: Bundles) -> None:
    for problem, bundle in templates:
        dominant = [variant.dominant_model == LARGE for variant in bundle.variants]
        assert dominant == sorted(dominant, reverse=True), problem.workflow.name
        assert (dominant[0], dominant[-1]) == (True, False), problem.workflow.name


def test_plans_of_the_study_are_what_they_say(templates: Bundles) -> None:
    for problem, bundle in templates:
        assert bundle.variants[0].level == PRICE_LEVELS[0]
        assert [verify_plan(problem, variant) for variant in bundle.variants] == [()] * len(bundle.variants)


def test_priced_demo_bundles_end_with_a_near_cheapest_plan() -> None:
    catalog, profiles = demo_catalog(), load_profiles()
    for name, workflow in demo_workflows().items():
        problem = PlanningProblem(workflow=workflow, catalog=catalog, profiles=profiles, pricing=fleet_pricing(catalog))
        bundle = bundled(compile_bundle(problem))
        variants = bundle.variants
        assert over_the_cheapest(problem, bundle) < 1.1, name
        assert gpu_s(problem, variants[-1]) < 0.4 * gpu_s(problem, variants[0]), name
        assert [verify_plan(problem, variant) for variant in variants] == [()] * len(variants)
