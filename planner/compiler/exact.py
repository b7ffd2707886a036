"""The planner's own exact solver: Pareto fronts, a Lagrangian bound, and a search over labels (ours; paper 4.3's ILP).

All of the objective but T is separable by node, so that for fixed weights an implementation is a point
(gain, duration), and only the points of a node's Pareto front can be in an optimum.

Bound. T is at least the mean length of the paths of any flow through the DAG. With a flow of value lambda_l / T_ref
every node decides alone; what it gives up to its best point is a reduced cost, and a point that gives up more than
the distance between bound and incumbent is in no better plan.

Search. Nodes are decided in a topological order. What a partial plan means for the rest is its gain G and one time t_c
for each set c of decided nodes that the same undecided nodes wait for. Whatever follows, T differs between two partial
plans by no more than their largest difference in t_c. So one dominates another when G - price * t_c is no smaller for
any c: with one c a single partial plan is left, with two a staircase.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.compiler.coefficients import Coefficients, NodeCoefficients, per_reference
from planner.compiler.evaluate import Choice
from planner.compiler.menu import Menu
from planner.compiler.workflow import Workflow

Point = tuple[float, float, int]
"""(gain, duration in seconds, position of the column; -1 for a tool)."""

BOUND_STEPS = 40
BOUND_STEPS_LARGE = 150
LARGE = 16
"""Nodes from which on a tighter bound is worth its steps."""
TOLERANCE = 1e-10
"""Plans whose objectives differ by less count as equal."""
BEAM = 200
"""Partial plans carried from one node to the next; with more than that the search goes on with the most promising."""
Timer = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Nodes by position in an order of decision, and per step the sets whose times the undecided nodes wait for.

    `sets[k]` holds the sets after step k as tuples of node positions; the last one, where present, holds those that
    nothing waits for. `origin[k]`: an undecided node waits for nothing, so a path may start later.
    """

    order: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    sets: tuple[tuple[tuple[int, ...], ...], ...]
    origin: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`choice` holds the chosen position per node; `bound` None: proved optimal. Counts are for the certificate."""

    choice: tuple[int, ...]
    objective: float
    bound: float | None
    points: int
    kept: tuple[tuple[int, ...], ...]
    labels: int


def solve(
    coefficients: Coefficients, level: float, time_limit_s: float, timer: Timer = time.perf_counter
) -> tuple[Found, Choice]:
    """The optimal plan; where the search had to drop partial plans or to stop, the best one found with its bound."""
    workflow = coefficients.problem.workflow
    found = search(
        decision_order(workflow),
        [points_of(coefficients, node.id, level) for node in workflow.nodes],
        coefficients.latency_price,
        deadline=timer() + time_limit_s,
        timer=timer,
    )
    choice = {
        node.id: coefficients.nodes[node.id].columns[found.choice[workflow.index[node.id]]]
        for node in workflow.llm_nodes
        if node.id in coefficients.nodes
    }
    return found, choice


def reduced(coefficients: Coefficients, found: Found) -> Coefficients:
    """The same problem with the columns alone that may be in a better plan than the incumbent, and the incumbent's."""
    index = coefficients.problem.workflow.index
    nodes = {}
    for node_id, node in coefficients.nodes.items():
        keep = {*found.kept[index[node_id]], found.choice[index[node_id]]}
        nodes[node_id] = replace(node, menu=Menu(columns=tuple(node.columns[i] for i in sorted(keep))))
    return replace(coefficients, nodes=nodes)


# --- Points ----------------------------------------------------------------------------------------------------------


def points_of(coefficients: Coefficients, node_id: str, level: float) -> list[Point]:
    """A node's Pareto front, fastest first: each point is slower and gains more than the one before."""
    node = coefficients.nodes.get(node_id)
    if node is None:
        return [(0.0, coefficients.fixed_s[node_id], -1)]
    front: list[Point] = []
    best = float("-inf")
    for gain, duration, position in _gains(coefficients, node, level):
        if gain > best:
            if front and front[-1][1] == duration:
                front.pop()
            front.append((gain, duration, position))
            best = gain
    return front


