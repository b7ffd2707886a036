"""The planner's own exact solver: Pareto fronts, a Lagrangian bound, and a search over labels (ours; paper 4.3's ILP).

`points`: only a node's Pareto front can be in an optimum. `bound`: with a flow of prices through the DAG nodes decide
alone, which bounds the objective and rules points out. `order`, `steps`, `labels`, `layers`: what is left is decided
node by node, and what that leaves open in ranges of durations (`branching`). `passes`: all of it together.
"""

from __future__ import annotations

import time
from dataclasses import replace

from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Choice
from planner.compiler.exact.passes import Found, Timer, search
from planner.compiler.exact.points import points_of
from planner.compiler.menu import Menu

__all__ = ["Found", "reduced", "solve"]


def solve(
    coefficients: Coefficients,
    level: float,
    time_limit_s: float,
    timer: Timer = time.perf_counter,
    accepted_gap: float = 0.0,
) -> tuple[Found, Choice]:
    """The optimal plan; where the search dropped partial plans or stopped, the best one found with its bound."""
    deadline = timer() + time_limit_s
    workflow = coefficients.problem.workflow
    found = search(
        coefficients.problem.orders,
        [points_of(coefficients, node.id, level) for node in workflow.nodes],
        coefficients.latency_price,
        deadline=deadline,
        timer=timer,
        accepted_gap=accepted_gap,
    )
    index = workflow.index
    return found, {n: node.menu.at(found.choice[index[n]]) for n, node in coefficients.nodes.items()}


def reduced(coefficients: Coefficients, found: Found) -> Coefficients:
    """The same problem with the columns alone that may be in a better plan than the incumbent, and the incumbent's."""
    index = coefficients.problem.workflow.index
    nodes = {}
    for node_id, node in coefficients.nodes.items():
        keep = {*found.kept[index[node_id]], found.choice[index[node_id]]}
        nodes[node_id] = replace(node, menu=Menu(node.menu.at(i) for i in sorted(keep)))
    return replace(coefficients, nodes=nodes)
