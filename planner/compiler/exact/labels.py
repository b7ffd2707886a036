"""The search over partial plans, node by node in the order of decision (ours), in plain Python for small problems.

Whatever follows adds the same to the values of two labels (planner.compiler.exact.steps), so one dominates another when
it is no smaller in any value: with one set a single label is left, with two a staircase.

Between the shortest and the longest continuation of each set, times that can no longer be on the longest path count as
equal: every value is lowered as far as that changes no objective. So labels dominate each other that would not
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import ge

from planner.compiler.exact.order import Order
from planner.compiler.exact.points import Point
from planner.compiler.exact.steps import Step

Stop = Callable[[], bool]
NONE_LEFT = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """`better`: (objective, position per node) of the best plan found above the floor, or None.

    `bound` is that of the labels that were dropped, -inf when there were none; `labels` were made.
    """

    better: tuple[float, tuple[int, ...]] | None
    bound: float
    labels: int


Layer = list[tuple[int, int]]
"""Of every label the position of the one before, and of the point that was chosen."""


def chosen_points(
    order: Order, fronts: Sequence[Sequence[Point]], trail: Sequence[Layer], last: int
) -> tuple[int, ...]:
    """Positions of the chosen columns in file order of the nodes, of the label at `last` in the last layer."""
    chosen = [-1] * len(fronts)
    for node, layer in zip(reversed(order.order), reversed(trail), strict=True):
        last, k = layer[last]
        chosen[node] = fronts[node][k][2]
    return tuple(chosen)


_Label = tuple[float, tuple[float, ...], int, int]
"""(bound on what it can become, its values, position of the label before, point chosen)."""


def explore(
    order: Order, fronts: Sequence[Sequence[Point]], steps: Sequence[Step], floor: float, beam: int, stop: Stop
) -> Explored:
    """Layer by layer with at most `beam` labels each, of which none can end at or below `floor`."""
    labels: list[_Label] = [(float("inf"), (0.0,), -1, -1)]
    trail: list[Layer] = []
    made, dropped = 0, NONE_LEFT
    for step in steps:
        if stop():
            return Explored(better=None, bound=max(dropped, labels[0][0]), labels=made)
        labels = _expanded(labels, step, floor)
        made += len(labels)
        if not labels:
            return Explored(better=None, bound=dropped, labels=made)
        labels = _undominated(labels)
        if len(labels) > beam:
            dropped = max(dropped, labels[beam][0])
            labels = labels[:beam]
        trail.append([(parent, k) for _, _, parent, k in labels])
    ends = [min(values) for _, values, _, _ in labels]
    best = max(range(len(ends)), key=ends.__getitem__)
    return Explored(better=(ends[best], chosen_points(order, fronts, trail, best)), bound=dropped, labels=made)


def _expanded(labels: Sequence[_Label], step: Step, floor: float) -> list[_Label]:
    """Every label with every point of the next node, without those that can be no better than the incumbent."""
    waits, moves, joins, shares, least, most = step.waits, step.moves, step.joins, step.shares, step.least, step.most
    alone, gains, points = step.alone, step.gains, step.points
    expanded: list[_Label] = []
    for parent, (_, values, _, _) in enumerate(labels):
        start = min([values[p] for p in waits])
        carried = [min([values[p] for p in source], default=float("inf")) for source in moves]
        for k, (gain, cost) in enumerate(points):
            now = [value + gain for value in carried]
            finish = start + gain - cost
            if finish < now[joins]:
                now[joins] = finish
            low = min([value - tail for value, tail in zip(now, least, strict=True)])
            if low + gains <= floor:
                continue
            now = [value if value < low + tail else low + tail for value, tail in zip(now, most, strict=True)]
            promise = alone
            for share, value in zip(shares, now, strict=True):
                promise += share * value
            if promise > floor:
                expanded.append((min(promise, low + gains), tuple(now), parent, k))
    return expanded


def _undominated(labels: list[_Label]) -> list[_Label]:
    """Labels that no other one dominates, most promising first (a dominating one never is less); ties: the first."""
    if len(labels) == 1:
        return labels
    labels.sort(key=_promise, reverse=True)
    if len(labels[0][1]) == 1:
        return labels[:1]
    kept: list[_Label] = []
    for label in labels:
        values = label[1]
        for other in kept:
            if all(map(ge, other[1], values)):
                break
        else:
            kept.append(label)
    return kept


def _promise(label: _Label) -> float:
    return label[0]
