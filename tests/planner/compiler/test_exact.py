"""The planner's own exact solver against brute force, against CBC, and against itself on changed instances."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.compiler import exact
from planner.compiler.bundle import compile_bundle
from planner.compiler.certificate import verify_plan
from planner.compiler.exact import labels, layers
from planner.compiler.exact.bound import improved, lagrangian_bound
from planner.compiler.exact.order import Order, Orders, decision_order
from planner.compiler.exact.passes import Explore, search
from planner.compiler.exact.points import points_of
from planner.compiler.exact.steps import steps_of
from planner.compiler.plan import Plan
from planner.compiler.pricing import fleet_pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import ACCEPTED_GAP, PROVED_UP_TO, compile_plan
from planner.compiler.weights import Weights
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    SMALL,
    best_objective,
    brute_force,
    bundled,
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
from tests.planner.compiler.dags import FOREVER, Instance, instances, optimum, value
from tests.sampling import sampled


@sampled(1000)
@given(instance=instances())
def test_the_search_finds_the_optimum_and_proves_it(instance: Instance) -> None:
    graph, fronts, price = instance
    found = search(Orders(graph), fronts, price, deadline=FOREVER)
    assert found.bound is None
    assert found.objective == pytest.approx(optimum(instance), abs=1e-9)
    assert value(instance, found.choice) == pytest.approx(found.objective, abs=1e-9)


@sampled(100)
@given(instance=instances())
def test_the_bound_comes_from_a_flow_and_is_no_lower_than_the_optimum(instance: Instance) -> None:
    graph, fronts, price = instance
    order = decision_order(graph)
    bound = lagrangian_bound(order, fronts, price)
    assert bound.value >= optimum(instance) - 1e-9
    assert sum(f for (_, after), f in bound.edge.items() if after < 0) == pytest.approx(price)
    for node in range(len(fronts)):
        out = sum(f for (m, _), f in bound.edge.items() if m == node)
        assert out == pytest.approx(bound.node[node], abs=1e-9)
        if order.predecessors[node]:
            assert sum(f for (_, n), f in bound.edge.items() if n == node) == pytest.approx(out, abs=1e-9)


@sampled(60)
@given(instance=instances(), data=st.data())
def test_neither_scale_nor_names_nor_the_nodes_order_matter(instance: Instance, data: st.DataObject) -> None:
    graph, fronts, price = instance
    best = search(Orders(graph), fronts, price, deadline=FOREVER).objective
    scaled = [[(7 * g, d, k) for g, d, k in front] for front in fronts]
    assert search(Orders(graph), scaled, 7 * price, deadline=FOREVER).objective == pytest.approx(7 * best)
    shuffled = data.draw(st.permutations(range(len(fronts))))
    renamed = workflow(*(llm(f"m{i}") for i in shuffled), edges=[(f"m{a[1:]}", f"m{b[1:]}") for a, b in graph.edges])
    again = search(Orders(renamed), [fronts[i] for i in shuffled], price, deadline=FOREVER)
    assert again.objective == pytest.approx(best, abs=1e-9)


@sampled(150)
@given(instance=instances(max_nodes=8), backward=st.booleans(), beam=st.sampled_from([1, 2, 1000]))
@pytest.mark.parametrize("explore", [labels.explore, layers.explore])
def test_both_searches_agree_with_every_plan_in_both_directions(
    explore: Explore, instance: Instance, backward: bool, beam: int
) -> None:
    """Without an incumbent nothing is ruled out but by the bounds."""
    graph, fronts, price = instance
    assume(price > 0)
    order, bound = decision_order(graph, backward=backward), lagrangian_bound(decision_order(graph), fronts, price)
    steps = steps_of(order, fronts, price, bound.backward() if backward else bound)
    best = optimum(instance)
    found = explore(order, fronts, steps, best - 0.5, beam, lambda: False)
    reached = best - 0.5 if found.better is None else found.better[0]
    assert reached <= best + 1e-9 <= max(reached, found.bound) + 2e-9
    if found.better is not None:
        assert value(instance, found.better[1]) == pytest.approx(reached, abs=1e-9)
    if beam == 1000:
        assert found.bound == float("-inf")
        assert reached == pytest.approx(best, abs=1e-9)


def narrow(patch: pytest.MonkeyPatch, beam: int) -> None:
    """The search with few labels, and no branching."""
    for name, width in {"SMALL_BEAM": beam, "BEAM": beam, "MOST_RELAXATIONS": 0}.items():
        patch.setattr(f"planner.compiler.exact.passes.{name}", width)


@sampled(60)
@given(instance=instances(max_points=2), beam=st.integers(1, 3))
def test_a_search_that_drops_plans_says_so_and_its_bound_holds(instance: Instance, beam: int) -> None:
    graph, fronts, price = instance
    with pytest.MonkeyPatch.context() as patch:
        narrow(patch, beam)
        found = search(Orders(graph), fronts, price, deadline=FOREVER)
    best = optimum(instance)
    assert found.objective <= best + 1e-9
    assert best - 1e-9 <= (found.objective if found.bound is None else found.bound)
    assert value(instance, found.choice) == pytest.approx(found.objective, abs=1e-9)


def test_improving_node_by_node_ends_where_time_is_so_dear_that_rounding_counts() -> None:
    """0.5 + 0.3 and 0.7 + 0.1 differ by rounding, which costs more at this price than the first node's points gain."""
    graph = workflow(*(llm(f"n{i}") for i in range(4)), edges=[("n0", "n2"), ("n0", "n3"), ("n1", "n3")])
    fronts = [
        [(1.6e-07, 0.4, 0), (2.1e-07, 0.5, 1)],
        [(7.4e-07, 0.7, 0)],
        [(3.3e-07, 0.3, 0)],
        [(7.5e-07, 0.1, 0)],
    ]
    looks = iter(range(100))
    improved(decision_order(graph), fronts, 1e9, [1, 0, 0, 0], lambda: next(looks) >= 99)
    assert next(looks) < 50