def _gains(coefficients: Coefficients, node: NodeCoefficients, level: float) -> list[Point]:
    """`Coefficients.gain` of every column, fastest first, as one sum over the menu's rows."""
    if coefficients.problem.pricing is not None:
        gains = (coefficients.gain(node, column, level) for column in node.columns)
        points = [
            (gain, column.duration_s, i) for i, (gain, column) in enumerate(zip(gains, node.columns, strict=True))
        ]
        return sorted(points, key=lambda point: point[1])
    w, count, v = coefficients.problem.weights, coefficients.llm_count, node.vulnerability
    quality = (node.rho + w.lambda_r * v) / count
    price = per_reference(w.lambda_c, coefficients.k_ref)
    load = level * per_reference(w.lambda_d, coefficients.d_ref)
    risk = w.lambda_r * v / count
    if coefficients.problem.demand == "tau":
        return [(quality * q - risk - price * k - load * tau, tau, i) for i, q, k, _, tau in node.menu.rows]
    return [(quality * q - risk - price * k - load * d, tau, i) for i, q, k, d, tau in node.menu.rows]


# --- Order -----------------------------------------------------------------------------------------------------------


def decision_order(workflow: Workflow) -> Order:
    """A topological order that keeps few sets open: at every step the ready node that leaves the fewest."""
    index = workflow.index
    before = [tuple(index[p] for p in workflow.predecessors[node.id]) for node in workflow.nodes]
    waiting = [sum(1 << index[s] for s in workflow.successors[node.id]) for node in workflow.nodes]
    missing = [len(p) for p in before]
    ready = [i for i, count in enumerate(missing) if count == 0]
    decided: list[int] = []
    undecided = (1 << len(before)) - 1
    sets: list[tuple[tuple[int, ...], ...]] = []
    origin: list[bool] = []
    while ready:
        rest = {n: undecided & ~(1 << n) for n in ready}
        node = min(ready, key=lambda n: (len({waiting[m] & rest[n] for m in (*decided, n)}), n))
        ready.remove(node)
        decided.append(node)
        undecided &= ~(1 << node)
        for successor in workflow.successors[workflow.nodes[node].id]:
            missing[index[successor]] -= 1
            if missing[index[successor]] == 0:
                ready.append(index[successor])
        sets.append(_sets(decided, waiting, undecided))
        origin.append(any(not before[n] for n in ready))
    return Order(order=tuple(decided), predecessors=tuple(before), sets=tuple(sets), origin=tuple(origin))


def _sets(decided: Sequence[int], waiting: Sequence[int], undecided: int) -> tuple[tuple[int, ...], ...]:
    found: dict[int, list[int]] = {}
    for node in decided:
        found.setdefault(waiting[node] & undecided, []).append(node)
    finished = found.pop(0, None)
    return (*map(tuple, found.values()), *([tuple(finished)] if finished else []))


# --- Bound -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A flow of value `price` by node and by edge, the bound it gives, and the best plan met on the way.

    `edge[(m, n)]` is the flow from m to n; `(m, -1)` what leaves the DAG at m.
    """

    value: float
    node: list[float]
    edge: dict[tuple[int, int], float]
    choice: list[int]


def lagrangian_bound(order: Order, fronts: Sequence[Sequence[Point]], price: float) -> Bound:
    """Conditional gradient over flows: every step moves flow to the longest path of what the nodes chose."""
    count = len(fronts)
    flow, edge = [0.0] * count, dict[tuple[int, int], float]()
    lowest, lowest_flow, lowest_edge = float("inf"), flow, edge
    top, top_choice = float("-inf"), [0] * count
    for step in range(BOUND_STEPS if count < LARGE else BOUND_STEPS_LARGE):
        value, choice = _decide_alone(fronts, flow)
        path, makespan = _longest_path(order, [front[k][1] for front, k in zip(fronts, choice, strict=True)])
        objective = sum(front[k][0] for front, k in zip(fronts, choice, strict=True)) - price * makespan
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


def _decide_alone(fronts: Sequence[Sequence[Point]], flow: Sequence[float]) -> tuple[float, list[int]]:
    """Every node's best point when it pays `flow` a second; the sum is the Lagrangian."""
    total, choice = 0.0, []
    for front, rate in zip(fronts, flow, strict=True):
        best, chosen = float("-inf"), 0
        for k, point in enumerate(front):
            value = point[0] - rate * point[1]
            if value > best:
                best, chosen = value, k
        total += best
        choice.append(chosen)
    return total, choice


