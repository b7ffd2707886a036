"""Branch and bound over relaxations, against every plan and against the relaxation as weights of points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pulp
import pytest
from highspy import MatrixFormat
from hypothesis import example, given
from hypothesis import strategies as st

from planner.compiler.exact.branching import branch
from planner.compiler.exact.order import decision_order
from planner.compiler.exact.points import Point
from planner.compiler.exact.relaxation import MOST_SUMMED, Relaxation, Unsolved
from planner.compiler.workflow import Workflow
from tests.planner.compiler.cases import llm, workflow
from tests.planner.compiler.dags import FOREVER, Instance, instances, optimum, value
from tests.sampling import sampled

LOWEST = float("-inf")


@sampled(150)
@given(instance=instances(max_nodes=8), most=st.sampled_from([1, 3, 10**6]), gap=st.sampled_from([0.0, 0.01]))
def test_branching_agrees_with_every_plan(instance: Instance, most: int, gap: float) -> None:
    graph, fronts, price = instance
    best = optimum(instance)
    start = best - 0.5
    found = branch(decision_order(graph), fronts, price, start, accepted_gap=gap, most=most, stop=lambda: False)
    assert found.objective <= best + 1e-9 <= found.bound + 2e-9
    if found.choice is not None:
        positions = [front[k][2] for front, k in zip(fronts, found.choice, strict=True)]
        assert value(instance, positions) == pytest.approx(found.objective, abs=1e-9)
    if most > 3:
        assert found.bound - found.objective <= gap * abs(found.objective) + 1e-9
    if most > 3 and gap == 0:
        assert found.objective == pytest.approx(best, abs=1e-9)


ONE_PLAN: Instance = workflow(llm("n0"), llm("n1")), [[(-3.0, 5.0, 0)], [(4.0, 5.0, 0)]], 2.5
TWO_PLANS: Instance = workflow(llm("n0")), [[(3.0, 0.0, 0), (7.0, 5.0, 1)]], 1.0


@example(instance=ONE_PLAN, unit_s=1e-3, worth=1e3, start=-0.5)
@example(instance=TWO_PLANS, unit_s=1e-6, worth=1e3, start=-0.5)
@sampled(100)
@given(
    instance=instances(),
    unit_s=st.sampled_from([1e-9, 1e-6, 1e-3, 1.0, 1e5]),
    worth=st.sampled_from([1e-3, 1.0, 1e3]),
    start=st.sampled_from([-7.0, -0.5, 0.0]),
)
def test_branching_is_right_in_every_unit(instance: Instance, unit_s: float, worth: float, start: float) -> None:
    """Emulated fleets are faster than real ones, and weights larger: a solver's tolerances are absolute."""
    graph, fronts, price = instance
    scaled = [[(worth * g, unit_s * d, k) for g, d, k in front] for front in fronts]
    best = optimum(instance)
    found = branch(
        decision_order(graph),
        scaled,
        price * worth / unit_s,
        (best + start) * worth,
        accepted_gap=0.0,
        most=10**6,
        stop=lambda: False,
    )
    assert found.objective == pytest.approx(best * worth, abs=1e-8 * max(1.0, worth))
    assert found.bound >= found.objective


def test_branching_bounds_nothing_where_the_solver_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Relaxation._model

    def without_iterations(*arguments: Any) -> Any:
        solver = made(*arguments)
        solver.setOptionValue("simplex_iteration_limit", 0)
        return solver

    monkeypatch.setattr(Relaxation, "_model", without_iterations)
    graph = workflow(llm("n0"), llm("n1"))
    fronts = [[(0.0, 1.0, 0), (5.0, 2.0, 1)]] * 2
    found = branch(decision_order(graph), fronts, 1.0, 0.0, accepted_gap=0.0, most=9, stop=lambda: False)
    assert (found.choice, found.bound) == (None, FOREVER)


def test_a_relaxation_without_an_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = workflow(llm("n0"), llm("n1"))
    relaxation = Relaxation(decision_order(graph), [[(0.0, 1.0, 0), (5.0, 2.0, 1)]] * 2, 1.0)
    relaxation._solver.setOptionValue("simplex_iteration_limit", 0)
    with pytest.raises(Unsolved, match="kIterationLimit"):
        relaxation.solve(relaxation.all, LOWEST)


def as_weights(graph: Workflow, fronts: Sequence[Sequence[Point]], price: float) -> float:
    """The relaxation as a sum of weights of points, a start per node, solved anew (the reference)."""
    model = pulp.LpProblem(sense=pulp.LpMaximize)
    end = model.add_variable("end", lowBound=0)
    gains, ends = [], {}
    for i, (node, front) in enumerate(zip(graph.nodes, fronts, strict=True)):
        weights = [model.add_variable(f"x{i}_{k}", lowBound=0) for k in range(len(front))]
        start = model.add_variable(f"s{i}", lowBound=0)
        model += pulp.lpSum(weights) == 1
        gains += [point[0] * x for point, x in zip(front, weights, strict=True)]
        ends[node.id] = start, start + pulp.lpSum(point[1] * x for point, x in zip(front, weights, strict=True))
        model += end >= ends[node.id][1]
    for before, after in graph.edges:
        model += ends[after][0] >= ends[before][1]
    model += pulp.lpSum(gains) - price * end
    model.solve(pulp.HiGHS(msg=False))
    return float(pulp.value(model.objective))


