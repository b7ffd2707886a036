"""Branch and bound for what the search over partial plans leaves open (ours).

The LP relaxation may mix points of a node. A node is branched on where its mix gains most over the best single point
that is no slower: into the points up to the mixed duration and those beyond. Neither half holds the mix, and their
hulls are lower than the whole one's: this bounds more than fixing single points does. HiGHS solves the relaxations, one
after the other, each from the basis of the last.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from highspy import Highs, HighsLp, MatrixFormat, ObjSense, kHighsInf

from planner.compiler.exact.bound import TOLERANCE, improved, makespan_of
from planner.compiler.exact.labels import Stop
from planner.compiler.exact.order import Order
from planner.compiler.exact.points import Point

Floats = npt.NDArray[np.float64]
SCALE = 1000.0
"""The objective is of order 1; the solver's tolerances are absolute."""
LP_TOLERANCE = 1e-9
CLOSED = 1e-9
"""A relaxation that is better than the incumbent by less is no better: so exact are its values."""
MIXED = 1e-6
"""A node mixes points when none has more than 1 - MIXED."""
EVERY = 8
"""Every so many relaxations the rounded plan is improved node by node; the first EVERY always are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branched:
    """The best choice found (a point per node, None: none above the given objective), and a bound on every other."""

    objective: float
    choice: list[int] | None
    bound: float
    relaxations: int


def branch(
    order: Order,
    fronts: Sequence[Sequence[Point]],
    price: float,
    objective: float,
    *,
    accepted_gap: float,
    most: int,
    stop: Stop,
) -> Branched:
    """Best bound first, until every plan better than `objective` by more than the accepted gap is ruled out or found.

    At most `most` relaxations; what is still open then, or at `stop()`, has its bound.
    """
    relaxation = _Relaxation(order, fronts, price)
    best, chosen, ruled_out, solved = objective, None, float("-inf"), 1
    floor = best + max(CLOSED, accepted_gap * abs(best))
    found = relaxation.solve(relaxation.all, floor)
    ruled_out = max(ruled_out, found.dropped)
    open_nodes = [(-found.value, 0, found)]
    while open_nodes:
        floor = best + max(CLOSED, accepted_gap * abs(best))
        value = -open_nodes[0][0]
        if value <= floor or solved >= most or stop():
            ruled_out = max(ruled_out, value)
            break
        _, _, found = heapq.heappop(open_nodes)
        allowed, mix = found.allowed, found.mix
        rounded, node, split = relaxation.rounded(mix, allowed)
        reached = relaxation.objective(rounded)
        if solved < EVERY or solved % EVERY == 0:
            reached, rounded = improved(order, fronts, price, rounded, stop)
        if reached > best:
            best, chosen = reached, rounded
        if node < 0:
            ruled_out = max(ruled_out, value)  # no mix: the rounded plan is as good as the relaxation
            continue
        floor = best + max(CLOSED, accepted_gap * abs(best))
        for half in relaxation.halves(allowed, node, split):
            found = relaxation.solve(half, floor)
            solved += 1
            if found.value > floor:
                ruled_out = max(ruled_out, found.dropped)
                heapq.heappush(open_nodes, (-found.value, solved, found))
            else:
                ruled_out = max(ruled_out, found.value)
    bound = ruled_out if ruled_out - best > CLOSED else best
    return Branched(objective=best, choice=chosen, bound=bound, relaxations=solved)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    """A relaxation: its value bounds the plans of its points, `mix` reaches it. `allowed`: points that are still open.

    `dropped` bounds the plans with one of the other points.
    """

    value: float
    mix: Floats
    allowed: Floats
    dropped: float


class _Relaxation:
    """x mixes each node's points, finish(n) >= finish(m) + duration(n), T >= finish; one LP whose bounds change."""

    def __init__(self, order: Order, fronts: Sequence[Sequence[Point]], price: float) -> None:
        self.order, self.fronts, self.price = order, fronts, price
        sizes = [len(front) for front in fronts]
        self.first = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
        self.end = np.cumsum(sizes)
        self.gain = np.array([point[0] for front in fronts for point in front])
        self.duration = np.array([point[1] for front in fronts for point in front])
        self.all: Floats = np.ones(len(self.gain))
        self._upper = self.all
        self._solver = self._model()

    def solve(self, allowed: Floats, floor: float) -> _Solved:
        """Of the allowed points; those whose reduced cost leaves no plan above `floor` are dropped."""
        changed = np.nonzero(allowed != self._upper)[0].astype(np.int32)
        if len(changed):
            self._solver.changeColsBounds(len(changed), changed, np.zeros(len(changed)), allowed[changed])
            self._upper = allowed
        self._solver.run()
        solution, value = self._solver.getSolution(), self._solver.getInfo().objective_function_value / SCALE
        mix = np.array(solution.col_value[: len(self.gain)])
        with_it = value - np.abs(np.array(solution.col_dual[: len(self.gain)])) / SCALE
        out = (allowed > 0) & (mix < MIXED) & (with_it <= floor)
        dropped = float(with_it[out].max()) if out.any() else float("-inf")
        return _Solved(value=value, mix=mix, allowed=np.where(out, 0.0, allowed), dropped=dropped)

    def rounded(self, mix: Floats, allowed: Floats) -> tuple[list[int], int, int]:
        """(of each node the best point no slower than its mix, the node to branch on, its first slower point).

        The node is -1 where no node gains by mixing.
        """
        largest = np.maximum.reduceat(mix, self.first)
        slower = np.add.reduceat(mix * self.duration, self.first)
        gained = np.add.reduceat(mix * self.gain, self.first)
        chosen = [int(i) for i in self._argmax(mix)]
        node, split, most = -1, 0, TOLERANCE
        for mixed in np.nonzero(largest < 1 - MIXED)[0].tolist():
            start, end = int(self.first[mixed]), int(self.end[mixed])
            legal = np.nonzero(allowed[start:end])[0]
            seconds = self.duration[start:end][legal]
            cut = int(np.searchsorted(seconds, slower[mixed] * (1 + 1e-12) + 1e-12, side="right"))
            cut = min(max(cut, 1), len(legal) - 1)
            chosen[mixed] = int(legal[cut - 1])
            loss = float(gained[mixed]) - float(self.gain[start + legal[cut - 1]])
            if loss > most:
                node, split, most = mixed, int(legal[cut]), loss
        return chosen, node, split

    def _argmax(self, mix: Floats) -> list[int]:
        return [int(mix[a:b].argmax()) for a, b in zip(self.first, self.end, strict=True)]

    def halves(self, allowed: Floats, node: int, split: int) -> tuple[Floats, Floats]:
        """The node's points before `split`, and from it on."""
        start, end = int(self.first[node]), int(self.end[node])
        faster, slower = allowed.copy(), allowed.copy()
        faster[start + split : end] = 0.0
        slower[start : start + split] = 0.0
        return faster, slower

    def objective(self, chosen: Sequence[int]) -> float:
        points = [front[k] for front, k in zip(self.fronts, chosen, strict=True)]
        makespan = makespan_of(self.order, [point[1] for point in points])
        return sum([point[0] for point in points]) - self.price * makespan

    def _model(self) -> Any:
        points, nodes = len(self.gain), len(self.fronts)
        rows = _Rows()
        for n in range(nodes):
            mine = range(int(self.first[n]), int(self.end[n]))
            takes = [-float(self.duration[i]) for i in mine]
            rows.add(mine, [1.0] * len(mine), 1.0, 1.0)
            for m in self.order.predecessors[n] or (None,):
                before = ([], []) if m is None else ([points + m], [-1.0])
                rows.add([points + n, *before[0], *mine], [1.0, *before[1], *takes], 0.0, kHighsInf)
            if not self.order.successors[n]:
                rows.add([points + nodes, points + n], [1.0, -1.0], 0.0, kHighsInf)
        lp = HighsLp()
        lp.num_col_, lp.num_row_ = points + nodes + 1, len(rows.lower)
        lp.col_cost_ = np.concatenate((SCALE * self.gain, np.zeros(nodes), [-SCALE * self.price]))
        lp.col_lower_ = np.zeros(lp.num_col_)
        lp.col_upper_ = np.concatenate((self.all, np.full(nodes + 1, kHighsInf)))
        lp.row_lower_, lp.row_upper_ = np.array(rows.lower), np.array(rows.upper)
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


class _Rows:
    """A sparse matrix row by row."""

    def __init__(self) -> None:
        self.start, self.index, self.value = [0], list[int](), list[float]()
        self.lower, self.upper = list[float](), list[float]()

    def add(self, index: Sequence[int], value: Sequence[float], lower: float, upper: float) -> None:
        self.index.extend(index)
        self.value.extend(value)
        self.start.append(len(self.index))
        self.lower.append(lower)
        self.upper.append(upper)
