"""Plans on the convex hull of (makespan, log quality), and the hull as a bound on every plan (ours).

For a price e of a second the priced objective with no price of GPU-seconds is  sum log(1 - v r) - e T.  Its optimum
V(e) says that no plan of makespan T has a log quality above V(e) + e T; a solve that is cut short has a bound that says
the same. Prices are the slopes between two plans that are known, until no plan lies above them.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from math import exp

from planner.compiler.coefficients import Coefficients, log_quality
from planner.compiler.evaluate import Choice, evaluate
from planner.compiler.limits import NO_LIMITS
from planner.compiler.menu import Column
from planner.compiler.plan import Plan
from planner.compiler.pricing import Pricing
from planner.compiler.solve import Timer, compile_coefficients

MAX_SOLVES = 48
"""Prices that are tried at most."""
TOLERANCE = 1e-9
Line = tuple[float, float]
"""(price of a second, bound): no plan of T seconds has a log quality above bound + price * T."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The plans that were met, and the lines that no plan lies above; the first one holds for every makespan."""

    choices: tuple[Choice, ...]
    lines: tuple[Line, ...]

    def quality(self, makespan_s: float) -> float:
        """No plan that takes `makespan_s` or less is better than this."""
        return exp(min(bound + price * makespan_s for price, bound in self.lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    choice: Choice
    makespan_s: float
    log_quality: float


def envelope_of(coefficients: Coefficients, deadline: float, timer: Timer) -> Envelope:
    """From the fastest and the best plan inwards, widest step in quality first, up to MAX_SOLVES or the deadline."""
    fastest, best = _end(coefficients, _fastest(coefficients)), _end(coefficients, _best(coefficients))
    choices, lines = [fastest.choice, best.choice], [(0.0, best.log_quality)]
    tie = count()
    steps = [(0.0, next(tie), fastest, best)]
    while steps and len(lines) <= MAX_SOLVES and timer() < deadline:
        _, _, low, high = heapq.heappop(steps)
        if high.makespan_s - low.makespan_s <= TOLERANCE or high.log_quality - low.log_quality <= TOLERANCE:
            continue
        price = (high.log_quality - low.log_quality) / (high.makespan_s - low.makespan_s)
        found, bound = _solve(coefficients, price, deadline - timer(), timer)
        lines.append((price, bound))
        if found.log_quality - low.log_quality > price * (found.makespan_s - low.makespan_s) + TOLERANCE:
            choices.append(found.choice)
            for pair in ((low, found), (found, high)):
                heapq.heappush(steps, (pair[0].log_quality - pair[1].log_quality, next(tie), *pair))
    return Envelope(choices=tuple(choices), lines=tuple(lines))


def _solve(coefficients: Coefficients, price: float, time_limit_s: float, timer: Timer) -> tuple[_End, float]:
    """The best plan when a second costs `price` of log quality, and a bound on any plan's objective."""
    problem = coefficients.problem
    prices = {model.name: 0.0 for model in problem.catalog.models}
    priced = replace(problem, pricing=Pricing(prices=prices, epsilon=price), limits=NO_LIMITS)
    plan = compile_coefficients(replace(coefficients, problem=priced), 0.0, time_limit_s=time_limit_s, timer=timer)
    if not isinstance(plan, Plan):
        raise RuntimeError(f"a problem with columns for every node has a plan without caps: {plan.text}")
    choice = _columns(coefficients, plan)
    bound = plan.objective + plan.gap * max(abs(plan.objective), TOLERANCE)
    return _end(coefficients, choice), bound


def _columns(coefficients: Coefficients, plan: Plan) -> Choice:
    found = {node_id: node.column(plan.assignment[node_id]) for node_id, node in coefficients.nodes.items()}
    return {node_id: column for node_id, column in found.items() if column is not None}


def _end(coefficients: Coefficients, choice: Choice) -> _End:
    risks = (coefficients.nodes[node_id].residual_risk(column) for node_id, column in choice.items())
    makespan_s = evaluate(coefficients, choice, 0.0).makespan_s
    return _End(choice=choice, makespan_s=makespan_s, log_quality=sum(map(log_quality, risks)))


def _fastest(coefficients: Coefficients) -> Mapping[str, Column]:
    return {
        node_id: min(node.columns, key=lambda column: (column.duration_s, -column.quality))
        for node_id, node in coefficients.nodes.items()
    }


def _best(coefficients: Coefficients) -> Mapping[str, Column]:
    """The least residual risk of every node, then the fastest."""
    return {
        node_id: min(node.columns, key=lambda column: (node.residual_risk(column), column.duration_s))
        for node_id, node in coefficients.nodes.items()
    }