@sampled(100)
@given(instance=instances(max_nodes=9, max_points=4), data=st.data())
def test_the_relaxation_is_the_one_of_weights_whatever_is_allowed(instance: Instance, data: st.DataObject) -> None:
    """One after the other in one solver: each goes on from the basis of the last."""
    graph, fronts, price = instance
    relaxation = Relaxation(decision_order(graph), fronts, price)
    for _ in range(4):
        kept = [
            sorted(data.draw(st.sets(st.integers(0, len(front) - 1), min_size=1), label="allowed")) for front in fronts
        ]
        allowed = np.array([k in mine for front, mine in zip(fronts, kept, strict=True) for k in range(len(front))])
        found = relaxation.solve(allowed, LOWEST)
        left = [[front[k] for k in mine] for front, mine in zip(fronts, kept, strict=True)]
        assert found.value == pytest.approx(as_weights(graph, left, price), abs=1e-7)
        assert (found.allowed == allowed).all()
        chosen, splits = relaxation.rounded(found)
        assert all(k in mine for k, mine in zip(chosen, kept, strict=True))
        assert relaxation.objective(chosen) <= found.value + 1e-9
        if not splits:
            assert relaxation.objective(chosen) == pytest.approx(found.value, abs=1e-6)
        for split in splits:
            parts = relaxation.halves(found.allowed, split)
            assert (parts[0] | parts[1] == allowed).all()
            assert ((parts[0] & parts[1]) == (allowed & (relaxation.node != split.node))).all()
            assert all(half[relaxation.node == split.node].any() for half in parts)
            assert all(relaxation.solve(half, LOWEST).value <= found.value + 1e-9 for half in parts)


@sampled(60)
@given(instance=instances(), below=st.floats(0, 6))
def test_what_a_relaxation_drops_is_in_no_plan_above_the_floor(instance: Instance, below: float) -> None:
    graph, fronts, price = instance
    relaxation, best = Relaxation(decision_order(graph), fronts, price), optimum(instance)
    found = relaxation.solve(relaxation.all, best - below)
    kept = [
        [point for point, allowed in zip(front, found.allowed[a:b], strict=True) if allowed]
        for front, a, b in zip(fronts, relaxation.first, relaxation.end, strict=True)
    ]
    if found.value > best - below + 1e-9:
        assert all(kept)
        assert max(found.dropped, optimum_of(graph, kept, price)) >= best - 1e-9


def optimum_of(graph: Workflow, fronts: list[list[Point]], price: float) -> float:
    return optimum((graph, [[(g, d, k) for k, (g, d, _) in enumerate(front)] for front in fronts], price))


def test_long_paths_that_fork_keep_rows_short() -> None:
    """A chain whose every node has a leaf: without columns for some starts, rows grow with the depth."""
    count = 6 * MOST_SUMMED
    chain = [(f"n{i}", f"n{i + 1}") for i in range(count - 1)]
    leaves = [(f"n{i}", f"leaf{i}") for i in range(count)]
    graph = workflow(*[llm(node) for i in range(count) for node in (f"n{i}", f"leaf{i}")], edges=[*chain, *leaves])
    fronts: list[list[Point]] = [[(0.0, 1.0, 0), (1.0 + i % 3, 2.0, 1), (4.5, 3.5, 2)] for i in range(2 * count)]
    relaxation = Relaxation(decision_order(graph), fronts, 0.9)
    lp = relaxation._solver.getLp()
    assert lp.a_matrix_.format_ == MatrixFormat.kColwise
    rows = np.bincount(np.array(lp.a_matrix_.index_), minlength=lp.num_row_)
    assert rows.max() <= 2 + 2 * (MOST_SUMMED + 1)
    assert relaxation.solve(relaxation.all, LOWEST).value == pytest.approx(as_weights(graph, fronts, 0.9), abs=1e-7)


@sampled(60)
@given(instance=instances(max_nodes=5), near=st.sampled_from([1e-15, 1e-12, 1e-9, 1e-7, 1e-5]))
def test_points_that_take_nearly_the_same_time_are_no_trap(instance: Instance, near: float) -> None:
    """Slopes between them are steep beyond measure: what is bounded stays bounded, what is found is what it says."""
    graph, fronts, price = instance
    crowded = [
        [p for g, d, _ in front for p in ((g, d, 0), (g + 0.4, d + near * (1 + d), 0), (g + 0.7, d + 0.3, 0))]
        for front in fronts
    ]
    crowded = [[(g, d, k) for k, (g, d, _) in enumerate(front)] for front in crowded]
    best = optimum((graph, crowded, price))
    found = branch(decision_order(graph), crowded, price, best - 0.5, accepted_gap=0.0, most=10**6, stop=lambda: False)
    assert found.objective == pytest.approx(best, abs=1e-6)
    assert found.bound >= best - 1e-9
