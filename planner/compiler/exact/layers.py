"""The search of `planner.compiler.exact.labels` with a layer of labels as one array, for large problems (ours).

Numpy is loaded at the first large problem only. Dominance is tested against the most promising labels of a layer: any
part of it is right, and the whole would take the square of their number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.compiler.exact.labels import NONE_LEFT, Explored, Layer, Stop, chosen_points
from planner.compiler.exact.order import Order
from planner.compiler.exact.points import Point
from planner.compiler.exact.steps import Step

Floats = npt.NDArray[np.float64]
DOMINATORS, FEW_DOMINATORS, NARROW = 32, 2, 4
"""Labels of a layer that the others are compared with; with more than NARROW values few are ever comparable."""
ROOM = 4
"""Labels per place in the beam that are tested for dominance; the rest is dropped before."""


def explore(
    order: Order, fronts: Sequence[Sequence[Point]], steps: Sequence[Step], floor: float, beam: int, stop: Stop
) -> Explored:
    """As `labels.explore`."""
    values: Floats = np.zeros((1, 1))
    promise: Floats = np.full(1, np.inf)
    trail: list[Layer] = []
    made, dropped = 0, NONE_LEFT
    for step in steps:
        if stop():
            return Explored(better=None, bound=max(dropped, float(promise[0])), labels=made)
        expanded, bounds = _expanded(values, step)
        parents, points = np.nonzero(bounds > floor)
        made += len(parents)
        if not len(parents):
            return Explored(better=None, bound=dropped, labels=made)
        values, promise = expanded[parents, points], bounds[parents, points]
        best = np.argsort(-promise, kind="stable")
        if len(best) > ROOM * beam:
            dropped = max(dropped, float(promise[best[ROOM * beam]]))
            best = best[: ROOM * beam]
        best = best[_undominated(values[best])]
        if len(best) > beam:
            dropped = max(dropped, float(promise[best[beam]]))
            best = best[:beam]
        values, promise = values[best], promise[best]
        trail.append(list(zip(parents[best].tolist(), points[best].tolist(), strict=True)))
    ends = values.min(axis=1)
    last = int(ends.argmax())
    return Explored(better=(float(ends[last]), chosen_points(order, fronts, trail, last)), bound=dropped, labels=made)


def _expanded(values: Floats, step: Step) -> tuple[Floats, Floats]:
    """(labels x points x sets: values, labels x points: bound on what each can become)."""
    gain, cost = np.array(step.points).T
    start = values[:, step.waits].min(axis=1)
    carried = [values[:, source].min(axis=1) if source else np.full(len(values), np.inf) for source in step.moves]
    now = np.stack(carried, axis=1)[:, None, :] + gain[None, :, None]
    joined = now[:, :, step.joins]
    np.minimum(joined, start[:, None] + (gain - cost), out=joined)
    low = (now - np.array(step.least)).min(axis=2)
    np.minimum(now, low[:, :, None] + np.array(step.most), out=now)
    return now, np.minimum(now @ np.array(step.shares) + step.alone, low + step.gains)


def _undominated(values: Floats) -> npt.NDArray[np.bool_]:
    """Which labels stay, of labels in falling order of promise: no earlier one is at least as large in every value."""
    count, width = values.shape
    if width == 1:
        first = np.zeros(count, dtype=np.bool_)
        first[0] = True
        return first
    if width == 2:
        return _stairs(values)
    alive = np.ones(count, dtype=np.bool_)
    left = FEW_DOMINATORS if width > NARROW else DOMINATORS
    for position in range(count):
        if left == 0:
            break
        if alive[position]:
            alive[position + 1 :] &= ~(values[position] >= values[position + 1 :]).all(axis=1)
            left -= 1
    return alive


def _stairs(values: Floats) -> npt.NDArray[np.bool_]:
    """All of the dominance between two values: by the first in falling order, the second has to rise."""
    order = np.lexsort((-values[:, 1], -values[:, 0]))
    second = values[order, 1]
    higher = np.ones(len(order), dtype=np.bool_)
    higher[1:] = second[1:] > np.maximum.accumulate(second)[:-1]
    stays = np.zeros(len(order), dtype=np.bool_)
    stays[order[higher]] = True
    return stays
