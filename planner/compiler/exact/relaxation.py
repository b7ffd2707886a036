"""The LP relaxation that branch and bound solves again and again (ours): every node's duration, and T.

A node's most gain for a duration lies on the upper hull of its points: a first duration, and segments of falling slope,
each a column from 0 to its length. Of the starts only those of nodes with several predecessors are columns; every other
start is a sum of durations. What is split or dropped changes bounds and slopes, never the matrix, so that HiGHS goes on
from the basis of the last relaxation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from highspy import Highs, HighsLp, HighsModelStatus, MatrixFormat, ObjSense, kHighsInf

from planner.compiler.exact.bound import TOLERANCE, makespan_of
from planner.compiler.exact.order import Order
from planner.compiler.exact.points import Point, upper_hull

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
SCALE = 1000.0
"""Most that a node can gain, as the solver sees it: its tolerances are absolute. Times are counted in the longest."""
LP_TOLERANCE = 1e-9
ROUNDING = 1e-12
NEAR = 1e-7
"""Of the longest duration: a node whose duration is so near to a point's does not mix."""
MOST_SUMMED = 8
"""Durations in the sum that is a node's start, where several nodes share it: beyond, the start is a column."""


class Unsolved(ArithmeticError):
    """The solver gave no optimal answer to a relaxation, which always has one."""


