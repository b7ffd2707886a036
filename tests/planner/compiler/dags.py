"""Small random DAGs with a Pareto front per node, and what every choice on them is worth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import strategies as st

from planner.compiler.exact.points import Point
from planner.compiler.workflow import Workflow
from tests.planner.compiler.cases import llm, longest_path_by_enumeration, workflow

FOREVER = float("inf")
Fronts = list[list[Point]]
Instance = tuple[Workflow, Fronts, float]


@st.composite
def instances(draw: st.DrawFn, max_nodes: int = 7, max_points: int = 3) -> Instance:
    """A random DAG with a Pareto front per node and a price of time; coarse numbers, so that there are ties."""
    count = draw(st.integers(1, max_nodes))
    possible = [(f"n{i}", f"n{j}") for j in range(count) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    fronts: Fronts = []
    for _ in range(count):
        size = draw(st.integers(1, max_points))
        durations = sorted(draw(st.lists(st.integers(0, 12), min_size=size, max_size=size, unique=True)))
        gains = sorted(draw(st.lists(st.integers(0, 12), min_size=size, max_size=size, unique=True)))
        fronts.append([(float(g), float(d), k) for k, (g, d) in enumerate(zip(gains, durations, strict=True))])
    nodes = [llm(f"n{i}") for i in range(count)]
    return workflow(*nodes, edges=edges), fronts, draw(st.sampled_from([0.0, 0.3, 0.9, 1.0, 2.5]))


def value(instance: Instance, choice: Sequence[int]) -> float:
    """The objective of a choice, from every path of the DAG."""
    graph, fronts, price = instance
    points = [front[k] for front, k in zip(fronts, choice, strict=True)]
    durations = {node.id: point[1] for node, point in zip(graph.nodes, points, strict=True)}
    return sum(point[0] for point in points) - price * longest_path_by_enumeration(graph, durations)


def optimum(instance: Instance) -> float:
    return max(value(instance, choice) for choice in product(*(range(len(front)) for front in instance[1])))