def _longest_path(order: Order, durations: Sequence[float]) -> tuple[tuple[int, ...], float]:
    finish = [0.0] * len(durations)
    through = [-1] * len(durations)
    for node in order.order:
        start = 0.0
        for before in order.predecessors[node]:
            if finish[before] > start or through[node] < 0:
                start, through[node] = max(start, finish[before]), before
        finish[node] = start + durations[node]
    last = max(order.order, key=finish.__getitem__)
    path = [last]
    while through[path[-1]] >= 0:
        path.append(through[path[-1]])
    return tuple(reversed(path)), finish[last]


# --- Search ----------------------------------------------------------------------------------------------------------

Label = tuple[float, tuple[float, ...], "Label | None", int, float]
"""(gain so far, time of every open set, the label before, the point chosen last, gain less what the times cost)."""


def search(
    order: Order,
    fronts: Sequence[Sequence[Point]],
    price: float,
    *,
    deadline: float,
    timer: Timer = time.perf_counter,
) -> Found:
    """The best choice of one point per node, by position in file order."""
    bound = lagrangian_bound(order, fronts, price)
    objective, choice = _improved(order, fronts, price, bound.choice)
    kept = _not_ruled_out(fronts, bound, objective)
    points = sum(map(len, fronts))
    labels, dropped, better = 0, False, None
    if bound.value - objective > TOLERANCE:
        better, labels, dropped = _label_search(order, kept, price, bound, objective, deadline, timer)
    if better is not None:
        objective, chosen = better
    else:
        chosen = tuple(front[k][2] for front, k in zip(fronts, choice, strict=True))
    return Found(
        choice=chosen,
        objective=objective,
        bound=bound.value if dropped else None,
        points=points,
        kept=tuple(tuple(point[2] for point in front) for front in kept),
        labels=labels,
    )


def _improved(
    order: Order, fronts: Sequence[Sequence[Point]], price: float, choice: Sequence[int]
) -> tuple[float, list[int]]:
    """The choice after changing one node at a time for as long as that helps."""
    current = list(choice)
    durations = [front[k][1] for front, k in zip(fronts, current, strict=True)]
    makespan = _makespan(order, durations)
    improved = True
    while improved:
        improved = False
        for node, front in enumerate(fronts):
            gain, seconds = front[current[node]][0], durations[node]
            for k, point in enumerate(front):
                # A slower point can at best leave the makespan as it is.
                if k == current[node] or (point[1] > seconds and point[0] - gain <= TOLERANCE):
                    continue
                durations[node] = point[1]
                longer = _makespan(order, durations)
                if point[0] - gain - price * (longer - makespan) > TOLERANCE:
                    current[node], makespan, gain, seconds, improved = k, longer, point[0], point[1], True
                durations[node] = seconds
    return sum(front[k][0] for front, k in zip(fronts, current, strict=True)) - price * makespan, current


def _makespan(order: Order, durations: Sequence[float]) -> float:
    finish = [0.0] * len(durations)
    longest = 0.0
    predecessors = order.predecessors
    for node in order.order:
        start = 0.0
        for before in predecessors[node]:
            if finish[before] > start:
                start = finish[before]
        finish[node] = start = start + durations[node]
        if start > longest:
            longest = start
    return longest


def _not_ruled_out(fronts: Sequence[Sequence[Point]], bound: Bound, objective: float) -> list[list[Point]]:
    """Points whose reduced cost leaves room for a plan better than the incumbent."""
    room = bound.value - objective + TOLERANCE
    kept = []
    for front, rate in zip(fronts, bound.node, strict=True):
        best = max(point[0] - rate * point[1] for point in front)
        kept.append([point for point in front if best - (point[0] - rate * point[1]) <= room])
    return kept


