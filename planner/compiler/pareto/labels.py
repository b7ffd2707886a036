"""The best product of qualities for every makespan: a search over labels along the DAG (ours).

Nodes are decided in the order of the exact solver. What a partial plan means for the rest is its quality and one time
for each set of decided nodes that the same undecided nodes wait for (paper 4.3: branches join at their longest). One
partial plan dominates another when its quality is no lower and none of its times is later. A time that cannot decide
the makespan any more, whatever follows, is raised to where it still cannot: plans that differ in it alone are equal.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.compiler.exact.order import Order
from planner.compiler.pareto.bounds import Outlook, Point
from planner.compiler.workflow import Workflow

Label = tuple[float, tuple[float, ...], "Label | None", int, float]
"""(quality so far, time of every open set, the label before, the point chosen last, least makespan possible)."""
Timer = Callable[[], float]

PER_MAKESPAN = 4
"""Partial plans of about the same least makespan that a beam keeps: those of the best qualities."""
LOOK_UP = 256
"""Labels between two looks at the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Positions of the chosen columns per node in file order; `complete`: nothing was dropped that may belong here."""

    choices: tuple[tuple[int, ...], ...]
    complete: bool


GIVEN_UP = Found(choices=(), complete=False)


def search(
    workflow: Workflow,
    order: Order,
    fronts: Sequence[Sequence[Point]],
    *,
    outlook: Outlook | None = None,
    most: int,
    beam: int | None = None,
    deadline: float,
    timer: Timer = time.perf_counter,
) -> Found:
    """`fronts`: per node in file order its points, each slower and of higher quality than the one before.

    With an outlook plans are left out that its known ones dominate. More than `most` partial plans after one node:
    about `beam` of them are kept, or without a beam the search gives up, as past the deadline: no choices.
    """
    complete, limit = True, most
    labels: list[Label] = [(1.0, (), None, -1, 0.0)]
    for i, step in enumerate(_steps(workflow, order, fronts)):
        if timer() > deadline:
            return GIVEN_UP
        found = _expanded(labels, fronts[step.node], step)
        if outlook is not None:
            found = [label for label in found if outlook.is_useful(i, label[0], label[1], label[4])]
        if not complete and beam is not None and len(found) > 2 * beam:
            found = _fewer(found, 2 * beam)
        kept = undominated(found, lambda: timer() > deadline) if found else []
        if kept is None:
            return GIVEN_UP
        labels = kept
        if len(labels) > limit:
            if beam is None:
                return GIVEN_UP
            labels, limit, complete = _fewer(labels, beam), beam, False
    return Found(choices=tuple(_positions(order, fronts, label) for label in labels), complete=complete)


def _positions(order: Order, fronts: Sequence[Sequence[Point]], last: Label) -> tuple[int, ...]:
    chosen = [-1] * len(fronts)
    label: Label | None = last
    for node in reversed(order.order):
        if label is not None:
            chosen[node] = fronts[node][label[3]][2]
            label = label[2]
    return tuple(chosen)


# --- Steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One node: the open sets it waits for, which of them each new set continues, the new set that it joins.

    `fastest` and `slowest`: per new set the shortest and the longest that may follow it; `least_s`: no plan is faster.
    """

    node: int
    waits: tuple[int, ...]
    moves: tuple[tuple[int, ...], ...]
    joins: int
    fastest: tuple[float, ...]
    slowest: tuple[float, ...]
    least_s: float


def _steps(workflow: Workflow, order: Order, fronts: Sequence[Sequence[Point]]) -> list[_Step]:
    index = workflow.index
    successors = [[index[s] for s in workflow.successors[node.id]] for node in workflow.nodes]
    fastest = _tails(order, successors, [front[0][1] for front in fronts])
    slowest = _tails(order, successors, [front[-1][1] for front in fronts])
    steps, undecided, before = [], set(order.order), tuple[tuple[int, ...], ...]()
    for node, after in zip(order.order, order.sets, strict=True):
        undecided.discard(node)
        home = {member: position for position, members in enumerate(before) for member in members}
        waiting = [[s for s in successors[members[0]] if s in undecided] for members in after]
        steps.append(
            _Step(
                node=node,
                waits=tuple(sorted({home[p] for p in order.predecessors[node]})),
                moves=tuple(tuple(sorted({home[m] for m in members if m != node})) for members in after),
                joins=next(position for position, members in enumerate(after) if node in members),
                fastest=tuple(max((fastest[s] for s in found), default=0.0) for found in waiting),
                slowest=tuple(max((slowest[s] for s in found), default=0.0) for found in waiting),
                least_s=max(fastest),
            )
        )
        before = after
    return steps


