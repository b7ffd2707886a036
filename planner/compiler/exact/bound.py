"""An upper bound on every plan's objective, and a good plan on the way (ours).

T is at least the mean length of the paths of any flow through the DAG. With a flow of value lambda_l / T_ref every node
decides alone; what it gives up to its best point is a reduced cost, and a point that gives up more than the distance
between bound and incumbent is in no better plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.compiler.exact.order import Order
from planner.compiler.exact.points import Point, upper_hull

BOUND_STEPS = 8
BOUND_STEPS_LARGE = 150
LARGE = 16
"""Nodes from which on a tighter bound is worth its steps."""
TOLERANCE = 1e-10
"""Plans whose objectives differ by less count as equal."""
ON_PATH_S = 1e-9
"""A node with less slack is on a longest path."""
ROUNDING = 1e-12
"""Of the latency term: what it changes by less may be rounding, and node by node rounding may lead in a circle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A flow of value `price` by node and by edge, the bound it gives, and the best plan met on the way.

    `edge[(m, n)]` is the flow from m to n; `(m, -1)` what leaves the DAG at m.
    """

    value: float
    node: list[float]
    edge: dict[tuple[int, int], float]
    choice: list[int]

    def backward(self) -> Bound:
        """The same flow through the DAG with its edges turned round."""
        edge = {(n, m): f for (m, n), f in self.edge.items() if n >= 0}
        entered = list(self.node)
        for (_, n), f in self.edge.items():
            if n >= 0:
                entered[n] -= f
        return replace(self, edge=edge | {(n, -1): f for n, f in enumerate(entered)})


def lagrangian_bound(order: Order, fronts: Sequence[Sequence[Point]], price: float) -> Bound:
    """Conditional gradient over flows: every step moves flow to the longest path of what the nodes chose."""
    count = len(fronts)
    hulls = [upper_hull(front) for front in fronts]
    flow, edge = [0.0] * count, dict[tuple[int, int], float]()
    lowest, lowest_flow, lowest_edge = float("inf"), flow, edge
    top, top_choice = float("-inf"), [0] * count
    for step in range(BOUND_STEPS if count < LARGE else BOUND_STEPS_LARGE):
        value, gains, choice, durations = _decide_alone(hulls, flow)
        path, makespan = longest_path(order, durations)
        objective = gains - price * makespan
        if objective > top:
            top, top_choice = objective, choice
        if step and value < lowest:
            lowest, lowest_flow, lowest_edge = value, flow, edge
        if lowest - top <= TOLERANCE:
            break
        share = 2.0 / (step + 2.0)
        flow = [f * (1 - share) for f in flow]
        edge = {pair: f * (1 - share) for pair, f in edge.items()}
        for node, after in zip(path, (*path[1:], -1), strict=True):
            flow[node] += share * price
            edge[(node, after)] = edge.get((node, after), 0.0) + share * price
    return Bound(value=lowest, node=lowest_flow, edge=lowest_edge, choice=top_choice)


def _decide_alone(
    hulls: Sequence[Sequence[Point]], flow: Sequence[float]
) -> tuple[float, float, list[int], list[float]]:
    """Every node's best point when it pays `flow` a second: (Lagrangian, sum of gains, choices, durations)."""
    total = gains = 0.0
    choice: list[int] = []
    durations: list[float] = []
    for hull, rate in zip(hulls, flow, strict=True):
        gain, seconds, chosen = hull[0]
        best = gain - rate * seconds
        # Along the hull the value rises, then falls.
        for k in range(1, len(hull)):
            point = hull[k]
            value = point[0] - rate * point[1]
            if value <= best:
                break
            best, (gain, seconds, chosen) = value, point
        total += best
        gains += gain
        choice.append(chosen)
        durations.append(seconds)
    return total, gains, choice, durations


