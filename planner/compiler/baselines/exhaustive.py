"""Every assignment of a small problem tried, without any solver: an oracle (ours)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Choice

MAX_ASSIGNMENTS = 2_000_000
"""Assignments that are looked at: some seconds."""


def exhaustive(coefficients: Coefficients, level: float, time_limit_s: float) -> Choice:
    """Raises ValueError when there are more than MAX_ASSIGNMENTS assignments."""
    count = prod(len(node.columns) for node in coefficients.nodes.values())
    if count > MAX_ASSIGNMENTS:
        raise ValueError(f"{count:,} assignments are too many to try: at most {MAX_ASSIGNMENTS:,}; use compile_plan")
    workflow = coefficients.problem.workflow
    order = workflow.topological_order
    position = {node_id: k for k, node_id in enumerate(order)}
    predecessors = [tuple(position[before] for before in workflow.predecessors[node_id]) for node_id in order]
    options = [_options(coefficients, node_id, level) for node_id in order]
    best = _best_assignment(predecessors, options, coefficients.latency_price)
    return {n: coefficients.nodes[n].columns[best[position[n]]] for n in coefficients.nodes}


def _options(coefficients: Coefficients, node_id: str, level: float) -> list[tuple[float, float]]:
    """(gain, seconds) of every column; a node that is not planned has its seconds alone."""
    node = coefficients.nodes.get(node_id)
    if node is None:
        return [(0.0, coefficients.fixed_s[node_id])]
    return [(coefficients.gain(node, column, level), column.duration_s) for column in node.columns]


def _best_assignment(
    predecessors: Sequence[Sequence[int]], options: Sequence[Sequence[tuple[float, float]]], price: float
) -> list[int]:
    """Counts through all assignments; of equal ones the first. Nodes are in topological order."""
    count = len(options)
    finish, gain, latest = [0.0] * count, [0.0] * (count + 1), [0.0] * (count + 1)
    current, best, found = [0] * count, -inf, [0] * count
    changed = 0
    while changed >= 0:
        for k in range(changed, count):
            more, seconds = options[k][current[k]]
            finish[k] = seconds + max([finish[before] for before in predecessors[k]], default=0.0)
            gain[k + 1], latest[k + 1] = gain[k] + more, max(latest[k], finish[k])
        if gain[count] - price * latest[count] > best:
            best, found = gain[count] - price * latest[count], list(current)
        changed = count - 1
        while changed >= 0 and current[changed] + 1 == len(options[changed]):
            current[changed] = 0
            changed -= 1
        if changed >= 0:
            current[changed] += 1
    return found
