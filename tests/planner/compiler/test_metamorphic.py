"""Problems changed in ways that must not change the optimum, or change it in a known way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.evaluate import Choice, Evaluation, evaluate
from planner.compiler.limits import Limits
from planner.compiler.plan import Implementation, Plan
from planner.compiler.pricing import fleet_pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import PairProfile
from planner.compiler.solve import compile_coefficients, compile_plan
from planner.compiler.weights import Weights
from planner.compiler.workflow import Node, ToolNode
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    coefficients_of,
    pair,
    planned,
    problems,
    tool,
    with_pairs,
)
from tests.sampling import sampled

LEVELS = st.sampled_from([0.0, 1.5, 6.0])
PROBLEMS = st.builds(
    lambda problem, lambda_l: replace(problem, weights=replace(problem.weights, lambda_l=lambda_l)),
    problems(max_nodes=7, min_nodes=4),
    st.sampled_from([0.05, 0.4, 2.0]),
)
"""With weights of latency that range from little to most of the objective."""
FACTORS = st.sampled_from([0.01, 0.125, 8.0, 10.0])
Names = Callable[[str], str]


def evaluated(problem: PlanningProblem, plan: Plan, names: Names = str) -> Evaluation:
    """The plan of another problem in this one; `names` gives this one's node ids theirs."""
    coefficients = coefficients_of(problem)
    columns = {n: node.column(plan.assignment[names(n)]) for n, node in coefficients.nodes.items()}
    choice: Choice = {node_id: column for node_id, column in columns.items() if column is not None}
    return evaluate(coefficients, choice, plan.level)


def check_same_optimum(
    problem: PlanningProblem, changed: PlanningProblem, level: float, names: Names = str
) -> tuple[Plan, Plan]:
    """Equal objectives, and the plan of either is optimal in the other one: equal up to ties."""
    one, other = (planned(compile_plan(p, level)) for p in (problem, changed))
    assert other.objective == pytest.approx(one.objective, abs=1e-9)
    assert evaluated(problem, other, names).objective == pytest.approx(one.objective, abs=1e-9)
    return one, other


@sampled(40)
@given(problem=PROBLEMS, level=LEVELS, factor=FACTORS)
def test_prices_in_another_currency(problem: PlanningProblem, level: float, factor: float) -> None:
    """K is relative to the reference plan's."""
    models = tuple(
        replace(model, price_in=factor * model.price_in, price_out=factor * model.price_out)
        for model in problem.catalog.models
    )
    changed = replace(problem, catalog=replace(problem.catalog, models=models, version="other currency"))
    one, other = check_same_optimum(problem, changed, level)
    if factor in (0.125, 8.0):
        assert other.assignment == one.assignment


@sampled(40)
@given(problem=PROBLEMS, level=LEVELS, factor=st.sampled_from([0.01, 0.5, 8.0, 10.0]))
def test_time_in_another_unit(problem: PlanningProblem, level: float, factor: float) -> None:
    """T and D are relative to the reference plan's; tools take as much longer, by factors that keep two digits."""
    backends = tuple(
        replace(
            backend,
            rates=replace(
                backend.rates,
                decode_tokens_per_s=backend.rates.decode_tokens_per_s / factor,
                prefill_base_s=backend.rates.prefill_base_s * factor,
                prefill_per_token_s=backend.rates.prefill_per_token_s * factor,
            ),
        )
        for backend in problem.catalog.backends
    )
    nodes = tuple(
        replace(node, expected_s=factor * node.expected_s) if isinstance(node, ToolNode) else node
        for node in problem.workflow.nodes
    )
    changed = replace(
        problem,
        catalog=replace(problem.catalog, backends=backends, version="other unit"),
        workflow=replace(problem.workflow, nodes=nodes),
    )
    _, other = check_same_optimum(problem, changed, level)
    assert other.makespan_s == pytest.approx(factor * evaluated(problem, other).makespan_s)


@sampled(40)
@given(problem=PROBLEMS, level=LEVELS, data=st.data())
def test_other_names_in_another_order(problem: PlanningProblem, level: float, data: st.DataObject) -> None:
    old = problem.workflow
    names = {node.id: f"x{i}" for i, node in enumerate(data.draw(st.permutations(old.nodes)))}
    nodes: list[Node] = [replace(node, id=names[node.id]) for node in data.draw(st.permutations(old.nodes))]
    edges = [(names[source], names[target]) for source, target in data.draw(st.permutations(old.edges))]
    graph = replace(old, nodes=tuple(nodes), edges=tuple(edges), output=names[old.output])
    check_same_optimum(problem, replace(problem, workflow=graph), level, names.__getitem__)


