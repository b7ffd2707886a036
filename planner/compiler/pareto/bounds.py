"""Which partial plans may still lead to a point that no known plan dominates (ours).

For a price e of a second and a flow of value e through the DAG, e T is at least what the flow pays on every path. So a
partial plan with log quality G and times t_c leads to no plan of makespan T with a log quality above

    B_e + e T,   B_e = G - sum over c of outflow(c) t_c + sum over undecided nodes of max over points (log q - flow d)

Known plans cut the makespans into intervals. In one of them a plan is of use only if it is better than the known plan
at its start; it cannot be, when B_e + e T at its end is no better for some price e.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

from planner.compiler.exact.order import Order

Point = tuple[float, float, int]
"""(quality factor, seconds, position of the column; -1 for a tool)."""

FLOW_STEPS = 40
LEAST = 1e-300
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """Flow by node and by edge; `edge[(m, -1)]` is what leaves the DAG at m."""

    node: list[float]
    edge: dict[tuple[int, int], float]


class Outlook:
    """`known`: (makespan in seconds, quality) of plans, each slower and better than the one before, both ends optimal.

    `prices` of a second in log quality.
    """

    def __init__(
        self,
        order: Order,
        fronts: Sequence[Sequence[Point]],
        prices: Sequence[float],
        known: Sequence[tuple[float, float]],
    ) -> None:
        self._ends = [seconds for seconds, _ in known[1:]]
        self._all = (1 << len(self._ends)) - 1
        self._covers = [_Cover(price, known) for price in prices]
        flows = [_flow(order, fronts, price) for price in prices]
        self._rests = [_rests(order, fronts, flow) for flow in flows]
        self._outflows = [_outflows(order, flow) for flow in flows]

    def is_useful(self, step: int, quality: float, times: Sequence[float], least_s: float) -> bool:
        """Whether a partial plan after `step`, which takes `least_s` or longer, may lead to a point of the front."""
        covered = (1 << bisect_left(self._ends, least_s)) - 1
        gained = log(max(quality, LEAST))
        for cover, rests, outflows in zip(self._covers, self._rests, self._outflows, strict=True):
            bound = gained + rests[step]
            for rate, seconds in zip(outflows[step], times, strict=True):
                bound -= rate * seconds
            covered |= cover.intervals(bound)
            if covered == self._all:
                return False
        return True


class _Cover:
    """For one price: the intervals, as bits, in which a bound B_e rules out every useful plan."""

    def __init__(self, price: float, known: Sequence[tuple[float, float]]) -> None:
        limits = sorted(
            (log(max(quality, LEAST)) - price * after[0] + ROUNDING, i)
            for i, ((_, quality), after) in enumerate(pairwise(known))
        )
        self._limits = [limit for limit, _ in limits]
        self._masks = [0]
        for _, i in reversed(limits):
            self._masks.append(self._masks[-1] | (1 << i))

    def intervals(self, bound: float) -> int:
        return self._masks[len(self._limits) - bisect_left(self._limits, bound)]


def _best(front: Sequence[tuple[float, float]], rate: float) -> tuple[float, float]:
    """The point that gains most when it pays `rate` a second."""
    return max(front, key=lambda point: point[0] - rate * point[1])


def _flow(order: Order, fronts: Sequence[Sequence[Point]], price: float) -> _Flow:
    """Conditional gradient: every step moves flow to the longest path of what the nodes choose when they pay it."""
    gains = [[(log(max(quality, LEAST)), seconds) for quality, seconds, _ in front] for front in fronts]
    flow = _Flow(node=[0.0] * len(fronts), edge={})
    lowest, best = float("inf"), flow
    for step in range(FLOW_STEPS):
        chosen = [_best(front, rate) for front, rate in zip(gains, flow.node, strict=True)]
        value = sum(p[0] - rate * p[1] for p, rate in zip(chosen, flow.node, strict=True))
        if step and value < lowest:
            lowest, best = value, flow
        flow = _moved(flow, _longest_path(order, [point[1] for point in chosen]), price, 2.0 / (step + 2.0))
    return best


def _moved(flow: _Flow, path: Sequence[int], price: float, share: float) -> _Flow:
    node = [rate * (1 - share) for rate in flow.node]
    edge = {pair: rate * (1 - share) for pair, rate in flow.edge.items()}
    for here, after in zip(path, (*path[1:], -1), strict=True):
        node[here] += share * price
        edge[(here, after)] = edge.get((here, after), 0.0) + share * price
    return _Flow(node=node, edge=edge)


def _longest_path(order: Order, durations: Sequence[float]) -> list[int]:
    finish, through = [0.0] * len(durations), [-1] * len(durations)
    for node in order.order:
        through[node] = max(order.predecessors[node], key=finish.__getitem__, default=-1)
        finish[node] = durations[node] + (finish[through[node]] if through[node] >= 0 else 0.0)
    path = [max(order.order, key=finish.__getitem__)]
    while through[path[-1]] >= 0:
        path.append(through[path[-1]])
    return path[::-1]


def _rests(order: Order, fronts: Sequence[Sequence[Point]], flow: _Flow) -> list[float]:
    """Per step the most that the undecided nodes add."""
    most = [max(log(max(p[0], LEAST)) - flow.node[n] * p[1] for p in fronts[n]) for n in order.order]
    return [sum(most[step + 1 :]) for step in range(len(most))]


def _outflows(order: Order, flow: _Flow) -> list[tuple[float, ...]]:
    """Per step and open set the flow from its nodes to undecided ones, or out of the DAG."""
    place = {node: step for step, node in enumerate(order.order)}
    leaving: dict[int, list[tuple[int, float]]] = {}
    for (here, after), rate in flow.edge.items():
        leaving.setdefault(here, []).append((place.get(after, len(place)), rate))
    return [
        tuple(sum(rate for m in members for at, rate in leaving.get(m, ()) if at > step) for members in sets)
        for step, sets in enumerate(order.sets)
    ]