def longest_path(order: Order, durations: Sequence[float]) -> tuple[tuple[int, ...], float]:
    """(nodes of a longest path, its seconds)."""
    finish = [0.0] * len(durations)
    through = [-1] * len(durations)
    predecessors = order.predecessors
    for node in order.order:
        start = 0.0
        for before in predecessors[node]:
            if finish[before] > start or through[node] < 0:
                start, through[node] = max(start, finish[before]), before
        finish[node] = start + durations[node]
    last = max([node for node in order.order if not order.successors[node]], key=finish.__getitem__)
    path = [last]
    while through[path[-1]] >= 0:
        path.append(through[path[-1]])
    return tuple(reversed(path)), finish[last]


def improved(
    order: Order,
    fronts: Sequence[Sequence[Point]],
    price: float,
    choice: Sequence[int],
    stop: Callable[[], bool] = lambda: False,
) -> tuple[float, list[int]]:
    """(objective, choice) after changing one node at a time for as long as that helps, or until `stop()`."""
    current = list(choice)
    durations = [front[k][1] for front, k in zip(fronts, current, strict=True)]
    makespan, slack = _slack(order, durations)
    enough, changed = max(TOLERANCE, ROUNDING * price * makespan), True
    while changed and not stop():
        changed = False
        for node, front in enumerate(fronts):
            avoiding: float | None = None
            gain, seconds = front[current[node]][0], durations[node]
            through = makespan - slack[node] - seconds
            for k, point in enumerate(front):
                if k == current[node]:
                    continue
                faster = point[1] < seconds
                # Faster off the critical path: no gain in time. Slower: at best the makespan stays.
                if point[0] - gain <= TOLERANCE and (not faster or slack[node] > ON_PATH_S):
                    continue
                if faster and avoiding is None:
                    avoiding = makespan if slack[node] > ON_PATH_S else _avoiding(order, durations, node)
                floor = avoiding if faster and avoiding is not None else makespan
                longer = max(floor, through + point[1])
                if point[0] - gain - price * (longer - makespan) > enough:
                    current[node], durations[node], changed = k, point[1], True
                    makespan, slack = _slack(order, durations)
                    gain, seconds = point[0], point[1]
                    through, avoiding = makespan - slack[node] - seconds, None
    total = sum(front[k][0] for front, k in zip(fronts, current, strict=True))
    return total - price * _slack(order, durations)[0], current


def _avoiding(order: Order, durations: Sequence[float], node: int) -> float:
    """The longest path that does not use the node, in seconds; 0 when every path does."""
    without = list(durations)
    without[node] = float("-inf")
    return max(0.0, _finish(order, without)[1])


def _finish(order: Order, durations: Sequence[float]) -> tuple[list[float], float]:
    finish = [0.0] * len(durations)
    longest = float("-inf")
    predecessors = order.predecessors
    for node in order.order:
        start = 0.0 if not predecessors[node] else float("-inf")
        for before in predecessors[node]:
            if finish[before] > start:
                start = finish[before]
        finish[node] = start = start + durations[node]
        if start > longest:
            longest = start
    return finish, longest


def makespan_of(order: Order, durations: Sequence[float]) -> float:
    """The longest path in seconds."""
    return _finish(order, durations)[1]


def _slack(order: Order, durations: Sequence[float]) -> tuple[float, list[float]]:
    """(makespan, seconds by which each node may take longer before it grows)."""
    finish, makespan = _finish(order, durations)
    latest = [makespan] * len(durations)
    successors = order.successors
    for node in reversed(order.order):
        for after in successors[node]:
            start = latest[after] - durations[after]
            if start < latest[node]:
                latest[node] = start
    return makespan, [max(0.0, late - done) for late, done in zip(latest, finish, strict=True)]


def tails(order: Order, durations: Sequence[float]) -> list[float]:
    """Seconds of the longest path that begins with each node, itself included."""
    tail = [0.0] * len(durations)
    successors = order.successors
    for node in reversed(order.order):
        longest = 0.0
        for after in successors[node]:
            if tail[after] > longest:
                longest = tail[after]
        tail[node] = longest + durations[node]
    return tail