@dataclass(frozen=True, slots=True)
class Split:
    """A node to split at one of its points; `loss`: by how much its mix gains more than the best point before it."""

    loss: float
    node: int
    point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A relaxation: its `value` bounds the plans of its points; `seconds` of each node, `rate`: what one of them costs.

    `allowed`: points that are still open; `dropped` bounds the plans with one of the others.
    """

    value: float
    seconds: Floats
    rate: Floats
    allowed: Bools
    dropped: float


class Relaxation:
    """Most gain less price of T, where start(n) >= start(m) + duration(m) for every edge; one LP."""

    def __init__(self, order: Order, fronts: Sequence[Sequence[Point]], price: float) -> None:
        self.order, self.fronts, self.price = order, fronts, price
        sizes = [len(front) for front in fronts]
        self.first, self.end = _starts(sizes), np.cumsum(sizes)
        self.node = np.repeat(np.arange(len(fronts)), sizes)
        self.gain = np.array([point[0] for front in fronts for point in front])
        self.duration = np.array([point[1] for front in fronts for point in front])
        self.all: Bools = np.ones(len(self.gain), dtype=np.bool_)
        largest = max(front[-1][0] - front[0][0] for front in fronts)
        self.scale, self.unit_s = SCALE / (largest or 1.0), float(self.duration.max()) or 1.0
        self.solved = 0
        segments = [max(1, size - 1) for size in sizes]
        self._column, self._segments = _starts(segments), segments
        runs = zip(self._column.tolist(), segments, strict=True)
        self._columns = [np.arange(column, column + count, dtype=np.int32) for column, count in runs]
        self._lower, self._upper, self._slope = (np.zeros(sum(segments)) for _ in range(3))
        self._hulls: dict[tuple[int, bytes], _Hull] = {}
        self._shown: Bools = np.zeros(len(self.gain), dtype=np.bool_)
        self._solver = self._model()

    def solve(self, allowed: Bools, floor: float) -> Solved:
        """Of the allowed points; those whose reduced cost leaves no plan above `floor` are dropped.

        Raises Unsolved where the solver does not call its answer optimal.
        """
        self._show(allowed)
        self._solver.run()
        self.solved += 1
        if self._solver.getModelStatus() != HighsModelStatus.kOptimal:
            raise Unsolved(f"a relaxation ended as {self._solver.getModelStatus()}")
        solution, columns = self._solver.getSolution(), len(self._slope)
        seconds = np.add.reduceat(np.array(solution.col_value[:columns]), self._column) * self.unit_s
        cost = self._slope[self._column] - np.array(solution.col_dual[:columns])[self._column]
        rate = np.maximum(cost, 0.0) / (self.scale * self.unit_s)
        # The rates are a flow of value `price`: they bound by themselves, as exactly as sums are.
        values = self._values(rate, allowed)
        best = np.maximum.reduceat(values, self.first)
        value = float(best.sum())
        with_it = value - (best[self.node] - values)
        out = allowed & (with_it <= floor)
        dropped = float(with_it[out].max()) if out.any() else float("-inf")
        return Solved(value=value, seconds=seconds, rate=rate, allowed=allowed & ~out, dropped=dropped)

    def rounded(self, found: Solved) -> tuple[list[int], list[Split]]:
        """Of each node the best point no slower than its mix, and the splits of the nodes that gain by mixing."""
        values = self._values(found.rate, found.allowed)
        missed = np.maximum.reduceat(values, self.first)[self.node] - values
        away = np.where(missed * self.scale <= NEAR, np.abs(self.duration - found.seconds[self.node]), np.inf)
        nearest = np.minimum.reduceat(away, self.first)
        points = np.nonzero(away <= nearest[self.node])[0]
        chosen = np.zeros(len(nearest), dtype=np.int64)
        chosen[self.node[points]] = points - self.first[self.node[points]]
        splits = list[Split]()
        for node in np.nonzero(nearest > NEAR * self.unit_s)[0].tolist():
            hull, mixed_s = self._hull(node, found.allowed), float(found.seconds[node])
            cut = bisect_right(hull.seconds, mixed_s * (1 + ROUNDING) + ROUNDING)
            chosen[node] = hull.points[max(cut, 1) - 1]
            if 0 < cut < len(hull.points):
                loss = hull.most_gain(mixed_s) - hull.gains[cut - 1]
                if loss > TOLERANCE:
                    splits.append(Split(loss, node, hull.points[cut]))
        return chosen.tolist(), sorted(splits, key=lambda split: -split.loss)

    def halves(self, allowed: Bools, split: Split) -> tuple[Bools, Bools]:
        """The node's points before the split, and from it on."""
        start, end = int(self.first[split.node]), int(self.end[split.node])
        faster, slower = allowed.copy(), allowed.copy()
        faster[start + split.point : end] = False
        slower[start : start + split.point] = False
        return faster, slower

    def objective(self, chosen: Sequence[int]) -> float:
        points = [front[k] for front, k in zip(self.fronts, chosen, strict=True)]
        makespan = makespan_of(self.order, [point[1] for point in points])
        return sum([point[0] for point in points]) - self.price * makespan

    def _values(self, rate: Floats, allowed: Bools) -> Floats:
        """What each point is worth when its node pays `rate` a second; -inf where it is not allowed."""
        values: Floats = np.where(allowed, self.gain - rate[self.node] * self.duration, -np.inf)
        return values

    def _hull(self, node: int, allowed: Bools) -> _Hull:
        start, end = int(self.first[node]), int(self.end[node])
        mine = allowed[start:end]
        key = node, mine.tobytes()
        known = self._hulls.get(key)
        if known is None:
            points, front = np.nonzero(mine)[0].tolist(), self.fronts[node]
            known = _Hull.of(points, [front[k] for k in points], self._segments[node], self.scale, self.unit_s)
            self._hulls[key] = known
        return known

    def _show(self, allowed: Bools) -> None:
        """Gives the solver the hulls of the nodes whose points are others than in the last relaxation."""
        changed = np.nonzero(np.logical_or.reduceat(allowed != self._shown, self.first))[0].tolist()
        if not changed:
            return
        for node in changed:
            hull, mine = self._hull(node, allowed), self._columns[node]
            self._lower[mine[0]] = hull.first
            self._upper[mine], self._slope[mine] = hull.upper, hull.slopes
        columns = np.concatenate([self._columns[node] for node in changed])
        self._solver.changeColsBounds(len(columns), columns, self._lower[columns], self._upper[columns])
        self._solver.changeColsCost(len(columns), columns, self._slope[columns])
        self._shown = allowed

    def _model(self) -> Any:
        columns = len(self._slope)
        starts = _Starts(self.order)
        last = columns + len(starts.own)
        rows = _Rows()
        for n, before in starts.own.items():
            for m in before:
                self._follows(rows, columns + starts.number[n], starts, m)
        for n, after in enumerate(self.order.successors):
            if not after:
                self._follows(rows, last, starts, n)
        lp = HighsLp()
        lp.num_col_, lp.num_row_ = last + 1, len(rows.start) - 1
        lp.col_cost_ = np.concatenate((np.zeros(last), [-self.scale * self.price * self.unit_s]))
        lp.col_lower_ = np.zeros(lp.num_col_)
        lp.col_upper_ = np.full(lp.num_col_, kHighsInf)
        lp.row_lower_, lp.row_upper_ = np.zeros(lp.num_row_), np.full(lp.num_row_, kHighsInf)
        lp.a_matrix_.format_ = MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = np.array(rows.start), np.array(rows.index)
        lp.a_matrix_.value_ = np.array(rows.value)
        lp.sense_ = ObjSense.kMaximize
        solver = Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("presolve", "off")
        solver.setOptionValue("solver", "simplex")
        solver.setOptionValue("primal_feasibility_tolerance", LP_TOLERANCE)
        solver.setOptionValue("dual_feasibility_tolerance", LP_TOLERANCE)
        solver.passModel(lp)
        return solver

    def _follows(self, rows: _Rows, later: int, starts: _Starts, node: int) -> None:
        """A row: the column `later` is no less than when the node is done."""
        origin, summed = starts.sums[node]
        index, value = [later], [1.0]
        if origin is not None:
            index.append(len(self._slope) + starts.number[origin])
            value.append(-1.0)
        for m in summed:
            index.extend(self._columns[m].tolist())
            value.extend([-1.0] * self._segments[m])
        rows.add(index, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hull:
    """A node's allowed points (positions in its front, seconds, gains), and their hull as columns.

    `vertices`: (gain, seconds, ...) of the hull. In the solver's units: the `first` duration, and the segments' upper
    bounds and slopes; the first column holds the first duration too.
    """

    points: list[int]
    seconds: list[float]
    gains: list[float]
    vertices: list[Point]
    first: float
    upper: Floats
    slopes: Floats

    @classmethod
    def of(cls, points: list[int], front: Sequence[Point], segments: int, scale: float, unit_s: float) -> _Hull:
        hull = upper_hull(front)
        first = hull[0][1] / unit_s
        upper, slopes = np.zeros(segments), np.zeros(segments)
        for k, (left, right) in enumerate(pairwise(hull)):
            upper[k] = (right[1] - left[1]) / unit_s
            slopes[k] = (right[0] - left[0]) * scale * unit_s / (right[1] - left[1])
        upper[0] += first
        return cls(
            points=points,
            seconds=[point[1] for point in front],
            gains=[point[0] for point in front],
            vertices=hull,
            first=first,
            upper=upper,
            slopes=slopes,
        )

    def most_gain(self, seconds: float) -> float:
        """At a duration between the first and the last."""
        k = bisect_right(self.vertices, seconds, key=itemgetter(1)) - 1
        left, right = self.vertices[k], self.vertices[min(k + 1, len(self.vertices) - 1)]
        share = (seconds - left[1]) / (right[1] - left[1]) if right is not left else 0.0
        return left[0] + share * (right[0] - left[0])


class _Starts:
    """When each node is done, as (the node whose start is a column, or None for 0; nodes whose durations are added).

    `own`: the nodes whose start is a column, with the predecessors that it waits for; `number` counts them.
    """

    def __init__(self, order: Order) -> None:
        self.own: dict[int, tuple[int, ...]] = {}
        self.number: dict[int, int] = {}
        self.sums: dict[int, tuple[int | None, tuple[int, ...]]] = {}
        above: dict[int, int] = {}
        for n in order.order:
            before = order.predecessors[n]
            above[n] = 0
            for m in before:
                above[n] |= above[m] | 1 << m
            # A predecessor that another one waits for adds nothing.
            before = tuple([m for m in before if not any(above[other] >> m & 1 for other in before)])
            origin, summed = self.sums[before[0]] if before else (None, ())
            shared = len(summed) >= MOST_SUMMED and len(order.successors[before[0]]) > 1
            if len(before) > 1 or shared:
                self.number[n], self.own[n] = len(self.own), before
                origin, summed = n, ()
            self.sums[n] = origin, (*summed, n)


class _Rows:
    """A sparse matrix row by row."""

    def __init__(self) -> None:
        self.start, self.index, self.value = [0], list[int](), list[float]()

    def add(self, index: Sequence[int], value: Sequence[float]) -> None:
        self.index.extend(index)
        self.value.extend(value)
        self.start.append(len(self.index))


def _starts(sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """Where each of several runs of these lengths begins."""
    return np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
