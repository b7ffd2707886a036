"""The walkthrough of the paper's section 6, with the numbers that MATH.md fixes."""

from __future__ import annotations

from math import prod

import pytest

from planner.compiler.bundle import compile_bundle
from planner.compiler.certificate import verify_plan
from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Evaluation, evaluate
from planner.compiler.menu import Column
from planner.compiler.plan import Bundle
from tests.paper.compiler_walkthrough import B9, B27, walkthrough_problem

Branch = tuple[str, str]


@pytest.fixture(scope="module")
def coefficients() -> Coefficients:
    built = walkthrough_problem().coefficients
    assert isinstance(built, Coefficients)
    return built


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    compiled = compile_bundle(walkthrough_problem())
    assert isinstance(compiled, Bundle)
    return compiled


def column(coefficients: Coefficients, node: str, branch: Branch) -> Column:
    found = (c for c in coefficients.nodes[node].columns if (c.implementation.model, c.implementation.policy) == branch)
    return next(found)


def complete_plan(coefficients: Coefficients, c: Branch, d: Branch) -> Evaluation:
    choice = {
        "P": coefficients.nodes["P"].columns[0],
        "C": column(coefficients, "C", c),
        "D": column(coefficients, "D", d),
        "A": coefficients.nodes["A"].columns[0],
    }
    return evaluate(coefficients, choice, 0.0)


@pytest.mark.parametrize(
    ("c", "d", "fork_s", "branches_s", "estimate"),
    [
        ((B27, "none"), (B9, "verified"), 10, 17, 0.89),
        ((B27, "verified"), (B9, "verified"), 14, 21, 0.89),
        ((B9, "none"), (B9, "none"), 6, 10, 0.81),
        ((B9, "none"), (B9, "verified"), 7, 13, 0.84),
    ],
)
def test_the_complete_plans(
    coefficients: Coefficients, c: Branch, d: Branch, fork_s: float, branches_s: float, estimate: float
) -> None:
    """Fork latency, branch-duration sum and estimated quality; P, R and A add 3 s in series."""
    plan = complete_plan(coefficients, c, d)
    assert max(plan.durations_s["C"], plan.durations_s["D"]) == pytest.approx(fork_s)
    assert plan.durations_s["C"] + plan.durations_s["D"] == pytest.approx(branches_s)
    assert plan.makespan_s == pytest.approx(fork_s + 3)
    assert round(plan.estimated_quality, 2) == estimate


def test_the_implementations_cost_what_the_fixture_says(coefficients: Coefficients) -> None:
    costs = {
        ("C", B27, "none"): 27,
        ("C", B27, "verified"): 37.8,
        ("C", B9, "none"): 9,
        ("C", B9, "verified"): 13.5,
        ("D", B9, "none"): 5.4,
        ("D", B9, "verified"): 9.45,
        ("D", B27, "none"): 16.2,
    }
    for (node, model, policy), cost in costs.items():
        assert column(coefficients, node, (model, policy)).cost == pytest.approx(cost)
    shared = [coefficients.nodes[node] for node in ("P", "A")]
    assert [node.columns[0].cost for node in shared] == pytest.approx([2.7, 2.7])
    assert prod(1 - node.residual_risk(node.columns[0]) for node in shared) == pytest.approx(0.99)
    assert (coefficients.nodes["C"].vulnerability, coefficients.nodes["D"].vulnerability) == (0.28, 0.41)


def test_the_bundle(bundle: Bundle) -> None:
    """pi(0), which level 1.5 keeps: C on 27B plain, D on 9B verified. Level 3: both on 9B plain."""
    labels = [(plan.assignment["C"].label, plan.assignment["D"].label) for plan in bundle.variants]
    assert labels == [("27b.none", "9b.verified"), ("9b.none", "9b.none")]
    assert [plan.level for plan in bundle.variants] == [0.0, 3.0]
    assert [round(plan.estimated_quality, 2) for plan in bundle.variants] == [0.89, 0.81]


def test_the_dominant_models_are_27b_then_9b(bundle: Bundle) -> None:
    assert [plan.dominant_model for plan in bundle.variants] == [B27, B9]
    assert dict(bundle.variants[0].demand) == pytest.approx({B27: 10, B9: 9})
    assert dict(bundle.variants[1].demand) == pytest.approx({B9: 12})


def test_both_plans_carry_a_clean_certificate(bundle: Bundle) -> None:
    problem = walkthrough_problem()
    assert [verify_plan(problem, plan) for plan in bundle.variants] == [(), ()]