@sampled(40)
@given(instance=instances())
def test_without_time_there_is_a_plan_with_a_bound(instance: Instance) -> None:
    graph, fronts, price = instance
    found = search(Orders(graph), fronts, price, deadline=0.0, timer=lambda: 1.0)
    assert found.objective <= optimum(instance) + 1e-9 <= (found.objective, found.bound or FOREVER)[-1] + 2e-9


def test_a_zero_duration_tool_on_an_edge_changes_nothing() -> None:
    """True with beta = 0 and given vulnerabilities: the tool changes neither reach nor roles' numbers here."""
    pairs = [pair(model=name, policy=p, quality=q) for name, p, q in QUALITIES]
    plain = workflow(llm("a"), llm("b"), llm("c"), edges=[("a", "b"), ("a", "c"), ("b", "c")])
    with_tool = workflow(
        llm("a"), tool("t", 0.0), llm("b"), llm("c"), edges=[("a", "t"), ("t", "b"), ("a", "c"), ("b", "c")]
    )
    plans = [
        planned(
            compile_plan(
                PlanningProblem(
                    workflow=graph, catalog=h200_catalog(), profiles=profile_set(pairs), weights=Weights(beta=0.0)
                ),
                1.5,
            )
        )
        for graph in (plain, with_tool)
    ]
    assert plans[0].assignment == plans[1].assignment
    assert plans[0].objective == pytest.approx(plans[1].objective)


QUALITIES = [
    (SMALL, "none", 0.55),
    (SMALL, "self_refine", 0.6),
    (MIDDLE, "none", 0.7),
    (MIDDLE, "self_check", 0.74),
    (MIDDLE, "multi_critique", 0.78),
    (LARGE, "none", 0.85),
    (LARGE, "self_check", 0.88),
    (LARGE, "debate", 0.92),
]


def test_an_implementation_that_is_worse_in_everything_changes_nothing() -> None:
    """`debate` on the small class: slower, dearer and less often right than the same class alone."""
    graph = workflow(*(llm(f"n{i}") for i in range(6)), edges=[("n0", "n2"), ("n1", "n2"), ("n1", "n3"), ("n3", "n5")])
    pairs = [pair(model=name, policy=p, quality=q) for name, p, q in QUALITIES]
    worse = [*pairs, pair(model=SMALL, policy="debate", quality=0.3)]
    plans: list[Plan] = []
    for profiles in (pairs, worse):
        problem = PlanningProblem(workflow=graph, catalog=h200_catalog(), profiles=profile_set(profiles))
        plans.append(planned(compile_plan(problem, 0.0)))
    assert plans[0].assignment == plans[1].assignment
    assert plans[0].objective == plans[1].objective


@sampled(1000)
@given(
    problem=problems(max_nodes=5, min_nodes=3),
    level=st.sampled_from([0.0, 1.5, 3.0]),
    objective=st.sampled_from([0.05, 0.4, 2.0, None]),
)
def test_every_small_plan_is_the_best_of_all_assignments(
    problem: PlanningProblem, level: float, objective: float | None
) -> None:
    """By the paper's objective with three weights of latency, and by the priced one, whose levels are hundredths."""
    if objective is None:
        problem, level = replace(problem, pricing=fleet_pricing(problem.catalog)), level / 100
    else:
        problem = replace(problem, weights=Weights(lambda_l=objective))
    plan = planned(compile_plan(problem, level))
    assert (plan.solver, plan.gap) == ("exact", 0.0)
    assert plan.objective == pytest.approx(best_objective(coefficients_of(problem), level), abs=1e-9)


@sampled(25)
@given(problem=problems())
def test_the_fast_enumeration_is_the_slow_one(problem: PlanningProblem) -> None:
    coefficients = coefficients_of(problem)
    for level in (0.0, 3.0):
        slow = brute_force(coefficients, level).objective
        assert best_objective(coefficients, level) == pytest.approx(slow, abs=1e-12)


