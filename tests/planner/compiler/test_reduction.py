"""Nodes in series and in parallel as one: the same plans, with the same values, on a smaller DAG."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.exact import reduction
from planner.compiler.exact.bound import lagrangian_bound, makespan_of
from planner.compiler.exact.branching import branch
from planner.compiler.exact.order import Order, decision_order
from planner.compiler.exact.points import Point
from planner.compiler.exact.reduction import Reduced, reduced
from tests.planner.compiler.cases import llm, workflow
from tests.planner.compiler.dags import FOREVER, Instance, instances, optimum, value
from tests.sampling import sampled

FRONT: list[Point] = [(0.0, 1.0, 0), (2.0, 2.0, 1), (2.5, 4.0, 2)]


def whole(instance: Instance) -> Reduced:
    graph, fronts, _ = instance
    return reduced(decision_order(graph), fronts, [0.0] * len(fronts), FOREVER)


def worth(order: Order, fronts: list[list[Point]], price: float, choice: list[int]) -> float:
    points = [front[k] for front, k in zip(fronts, choice, strict=True)]
    return sum(point[0] for point in points) - price * makespan_of(order, [point[1] for point in points])


@sampled(200)
@given(instance=instances(max_nodes=8), data=st.data())
def test_a_choice_is_worth_the_same_on_both_dags(instance: Instance, data: st.DataObject) -> None:
    smaller = whole(instance)
    choice = [data.draw(st.integers(0, len(front) - 1)) for front in smaller.fronts]
    expected = value(instance, smaller.expanded(choice))
    assert worth(smaller.order, smaller.fronts, instance[2], choice) == pytest.approx(expected, abs=1e-9)


@sampled(200)
@given(instance=instances(max_nodes=8), share=st.floats(0, 1), most=st.sampled_from([1, 4, 100]))
def test_the_best_plan_is_still_there(instance: Instance, share: float, most: int) -> None:
    """With points dropped that a flow rules out below an incumbent that is no better than the optimum."""
    graph, fronts, price = instance
    order, best = decision_order(graph), optimum(instance)
    bound = lagrangian_bound(order, fronts, price)
    incumbent = best - share
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduction, "MOST_POINTS", most)
        smaller = reduced(order, fronts, bound.node, bound.value - incumbent + 1e-9)
    found = branch(
        smaller.order, smaller.fronts, price, incumbent - 1e-6, accepted_gap=0.0, most=10**6, stop=lambda: False
    )
    assert found.objective == pytest.approx(best, abs=1e-7)
    assert found.choice is not None
    assert value(instance, smaller.expanded(found.choice)) == pytest.approx(best, abs=1e-7)


@sampled(100)
@given(instance=instances(max_nodes=8))
def test_fronts_stay_fronts_and_edges_lead_forward(instance: Instance) -> None:
    smaller = whole(instance)
    for front in smaller.fronts:
        assert [point[2] for point in front] == list(range(len(front)))
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(front))
    place = {n: i for i, n in enumerate(smaller.order.order)}
    for n, before in enumerate(smaller.order.predecessors):
        assert all(place[m] < place[n] and n in smaller.order.successors[m] for m in before)


@pytest.mark.parametrize(
    ("edges", "left"),
    [
        ([], 1),
        ([("n0", "n1"), ("n1", "n2"), ("n2", "n3")], 1),
        ([("n0", "n1"), ("n1", "n2"), ("n2", "n3"), ("n0", "n3"), ("n0", "n2")], 1),
        ([("n0", "n1"), ("n0", "n2"), ("n1", "n3"), ("n2", "n3")], 1),
        ([("n0", "n2"), ("n1", "n2"), ("n1", "n3")], 4),  # an N is not series-parallel
    ],
    ids=["no edges", "a chain", "a chain with detours", "a fork-join", "an N"],
)
def test_series_parallel_dags_become_one_node(edges: list[tuple[str, str]], left: int) -> None:
    graph = workflow(*[llm(f"n{i}") for i in range(4)], edges=edges)
    assert len(whole((graph, [FRONT] * 4, 1.0)).fronts) == left


def test_a_front_that_would_be_too_large_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "MOST_POINTS", 3)
    graph = workflow(llm("n0"), llm("n1"), edges=[("n0", "n1")])
    assert whole((graph, [FRONT] * 2, 1.0)).fronts == [FRONT] * 2