def _label_search(
    order: Order,
    fronts: Sequence[Sequence[Point]],
    price: float,
    bound: Bound,
    objective: float,
    deadline: float,
    timer: Timer,
) -> tuple[tuple[float, tuple[int, ...]] | None, int, bool]:
    """(a better plan than the incumbent or None, labels made, whether some were dropped unexamined)."""
    rest = [max(p[0] - bound.node[node] * p[1] for p in fronts[node]) for node in order.order]
    remaining = sum(rest)
    labels: list[Label] = [(0.0, (), None, -1, 0.0)]
    made, dropped = 0, False
    sets: tuple[tuple[int, ...], ...] = ()
    undecided = set(range(len(fronts)))
    for step, node in enumerate(order.order):
        if timer() > deadline:
            return None, made, True
        undecided.discard(node)
        remaining -= rest[step]
        transition = _transition(order, node, sets, order.sets[step])
        outflow = [_outflow(members, undecided, bound) for members in order.sets[step]]
        expanded = _expanded(labels, fronts[node], transition, outflow, objective + TOLERANCE - remaining)
        made += len(expanded)
        if not expanded:
            return None, made, dropped
        if len(expanded) > 3 * BEAM:
            expanded, dropped = heapq.nlargest(3 * BEAM, expanded, key=_promise), True
        labels = _undominated(expanded, price, origin=order.origin[step])
        if len(labels) > BEAM:
            labels, dropped = heapq.nlargest(BEAM, labels, key=_promise), True
        sets = order.sets[step]
    best = max(labels, key=lambda label: label[0] - price * label[1][0])
    return (best[0] - price * best[1][0], _chosen(order, fronts, best)), made, dropped


def _expanded(
    labels: Sequence[Label], front: Sequence[Point], transition: Transition, outflow: Sequence[float], floor: float
) -> list[Label]:
    """Every label with every point of the next node, without those whose bound is no better than the incumbent."""
    waits, moves, joins = transition
    expanded: list[Label] = []
    for label in labels:
        gain, times = label[0], label[1]
        start = 0.0
        for position in waits:
            if times[position] > start:
                start = times[position]
        carried = [max([times[p] for p in source], default=0.0) for source in moves]
        for k, point in enumerate(front):
            finish = start + point[1]
            now = list(carried)
            if finish > now[joins]:
                now[joins] = finish
            promise = total = gain + point[0]
            for rate, seconds in zip(outflow, now, strict=True):
                promise -= rate * seconds
            if promise > floor:
                expanded.append((total, tuple(now), label, k, promise))
    return expanded


def _promise(label: Label) -> float:
    """The part of the label's bound in which labels of one step differ."""
    return label[4]


def _chosen(order: Order, fronts: Sequence[Sequence[Point]], last: Label) -> tuple[int, ...]:
    """Positions of the chosen columns, in file order of the nodes."""
    chosen = [-1] * len(fronts)
    label: Label | None = last
    for node in reversed(order.order):
        if label is not None:
            chosen[node] = fronts[node][label[3]][2]
            label = label[2]
    return tuple(chosen)


Transition = tuple[list[int], list[list[int]], int]
"""Which old sets a node waits for; which old sets each new set continues; the new set that the node joins."""


def _transition(
    order: Order, node: int, before: Sequence[tuple[int, ...]], after: Sequence[tuple[int, ...]]
) -> Transition:
    home = {member: position for position, members in enumerate(before) for member in members}
    waits = sorted({home[p] for p in order.predecessors[node]})
    moves = [sorted({home[m] for m in members if m != node}) for members in after]
    joins = next(position for position, members in enumerate(after) if node in members)
    return waits, moves, joins


def _outflow(members: Sequence[int], undecided: set[int], bound: Bound) -> float:
    """Flow from decided to undecided nodes, or out of the DAG: the price of every second of this set's time."""
    inside = set(members)
    return sum(f for (m, n), f in bound.edge.items() if m in inside and (n < 0 or n in undecided))


def _undominated(labels: list[Label], price: float, *, origin: bool) -> list[Label]:
    """Labels that no other one dominates; of equal ones the first stays."""
    values = [
        (tuple([label[0] - price * t for t in label[1]] + ([label[0]] if origin else [])), label) for label in labels
    ]
    values.sort(key=lambda pair: pair[0], reverse=True)
    width = len(values[0][0])
    if width == 1:
        return [values[0][1]]
    if width == 2:
        stairs, highest = [], float("-inf")
        for value, label in values:
            if value[1] > highest:
                stairs.append(label)
                highest = value[1]
        return stairs
    kept: list[tuple[tuple[float, ...], Label]] = []
    for value, label in values:
        tail = value[1:]
        for other, _ in kept:
            if all(map(float.__ge__, other, tail)):
                break
        else:
            kept.append((tail, label))
    return [label for _, label in kept]
