"""Implementations as points (gain, duration), of which only a node's Pareto front can be in an optimum.

True while no constraint couples nodes other than T: for fixed weights all else of the objective is separable by node.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.compiler.coefficients import Coefficients, NodeCoefficients, per_reference

Point = tuple[float, float, int]
"""(gain, duration in seconds, position of the column; -1 where nothing is chosen: a tool)."""


def points_of(coefficients: Coefficients, node_id: str, level: float) -> list[Point]:
    """A node's Pareto front, fastest first: each point is slower and gains more than the one before.

    Raises ValueError where no column's gain is a number: the weights or the level are too large.
    """
    node = coefficients.nodes.get(node_id)
    if node is None:
        return [(0.0, coefficients.fixed_s[node_id], -1)]
    front: list[Point] = []
    best = float("-inf")
    for point in _points(coefficients, node, level):
        if point[0] > best:
            if front and front[-1][1] == point[1]:
                front.pop()
            front.append(point)
            best = point[0]
    if not front:
        raise ValueError(f"node {node_id} has no finite gain at level {level}: use smaller weights or a smaller level")
    return front


def _points(coefficients: Coefficients, node: NodeCoefficients, level: float) -> list[Point]:
    """Every column, fastest first; `Coefficients.gain` as one sum over the menu's rows."""
    if coefficients.problem.pricing is not None:
        return [
            (coefficients.gain(node, node.menu.at(row.position), level), row.duration_s, row.position)
            for row in node.menu.rows
        ]
    w, count, v = coefficients.problem.weights, coefficients.llm_count, node.vulnerability
    quality = (node.rho + w.lambda_r * v) / count
    price = per_reference(w.lambda_c, coefficients.k_ref)
    load = level * per_reference(w.lambda_d, coefficients.d_ref)
    risk = w.lambda_r * v / count
    if coefficients.problem.demand == "tau":
        return [(quality * q - risk - price * k - load * tau, tau, i) for i, q, k, _, tau in node.menu.rows]
    return [(quality * q - risk - price * k - load * d, tau, i) for i, q, k, d, tau in node.menu.rows]


def upper_hull(front: Sequence[Point]) -> list[tuple[float, float, int]]:
    """(gain, duration, position in the front) of the points that are best at some price of time, fastest first."""
    hull: list[tuple[float, float, int]] = []
    for k, (gain, duration, _) in enumerate(front):
        while len(hull) > 1 and _below(hull[-2], hull[-1], gain, duration):
            hull.pop()
        hull.append((gain, duration, k))
    return hull


def _below(left: tuple[float, float, int], middle: tuple[float, float, int], gain: float, duration: float) -> bool:
    """Whether the middle point lies on or under the line from left to (duration, gain)."""
    return (middle[0] - left[0]) * (duration - left[1]) <= (gain - left[0]) * (middle[1] - left[1])
