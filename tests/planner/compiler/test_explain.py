"""Alternatives are priced on the whole DAG; slack says what a branch may take for free."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.evaluate import Choice, Solution, evaluate
from planner.compiler.explain import alternatives, branch_slack, explain, explain_plan
from planner.compiler.limits import Limits
from planner.compiler.plan import Plan
from planner.compiler.pricing import Pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan, decode
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    SMALL,
    coefficients_of,
    h200_catalog,
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
            assert set(alternative.terms) == set(plan.terms)
            for name, change in alternative.terms.items():
                assert change == pytest.approx(then.terms[name] - plan.terms[name], abs=1e-9)
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


# --- The whole plan --------------------------------------------------------------------------------------------------


def random_plan(problem: PlanningProblem, data: st.DataObject) -> tuple[Choice, Plan]:
    """Any plan of the problem, mostly far from optimal."""
    coefficients = coefficients_of(problem)
    choice = {n: data.draw(st.sampled_from(node.columns)) for n, node in coefficients.nodes.items()}
    return choice, decode(coefficients, Solution(choice=choice, solver="any"), 1.5)


@sampled(40)
@given(problem=problems(max_nodes=6), data=st.data())
def test_the_critical_path_is_a_longest_path(problem: PlanningProblem, data: st.DataObject) -> None:
    _, plan = random_plan(problem, data)
    explained, graph = explain_plan(problem, plan), problem.workflow
    path = explained.critical_path
    assert all(edge in graph.edges for edge in pairwise(path))
    assert sum(plan.durations_s[n] for n in path) == pytest.approx(plan.makespan_s)
    assert set(path) <= set(explained.critical)
    for node in graph.nodes:
        longer = {**plan.durations_s, node.id: plan.durations_s[node.id] + 0.5}
        grows = longest_path_by_enumeration(graph, longer) > plan.makespan_s + max(0.0, 0.5 - 1e-6)
        assert grows == (node.id in explained.critical)


@sampled(40)
@given(problem=problems(max_nodes=6), data=st.data())
def test_verification_is_the_plan_against_the_plan_without(problem: PlanningProblem, data: st.DataObject) -> None:
    choice, plan = random_plan(problem, data)
    coefficients, explained = coefficients_of(problem), explain_plan(problem, plan)
    plain = {}
    for node in explained.nodes:
        model = node.chosen.model
        columns = coefficients.nodes[node.node].columns
        plain[node.node] = next(
            c for c in columns if (c.implementation.model, c.implementation.policy) == (model, "none")
        )
        assert (node.verification is None) == (node.chosen.policy == "none")
        if node.verification is None:
            continue
        without = evaluate(coefficients, {**choice, node.node: plain[node.node]}, 1.5)
        assert node.verification.plain == plain[node.node].implementation
        assert node.verification.node_s == pytest.approx(choice[node.node].duration_s - plain[node.node].duration_s)
        assert node.verification.makespan_s == pytest.approx(plan.makespan_s - without.makespan_s, abs=1e-9)
        assert node.verification.without_makespan_s == pytest.approx(without.makespan_s)
        assert node.verification.objective == pytest.approx(plan.objective - without.objective, abs=1e-9)
        gained = plan.estimated_quality - without.estimated_quality
        assert node.verification.estimated_quality == pytest.approx(gained, abs=1e-9)
    all_plain = evaluate(coefficients, plain, 1.5)
    assert explained.verification.nodes == tuple(n for n, i in plan.assignment.items() if i.policy != "none")
    assert explained.verification.makespan_s == pytest.approx(plan.makespan_s - all_plain.makespan_s, abs=1e-9)
    assert explained.verification.cost == pytest.approx(plan.cost - all_plain.cost, abs=1e-9)


def test_where_none_is_not_legal_verification_is_priced_against_the_cheapest_policy() -> None:
    pairs = [pair(model=MIDDLE, policy=name, quality=q) for name, q in (("self_check", 0.8), ("debate", 0.9))]
    problem = PlanningProblem(workflow=workflow(llm("n")), catalog=h200_catalog(), profiles=profile_set(pairs))
    coefficients = coefficients_of(problem)
    policies = {}
    for column in coefficients.nodes["n"].columns:
        plan = decode(coefficients, Solution(choice={"n": column}, solver="any"), 0.0)
        policies[column.implementation.policy] = explain_plan(problem, plan).nodes[0].verification
    assert policies["self_check"] is None
    assert policies["debate"] is not None
    assert policies["debate"].plain.policy == "self_check"


def test_a_priced_plan_is_explained_by_its_own_terms() -> None:
    prices = dict.fromkeys([SMALL, MIDDLE, LARGE], 0.05)
    problem = replace(fork(), pricing=Pricing(prices=prices))
    explained = explain_plan(problem, planned(compile_plan(problem, 0.1)))
    for node in explained.nodes:
        for alternative in node.alternatives:
            assert set(alternative.terms) == {"log_quality", "gpu", "latency"}
            assert alternative.objective == pytest.approx(sum(alternative.terms.values()))
            assert alternative.objective <= 1e-9


@sampled(40)
@given(problem=problems(max_nodes=5), data=st.data())
def test_an_alternative_names_the_caps_that_it_would_break(problem: PlanningProblem, data: st.DataObject) -> None:
    _, plan = random_plan(problem, data)
    cost, seconds, quality = (
        value * data.draw(st.sampled_from([0.9, 1.0, 1.1]))
        for value in (plan.cost, plan.makespan_s, plan.estimated_quality)
    )
    limits = Limits(max_cost=cost, max_makespan_s=seconds, min_quality=min(1.0, quality))
    for node in explain_plan(replace(problem, limits=limits), plan).nodes:
        for other in node.alternatives:
            broken = {
                "max_cost": plan.cost + other.cost > cost * (1 + 1e-9),
                "max_makespan_s": plan.makespan_s + other.makespan_s > seconds * (1 + 1e-9),
                "min_quality": plan.estimated_quality + other.estimated_quality < min(1.0, quality) * (1 - 1e-9),
            }
            assert other.breaks == tuple(name for name, breaks in broken.items() if breaks)


def test_without_caps_nothing_is_broken() -> None:
    problem = fork()
    explained = explain_plan(problem, planned(compile_plan(problem, 0.0)))
    assert {other.breaks for node in explained.nodes for other in node.alternatives} == {()}


def test_a_workflow_of_tools_is_explained_too() -> None:
    graph = workflow(tool("a", 2.0), tool("b", 1.0), tool("c", 3.0), edges=[("a", "c"), ("b", "c")])
    problem = PlanningProblem(workflow=graph, catalog=h200_catalog(), profiles=profile_set([pair()]))
    explained = explain_plan(problem, planned(compile_plan(problem, 0.0)))
    assert explained.nodes == ()
    assert explained.verification.nodes == ()
    assert explained.critical_path == explained.critical == ("a", "c")
    assert explained.slack_s["b"] == 1.0
    assert explained.verification.makespan_s == 0.0


def test_equal_branches_are_both_critical_and_the_first_is_the_path() -> None:
    graph = workflow(tool("a", 2.0), tool("b", 2.0), tool("c", 1.0), edges=[("a", "c"), ("b", "c")])
    problem = PlanningProblem(workflow=graph, catalog=h200_catalog(), profiles=profile_set([pair()]))
    explained = explain_plan(problem, planned(compile_plan(problem, 0.0)))
    assert explained.critical == ("a", "b", "c")
    assert explained.critical_path == ("a", "c")


def test_the_json_form_holds_everything_and_hostile_names() -> None:
    name = 'long"</script>\u2028\x00'
    pairs = [pair(policy="none"), pair(policy="self_check", quality=0.9), pair(model=MIDDLE)]
    problem = PlanningProblem(workflow=workflow(llm(name)), catalog=h200_catalog(), profiles=profile_set(pairs))
    explained = explain_plan(problem, planned(compile_plan(problem, 0.0)))
    data = json.loads(json.dumps(explained.to_json(), allow_nan=False))
    assert data["critical_path"] == [name]
    (node,) = data["nodes"]
    assert (node["node"], node["critical"], len(node["alternatives"])) == (name, True, 3)
    assert sum(node["alternatives"][1]["terms"].values()) == pytest.approx(node["alternatives"][1]["objective"])
    assert data["objective"] == pytest.approx(sum(data["terms"].values()))
    (short,) = explained.to_json(most=0)["nodes"]
    assert [a["chosen"] for a in short["alternatives"]] == [True]


def test_hundreds_of_nodes_are_explained_like_one() -> None:
    pairs = [pair(policy=p, quality=q) for p, q in (("none", 0.8), ("self_check", 0.85), ("debate", 0.9))]
    graph = workflow(*(llm(f"n{i}") for i in range(300)), edges=[(f"n{i}", f"n{i + 1}") for i in range(299)])
    problem = PlanningProblem(workflow=graph, catalog=h200_catalog(), profiles=profile_set(pairs, 0.01))
    explained = explain_plan(problem, planned(compile_plan(problem, 0.0)))
    assert len(explained.critical_path) == len(explained.nodes) == 300
    one = alternatives(problem, planned(compile_plan(problem, 0.0)), "n299")
    assert explained.nodes[-1].alternatives == one