@sampled(40)
@given(problem=PROBLEMS, level=LEVELS, factor=st.sampled_from([0.01, 4.0, 7.0, 1000.0]))
def test_an_objective_in_another_unit(problem: PlanningProblem, level: float, factor: float) -> None:
    """All of it scaled: by the weights, and by rho for the quality term, which has none."""
    w, coefficients = problem.weights, coefficients_of(problem)
    scaled = replace(
        coefficients,
        problem=replace(problem, weights=Weights(**{name: factor * getattr(w, name) for name in w.__slots__})),
        nodes={n: replace(node, rho=factor * node.rho) for n, node in coefficients.nodes.items()},
    )
    one, other = (planned(compile_coefficients(c, level)) for c in (coefficients, scaled))
    assert (one.gap, other.gap) == (0.0, 0.0)
    assert other.objective == pytest.approx(factor * one.objective, rel=1e-9)
    assert factor * evaluated(problem, other).objective == pytest.approx(other.objective, rel=1e-9)


@sampled(40)
@given(problem=PROBLEMS, level=LEVELS, data=st.data())
def test_an_implementation_that_is_dominated(problem: PlanningProblem, level: float, data: st.DataObject) -> None:
    """`debate` takes the middle class at least four times its plain call, and is right no more often."""
    worst = min(problem.profiles.pairs, key=lambda p: p.quality).quality
    longest = max(call.output_tokens for p in problem.profiles.pairs for call in p.calls)
    added = [
        pair(skill, MIDDLE, "debate", data.draw(st.sampled_from([worst, worst / 2])), output_tokens=longest)
        for skill in problem.profiles.skills
    ]
    changed = with_pairs(problem, [*problem.profiles.pairs, *added])
    one, other = (planned(compile_plan(p, level)) for p in (problem, changed))
    assert all(len(n.columns) == 7 for n in coefficients_of(changed).nodes.values())
    assert other.objective == one.objective
    assert other.assignment == one.assignment


@sampled(40)
@given(problem=PROBLEMS, level=LEVELS)
def test_what_the_plan_does_not_use_may_go(problem: PlanningProblem, level: float) -> None:
    """All but the largest class's, which the references are made of."""
    one = planned(compile_plan(problem, level))
    skill_of = {node.id: node.skill for node in problem.workflow.llm_nodes}
    used = {(skill_of[n], impl.model, impl.policy) for n, impl in one.assignment.items()}

    def kept(profile: PairProfile) -> bool:
        return profile.model == LARGE or (profile.skill, profile.model, profile.policy) in used

    changed = with_pairs(problem, filter(kept, problem.profiles.pairs))
    check_same_optimum(problem, changed, level)


@sampled(40)
@given(problem=PROBLEMS, level=LEVELS, data=st.data())
def test_a_tool_that_takes_no_time_on_an_edge(problem: PlanningProblem, level: float, data: st.DataObject) -> None:
    """With beta = 0 and one vulnerability: the tool changes neither reach nor any node's place."""
    problem = replace(problem, weights=replace(problem.weights, beta=0.0))
    graph = problem.workflow
    on = data.draw(st.lists(st.sampled_from(graph.edges), unique=True)) if graph.edges else []
    tools = [tool(f"t{i}", 0.0) for i in range(len(on))]
    edges = [edge for edge in graph.edges if edge not in on]
    edges += [pair for t, (a, b) in zip(tools, on, strict=True) for pair in ((a, t.id), (t.id, b))]
    changed = replace(problem, workflow=replace(graph, nodes=(*graph.nodes, *tools), edges=tuple(edges)))
    check_same_optimum(problem, changed, level)


def as_pattern(used: Implementation) -> str:
    return f"{used.model}/{used.policy}/{used.backend}"


@sampled(40)
@given(problem=PROBLEMS, level=LEVELS, data=st.data(), priced=st.booleans())
def test_pinned_to_what_is_best(problem: PlanningProblem, level: float, data: st.DataObject, priced: bool) -> None:
    problem = replace(problem, pricing=fleet_pricing(problem.catalog)) if priced else problem
    best = planned(compile_plan(problem, level))
    pinned = data.draw(st.sets(st.sampled_from(sorted(best.assignment))))
    limits = Limits(pinned={node: (as_pattern(best.assignment[node]),) for node in pinned})
    _, other = check_same_optimum(problem, replace(problem, limits=limits), level)
    assert all(other.assignment[node] == best.assignment[node] for node in pinned)


@sampled(40)
@given(problem=PROBLEMS, level=LEVELS, data=st.data())
def test_pinned_to_anything_else_is_no_better(problem: PlanningProblem, level: float, data: st.DataObject) -> None:
    best = planned(compile_plan(problem, level))
    node = data.draw(st.sampled_from(sorted(best.assignment)))
    others = [column.implementation for column in coefficients_of(problem).nodes[node].columns]
    implementation = data.draw(st.sampled_from(others))
    limits = Limits(pinned={node: (as_pattern(implementation),)})
    plan = planned(compile_plan(replace(problem, limits=limits), level))
    assert plan.assignment[node] == implementation
    assert plan.objective <= best.objective + 1e-9
    assert evaluated(problem, plan).objective == pytest.approx(plan.objective, abs=1e-9)