def _tails(order: Order, successors: Sequence[Sequence[int]], durations: Sequence[float]) -> list[float]:
    """The longest path that starts with each node."""
    tail = [0.0] * len(durations)
    for node in reversed(order.order):
        tail[node] = durations[node] + max((tail[s] for s in successors[node]), default=0.0)
    return tail


# --- Labels ----------------------------------------------------------------------------------------------------------


def _expanded(labels: Sequence[Label], front: Sequence[Point], step: _Step) -> list[Label]:
    """Every label with every point of the node."""
    expanded: list[Label] = []
    joins, tails = step.joins, tuple(zip(step.fastest, step.slowest, strict=True))
    for label in labels:
        quality, times = label[0], label[1]
        start = max([times[position] for position in step.waits], default=0.0)
        now = [max([times[position] for position in moved], default=0.0) for moved in step.moves]
        carried = now[joins]
        for k, point in enumerate(front):
            now[joins] = max(carried, start + point[1])
            least = step.least_s
            for seconds, tail in zip(now, tails, strict=True):
                if seconds + tail[0] > least:
                    least = seconds + tail[0]
            raised = tuple([max(seconds, least - tail[1]) for seconds, tail in zip(now, tails, strict=True)])
            expanded.append((quality * point[0], raised, label, k, least))
    return expanded


def undominated(labels: list[Label], is_late: Callable[[], bool]) -> list[Label] | None:
    """Labels that no other one dominates, best quality first; of equal ones the first stays. None when it gets late.

    Times with few different values are compared one by one, the two with most as a staircase for each combination.
    """
    labels.sort(key=lambda label: (-label[0], label[1]))
    width = len(labels[0][1])
    different = sorted(range(width), key=lambda i: len({label[1][i] for label in labels}))
    few, across, up = different[:-2], different[max(0, width - 2)], different[-1]
    stairs: dict[tuple[float, ...], tuple[list[float], list[float]]] = {}
    kept = []
    for position, label in enumerate(labels):
        if position % LOOK_UP == 0 and is_late():
            return None
        times = label[1]
        key = tuple([times[i] for i in few])
        if not any(_is_under(stair, times[across], times[up]) for other, stair in stairs.items() if _le(other, key)):
            kept.append(label)
            _put(stairs.setdefault(key, ([], [])), times[across], times[up])
    return kept


def _le(times: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(map(float.__le__, times, other))


def _is_under(stair: tuple[list[float], list[float]], x: float, y: float) -> bool:
    """Whether a point of the staircase is no later in either time."""
    position = bisect_right(stair[0], x)
    return position > 0 and stair[1][position - 1] <= y


def _put(stair: tuple[list[float], list[float]], x: float, y: float) -> None:
    xs, ys = stair
    first = last = bisect_left(xs, x)
    while last < len(xs) and ys[last] >= y:
        last += 1
    xs[first:last], ys[first:last] = [x], [y]


def _fewer(labels: Sequence[Label], count: int) -> list[Label]:
    """About `count`: the best qualities for every least makespan, the shortest one included."""
    shortest, longest = min(label[4] for label in labels), max(label[4] for label in labels)
    width = (longest - shortest) * PER_MAKESPAN / count or 1.0
    taken: dict[int, int] = {}
    kept = []
    for label in sorted(labels, key=lambda label: -label[0]):
        place = 1 + int((label[4] - shortest) / width) if label[4] > shortest else 0
        taken[place] = taken.get(place, 0) + 1
        if taken[place] <= PER_MAKESPAN:
            kept.append(label)
    return kept
