"""The LP relaxation that branch and bound solves again and again (ours): every node's duration, and T.

A node's most gain for a duration lies on the upper hull of its points: a first duration, and segments of falling slope,
each a column from 0 to its length. Of the starts only those of nodes with several predecessors are columns; every other
start is a sum of durations. What is split or dropped changes bounds and slopes, never the matrix, so that HiGHS goes on
from the basis of the last relaxation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
        self._least = np.zeros(len(fronts))
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
        chosen = [int(away[a:b].argmin()) for a, b in zip(self.first.tolist(), self.end.tolist(), strict=True)]
        splits = list[Split]()
        for node in np.nonzero(nearest > NEAR * self.unit_s)[0].tolist():
            start = int(self.first[node])
            legal = np.nonzero(found.allowed[start : self.end[node]])[0]
            seconds, gains = self.duration[start + legal], self.gain[start + legal]
            mixed_s = float(found.seconds[node])
            cut = int(np.searchsorted(seconds, mixed_s * (1 + ROUNDING) + ROUNDING, side="right"))
            chosen[node] = int(legal[max(cut, 1) - 1])
            if 0 < cut < len(legal):
                hull = self._hull(node, found.allowed)
                loss = float(np.interp(mixed_s, hull.seconds, hull.gains)) - float(gains[cut - 1])
                if loss > TOLERANCE:
                    splits.append(Split(loss, node, int(legal[cut])))
        return chosen, sorted(splits, key=lambda split: -split.loss)

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
            hull = upper_hull([self.fronts[node][k] for k in np.nonzero(mine)[0].tolist()])
            known = self._hulls[key] = _Hull.of(hull, self._segments[node], self.scale, self.unit_s)
        return known

    def _show(self, allowed: Bools) -> None:
        """Gives the solver the hulls of the nodes whose points are others than in the last relaxation."""
        changed = np.unique(self.node[allowed != self._shown])
        if not len(changed):
            return
        for node in changed.tolist():
            hull, column = self._hull(node, allowed), int(self._column[node])
            until = column + self._segments[node]
            self._lower[column] = hull.first
            self._upper[column:until], self._slope[column:until] = hull.upper, hull.slopes
        columns = np.nonzero(np.isin(self._of_column, changed))[0].astype(np.int32)
        self._solver.changeColsBounds(len(columns), columns, self._lower[columns], self._upper[columns])
        self._solver.changeColsCost(len(columns), columns, self._slope[columns])
        self._shown = allowed

    def _model(self) -> Any:
        columns = len(self._slope)
        self._of_column = np.repeat(np.arange(len(self.fronts)), self._segments)
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
            column = int(self._column[m])
            index.extend(range(column, column + self._segments[m]))
            value.extend([-1.0] * self._segments[m])
        rows.add(index, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hull:
    """Vertices in seconds and gain; as columns: the first duration, and upper bounds and slopes of the segments.

    The first column holds the first duration too. Columns in the solver's units.
    """

    seconds: list[float]
    gains: list[float]
    first: float
    upper: Floats
    slopes: Floats

    @classmethod
    def of(cls, hull: Sequence[Point], segments: int, scale: float, unit_s: float) -> _Hull:
        gains, seconds = [point[0] for point in hull], [point[1] for point in hull]
        upper, slopes = np.zeros(segments), np.zeros(segments)
        lengths = np.diff(seconds) / unit_s
        upper[: len(lengths)] = lengths
        slopes[: len(lengths)] = np.diff(gains) * scale / lengths
        upper[0] += seconds[0] / unit_s
        return cls(seconds=seconds, gains=gains, first=seconds[0] / unit_s, upper=upper, slopes=slopes)


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
