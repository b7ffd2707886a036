from __future__ import annotations

import pytest

from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Solution
from planner.compiler.explain import explain_plan
from planner.compiler.limits import Limits
from planner.compiler.plan import Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan, decode
from planner.presenters.why import PAGE_SIZE, WhyView, added_seconds, alternatives_page, why_view
from tests.paper.compiler_walkthrough import B9, B27, walkthrough_problem
from tests.planner.pages.samples import chain, fork_join, problem


def _solved(given: PlanningProblem, level: float = 0.0) -> Plan:
    plan = compile_plan(given, level)
    assert isinstance(plan, Plan)
    return plan


def _view(given: PlanningProblem, plan: Plan) -> WhyView:
    return why_view(explain_plan(given, plan), plan, given.workflow)


def test_every_llm_node_has_its_best_alternative_priced_by_term() -> None:
    given = problem(fork_join())
    view = _view(given, _solved(given))

    assert [row.node for row in view.rows] == ["source", "left", "end"]
    assert view.terms == ("quality", "risk", "latency", "cost", "demand")
    for row in view.rows:
        assert row.best is not None
        assert len(row.best.prices) == len(view.terms)
        # pi(0) is optimal: what loses least still loses.
        assert row.best.objective.tone == "bad"
    assert (view.better, view.ruled_out) == (0, 0)


def test_the_critical_path_is_listed_and_handed_to_the_graph() -> None:
    given = problem(fork_join())
    view = _view(given, _solved(given))

    assert [step.node for step in view.path] == ["source", "left", "end"]
    assert all(step.is_llm for step in view.path)
    assert view.marks == {"nodes": ["source", "left", "end"], "edges": [["source", "left"], ["left", "end"]]}
    assert all(row.critical for row in view.rows)


@pytest.mark.parametrize(("model_of_c", "added"), [(B27, "+0.0 s"), (B9, "+1.0 s")])
def test_seconds_of_verification_stand_against_those_of_the_makespan(model_of_c: str, added: str) -> None:
    """Section 2.2: max(10,7)-max(10,4) = 0, then max(6,7)-max(6,4) = 1."""
    given = walkthrough_problem()
    coefficients = given.coefficients
    assert isinstance(coefficients, Coefficients)
    wanted = {"P": (B9, "none"), "C": (model_of_c, "none"), "D": (B9, "verified"), "A": (B9, "none")}
    choice = {
        node_id: next(c for c in node.columns if (c.implementation.model, c.implementation.policy) == wanted[node_id])
        for node_id, node in coefficients.nodes.items()
    }

    view = _view(given, decode(coefficients, Solution(choice=choice, solver="given"), 0.0))

    verified = {row.node: row.verification for row in view.rows if row.verification}
    assert list(verified) == ["D"]
    assert (verified["D"].node, verified["D"].makespan) == ("+3.0 s", added)
    assert view.verification is not None
    assert (view.verification.nodes, view.verification.together, view.verification.makespan) == (1, "+3.0 s", added)
    assert {row.node for row in view.rows if row.plain} == {"P", "C", "A"}


def test_seconds_are_written_in_one_unit() -> None:
    assert added_seconds(0.31, 0.0) == ("+310 ms", "+0 ms")
    assert added_seconds(1.25, -0.04) == ("+1.2 s", "+0.0 s")
    assert added_seconds(-2.0, -1.0) == ("−2.0 s", "−1.0 s")


def test_alternatives_come_a_page_at_a_time_best_first() -> None:
    given = problem(chain(2))
    explanation = explain_plan(given, _solved(given))
    total = len(explanation.nodes[0].alternatives)

    pages = []
    number: int | None = 1
    while number is not None:
        page = alternatives_page(given, explanation, "n0", number)
        assert page is not None
        pages.append(page)
        number = page.next

    assert len(pages) == -(-total // PAGE_SIZE) > 1
    assert sum(len(page.rows) for page in pages) == total
    assert pages[0].rows[0].chosen
    assert (pages[0].previous, pages[1].previous) == (None, 1)
    assert pages[0].profile_quality != pages[0].vulnerability
    for node, number in (("n0", 0), ("n0", 99), ("nobody", 1)):
        assert alternatives_page(given, explanation, node, number) is None


def test_a_better_alternative_that_a_cap_rules_out_names_the_cap() -> None:
    free = problem(chain(2))
    cost = _solved(free).cost
    given = PlanningProblem(
        workflow=free.workflow, catalog=free.catalog, profiles=free.profiles, limits=Limits(max_cost=0.6 * cost)
    )

    view = _view(given, _solved(given))

    assert view.ruled_out > 0
    assert any(row.best and row.best.breaks == "max_cost" for row in view.rows)