@sampled(25)
@given(problem=problems(max_nodes=8))
def test_cbc_finds_the_same_objective(problem: PlanningProblem) -> None:
    for level in (0.0, 1.5):
        ours, reference = (planned(compile_plan(problem, level, solver=s)) for s in ("auto", "cbc"))
        assert (ours.solver, ours.gap, reference.solver) == ("exact", 0.0, "cbc")
        assert ours.objective == pytest.approx(reference.objective, rel=1e-6)
        assert verify_plan(problem, ours) == ()


@sampled(25)
@given(problem=problems(max_nodes=6))
def test_points_are_the_front_of_the_coefficients_gains(problem: PlanningProblem) -> None:
    coefficients = coefficients_of(problem)
    for node_id, node in coefficients.nodes.items():
        front = points_of(coefficients, node_id, 1.5)
        for gain, duration, position in front:
            column = node.columns[position]
            assert gain == pytest.approx(coefficients.gain(node, column, 1.5), abs=1e-12)
            assert duration == column.duration_s
        assert front == sorted(front, key=lambda point: (point[0], point[1]))
        for column in node.columns:
            gain = coefficients.gain(node, column, 1.5)
            assert any(g >= gain - 1e-12 and d <= column.duration_s for g, d, _ in front)


def test_what_the_search_gives_up_on_goes_to_cbc_with_fewer_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = linked_problem(12, (3, 4, 5, 7))
    whole = planned(compile_plan(problem, 0.0))
    narrow(monkeypatch, 1)
    handed_on = planned(compile_plan(problem, 0.0))
    assert handed_on.gap == 0.0
    assert handed_on.objective == pytest.approx(whole.objective, rel=1e-6)
    found, _ = exact.solve(coefficients_of(problem), 0.0, 60.0)
    assert found.bound is not None
    fewer = exact.reduced(coefficients_of(problem), found)
    columns = [sum(len(node.columns) for node in c.nodes.values()) for c in (coefficients_of(problem), fewer)]
    assert columns[1] < columns[0]


def test_a_bundle_of_the_own_solver_is_proved_and_certified() -> None:
    problem = linked_problem(10, (2, 3, 5))
    for plan in bundled(compile_bundle(problem)).variants:
        assert (plan.solver, plan.gap, verify_plan(problem, plan)) == ("exact", 0.0, ())


def test_few_sets_stay_open_in_a_fork_join() -> None:
    """Branches that only the join waits for share one set: the root's time, and the latest branch's."""
    branches = [f"b{i}" for i in range(8)]
    edges = [*(("root", b) for b in branches), *((b, "join") for b in branches)]
    order: Order = decision_order(workflow(llm("root"), *map(llm, branches), llm("join"), edges=edges))
    assert max(map(len, order.sets)) == 2


@sampled(100)
@given(instance=instances(max_nodes=9, max_points=1), backward=st.booleans())
def test_every_decision_leaves_the_fewest_sets_open(instance: Instance, backward: bool) -> None:
    """By the definition: of the ready nodes, the first that leaves the fewest sets of undecided nodes to wait."""
    order = decision_order(instance[0], backward=backward)
    for step, node in enumerate(order.order):
        decided = order.order[:step]
        ready = [
            n for n, before in enumerate(order.predecessors) if n not in decided and all(p in decided for p in before)
        ]

        def opened(n: int, decided: tuple[int, ...] = decided) -> int:
            left = {*decided, n}
            return len({frozenset(order.successors[m]) - left for m in left})

        assert node == min(ready, key=lambda n: (opened(n), n))
        assert len(order.sets[step]) == opened(node)


def test_steps_share_what_does_not_change_between_them() -> None:
    """Two layers with many sets open at once: a step of its own for each would take their square in memory."""
    nodes = 120
    edges = [(f"n{i}", f"n{60 + (k * i + k) % 60}") for i in range(60) for k in (1, 7, 11)]
    order = decision_order(workflow(*(llm(f"n{i}") for i in range(nodes)), edges=edges))
    for steps in (order.sets, order.waiting):
        distinct = {id(members) for step in steps for members in step}
        assert len(distinct) <= nodes + len(edges) < sum(map(len, steps))


def test_a_large_plan_may_stay_open_by_a_stated_gap_and_is_proved_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends at the accepted gap; without one it goes on, to a MIP solver where it has to."""
    problem = linked_problem(PROVED_UP_TO + 8, (3, 4, 5, 7))
    narrow(monkeypatch, 30)
    loose, default, exactly = (planned(compile_plan(problem, 0.0, accepted_gap=gap)) for gap in (0.5, None, 0.0))
    assert (loose.solver, exactly.gap) == ("exact", 0.0)
    assert loose.pruning["labels"] <= exactly.pruning["labels"]
    assert default.gap <= ACCEPTED_GAP
    for plan in (loose, default):
        assert plan.objective <= exactly.objective + 1e-9 <= plan.objective + plan.gap * abs(plan.objective) + 2e-9
        assert verify_plan(problem, plan) == ()
