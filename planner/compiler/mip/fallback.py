"""What stands when a solver's time ends: an incumbent and a bound that need no solver (ours: never hang, never guess).

Both rest on the objective being separable by node apart from the makespan.
"""

from __future__ import annotations

from planner.compiler.coefficients import Coefficients, NodeCoefficients
from planner.compiler.critical_path import makespan_s
from planner.compiler.evaluate import Choice, evaluate
from planner.compiler.menu import Column


def upper_bound(coefficients: Coefficients, level: float) -> float:
    """No plan is better than every node's best gain together with every node's shortest duration."""
    gains = sum(
        max(coefficients.gain(node, column, level) for column in node.columns) for node in coefficients.nodes.values()
    )
    shortest = {n: min(column.duration_s for column in node.columns) for n, node in coefficients.nodes.items()}
    return gains - coefficients.latency_price * makespan_s(
        coefficients.problem.workflow, {**coefficients.fixed_s, **shortest}
    )


def incumbent(coefficients: Coefficients, level: float) -> Choice:
    """The better of two plans: every node pays for its whole duration, or for none of it."""
    plans = [_node_by_node(coefficients, level, share) for share in (1.0, 0.0)]
    return max(plans, key=lambda choice: evaluate(coefficients, choice, level).objective)


def _node_by_node(coefficients: Coefficients, level: float, share: float) -> dict[str, Column]:
    price = share * coefficients.latency_price

    def best(node: NodeCoefficients) -> Column:
        return max(node.columns, key=lambda c: coefficients.gain(node, c, level) - price * c.duration_s)

    return {node_id: best(node) for node_id, node in coefficients.nodes.items()}
