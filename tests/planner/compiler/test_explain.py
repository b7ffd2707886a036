"""Alternatives are priced on the whole DAG; slack says what a branch may take for free."""

from __future__ import annotations

import pytest
from hypothesis import given

from planner.compiler.evaluate import evaluate
from planner.compiler.explain import alternatives, branch_slack, explain
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    coefficients_of,
    h200_catalog,
    llm,
    pair,
    planned,
    problems,
    profile_set,
    workflow,
)
from tests.sampling import sampled


def fork() -> PlanningProblem:
    """A long and a short branch that end together."""
    pairs = [
        pair("long", LARGE, "none", 0.8, output_tokens=1000),
        pair("short", LARGE, "none", 0.8, output_tokens=100),
        pair("short", LARGE, "self_check", 0.802, output_tokens=100),
        pair("end", MIDDLE, "none", 0.9),
        pair("end", LARGE, "none", 0.95),
    ]
    graph = workflow(
        llm("long", "long"), llm("short", "short"), llm("end", "end"), edges=[("long", "end"), ("short", "end")]
    )
    return PlanningProblem(workflow=graph, catalog=h200_catalog(), profiles=profile_set(pairs))


def test_verification_inside_the_slack_costs_no_time() -> None:
    problem = fork()
    plan = planned(compile_plan(problem, 0.0))
    assert plan.assignment["short"].policy == "none"
    chosen, other = alternatives(problem, plan, "short")
    assert chosen.chosen
    assert not other.chosen
    assert other.implementation.policy == "self_check"
    assert other.makespan_s == 0.0
    assert other.node_quality == pytest.approx(0.002)
    assert other.estimated_quality > 0
    assert other.cost > 0
    assert other.demand > 0
    assert other.objective < 0


def test_slack_is_the_difference_of_the_branches() -> None:
    problem = fork()
    plan = planned(compile_plan(problem, 0.0))
    slack = branch_slack(problem, plan)
    assert slack["long"] == slack["end"] == 0.0
    assert slack["short"] == pytest.approx(plan.durations_s["long"] - plan.durations_s["short"])


def test_one_explanation_per_node_with_the_best_other_implementation() -> None:
    problem = fork()
    explained = {e.node: e for e in explain(problem, planned(compile_plan(problem, 0.0)))}
    assert list(explained) == ["long", "short", "end"]
    assert explained["long"].best is None
    assert explained["end"].chosen.label == f"{LARGE}.none"
    best = explained["end"].best
    assert best is not None
    assert best.implementation.label == f"{MIDDLE}.none"
    assert best.makespan_s < 0 < -best.node_quality


@sampled(15)
@given(problem=problems())
def test_no_single_change_improves_an_optimal_plan(problem: PlanningProblem) -> None:
    plan = planned(compile_plan(problem, 1.5))
    for node in problem.workflow.llm_nodes:
        found = alternatives(problem, plan, node.id)
        assert len(found) == len(coefficients_of(problem).nodes[node.id].columns)
        assert found[0].objective <= 1e-7
        assert [a.objective for a in found if a.chosen] == [0.0]


@sampled(25)
@given(problem=problems(max_nodes=6))
def test_changes_are_those_of_the_whole_plan_evaluated_again(problem: PlanningProblem) -> None:
    coefficients = coefficients_of(problem)
    plan = planned(compile_plan(problem, 1.5))
    chosen = {n: coefficients.nodes[n].column(impl) for n, impl in plan.assignment.items()}
    choice = {n: column for n, column in chosen.items() if column is not None}
    for node_id, node in coefficients.nodes.items():
        for alternative in alternatives(problem, plan, node_id):
            column = node.column(alternative.implementation)
            assert column is not None
            then = evaluate(coefficients, {**choice, node_id: column}, 1.5)
            assert alternative.makespan_s == pytest.approx(then.makespan_s - plan.makespan_s, abs=1e-9)
            assert alternative.objective == pytest.approx(then.objective - plan.objective, abs=1e-9)
            assert alternative.estimated_quality == pytest.approx(
                then.estimated_quality - plan.estimated_quality, abs=1e-9
            )
            assert alternative.cost == pytest.approx(then.cost - plan.cost, abs=1e-9)
            assert alternative.demand == pytest.approx(sum(then.demand.values()) - plan.total_demand, abs=1e-9)


def test_foreign_plans_and_nodes_are_refused() -> None:
    problem = fork()
    plan = planned(compile_plan(problem, 0.0))
    with pytest.raises(ValueError, match="no LLM node"):
        alternatives(problem, plan, "nowhere")
    without = PlanningProblem(
        workflow=problem.workflow,
        catalog=problem.catalog,
        profiles=profile_set([p for p in problem.profiles.pairs if p.key != ("end", LARGE, "none", None, False)]),
    )
    with pytest.raises(ValueError, match="node end is not legal"):
        alternatives(without, plan, "end")
