"""A plan within caps without a solver (ours): what stands when a solver's time ends, and a quick proof that one exists.

Tried: what uses least of each cap, then every node's best choice under prices on the caps, raised where they are broken
and lowered where they are kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Choice, evaluate
from planner.compiler.limits.caps import Cap, least, slack_by_node

ROUNDS = 40
RAISED, LOWERED = 2.0, 0.7


def find_within(coefficients: Coefficients, level: float, caps: Sequence[Cap], deadline: float) -> Choice | None:
    """The best plan met that keeps all caps, or None: a heuristic, which proves nothing by finding none.

    `coefficients` are presolved for the caps. The plans that use least of one cap are tried whatever the time.
    """
    found: Choice | None = None
    best = float("-inf")
    for choice in _candidates(coefficients, level, caps, deadline):
        if all(cap.keeps(coefficients, choice) for cap in caps):
            objective = evaluate(coefficients, choice, level).objective
            if objective > best:
                found, best = choice, objective
    return found


def _candidates(coefficients: Coefficients, level: float, caps: Sequence[Cap], deadline: float) -> Iterator[Choice]:
    for cap in caps:
        yield least(coefficients, cap)
    slack = [slack_by_node(coefficients, cap) for cap in caps]
    options = {
        node_id: _options(coefficients, node_id, level, caps, [of_cap[node_id] for of_cap in slack])
        for node_id in coefficients.nodes
    }
    gains = [[gain for gain, _ in option] for option in options.values()]
    price = max((max(g) - min(g) for g in gains), default=0.0) or 1.0
    prices = [price] * len(caps)
    for _ in range(ROUNDS if caps else 1):
        choice = {
            node_id: coefficients.nodes[node_id].columns[_best(option, prices)] for node_id, option in options.items()
        }
        yield choice
        if time.perf_counter() > deadline:
            return
        prices = [
            price * (LOWERED if cap.keeps(coefficients, choice) else RAISED)
            for cap, price in zip(caps, prices, strict=True)
        ]


Option = tuple[float, tuple[float, ...]]
"""(gain when the node pays for its whole duration, use of every cap beyond the least as a share of the slack)."""


def _options(
    coefficients: Coefficients, node_id: str, level: float, caps: Sequence[Cap], slack: Sequence[float]
) -> list[Option]:
    node = coefficients.nodes[node_id]
    lowest = [min(cap.amount(node_id, column) for column in node.columns) for cap in caps]
    return [
        (
            coefficients.gain(node, column, level) - coefficients.latency_price * column.duration_s,
            tuple(
                (cap.amount(node_id, column) - low) / most if most > 0 else 0.0
                for cap, low, most in zip(caps, lowest, slack, strict=True)
            ),
        )
        for column in node.columns
    ]


def _best(options: Sequence[Option], prices: Sequence[float]) -> int:
    def value(position: int) -> float:
        gain, uses = options[position]
        return gain - sum(price * use for price, use in zip(prices, uses, strict=True))

    return max(range(len(options)), key=value)
