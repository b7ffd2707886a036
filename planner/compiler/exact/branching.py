"""Branch and bound for what the search over partial plans leaves open (ours).

The LP relaxation may mix points of a node. Such a node is split into the points up to the mixed duration and those
beyond. Neither half holds the mix, and their hulls are lower than the whole one's: this bounds more than fixing single
points does. Of the nodes whose mix gains most over the best single point that is no slower, the one is split whose
halves lower the bound most: found by solving both the first time, then from what its splits did before (pseudo-costs).
HiGHS solves the relaxations, one after the other, each from the basis of the last.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from highspy import Highs, HighsLp, HighsModelStatus, MatrixFormat, ObjSense, kHighsInf

from planner.compiler.exact.bound import TOLERANCE, improved, makespan_of
from planner.compiler.exact.labels import Stop
from planner.compiler.exact.order import Order
from planner.compiler.exact.points import Point

Floats = npt.NDArray[np.float64]
SCALE = 1000.0
"""Most that a node can gain, as the solver sees it: its tolerances are absolute. Times are counted in the longest."""
LP_TOLERANCE = 1e-9
CLOSED = 1e-9
"""A relaxation that is better than the incumbent by less is no better: so exact are its values."""
ROUNDING = 1e-12
MIXED = 1e-6
"""A node mixes points when none has more than 1 - MIXED."""
CANDIDATES = 8
"""Nodes that are compared before one of them is split."""
WEAKER_HALF = 5.0
"""How much more the half that lowers the bound less counts: both have to be closed."""
EVERY = 8
"""Every so many relaxations the rounded plan is improved node by node; the first EVERY always are."""


class Unsolved(ArithmeticError):
    """The solver gave no optimal answer to a relaxation, which always has one."""


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

    At most `most` relaxations; what is still open then, or at `stop()`, has its bound. Where the solver fails nothing
    is bounded: infinity.
    """
    tree = _Tree(_Relaxation(order, fronts, price), objective, accepted_gap)
    try:
        _grow(tree, most, stop)
    except Unsolved:
        tree.rule_out(float("inf"))
    if tree.open:
        tree.rule_out(tree.value)
    bound = tree.ruled_out if tree.ruled_out - tree.best > CLOSED else tree.best
    return Branched(objective=tree.best, choice=tree.chosen, bound=bound, relaxations=tree.relaxation.solved)


def _grow(tree: _Tree, most: int, stop: Stop) -> None:
    tree.add(tree.relaxation.solve(tree.relaxation.all, tree.floor))
    while tree.open and tree.value > tree.floor and tree.relaxation.solved < most and not stop():
        found = tree.pop()
        rounded, splits = tree.relaxation.rounded(found)
        tree.reach(rounded, stop)
        if splits:
            for half in tree.split(found, splits):
                tree.add(half)
        else:
            tree.rule_out(found.value)  # no mix: the rounded plan is as good as the relaxation


@dataclass(frozen=True, slots=True)
class _Split:
    """A node to split at one of its points; `loss`: by how much its mix gains more than the best point before it."""

    loss: float
    node: int
    point: int


class _Tree:
    """The incumbent (`best`, `chosen`), the relaxations that are open, and a bound on all that are not."""

    def __init__(self, relaxation: _Relaxation, objective: float, accepted_gap: float) -> None:
        self.relaxation, self.accepted_gap = relaxation, accepted_gap
        self.best, self.ruled_out = objective, float("-inf")
        self.chosen: list[int] | None = None
        self.open: list[tuple[float, int, _Solved]] = []
        self._drops: dict[int, list[tuple[float, float]]] = {}
        self._added = 0

    @property
    def floor(self) -> float:
        """Plans that are no better than this are not looked for."""
        return self.best + max(CLOSED, self.accepted_gap * abs(self.best))

    @property
    def value(self) -> float:
        """The best of the open relaxations."""
        return -self.open[0][0]

    def pop(self) -> _Solved:
        return heapq.heappop(self.open)[2]

    def add(self, found: _Solved) -> None:
        if found.value <= self.floor:
            self.rule_out(found.value)
            return
        self.rule_out(found.dropped)
        self._added += 1
        heapq.heappush(self.open, (-found.value, self._added, found))

    def rule_out(self, value: float) -> None:
        self.ruled_out = max(self.ruled_out, value)

    def reach(self, rounded: list[int], stop: Stop) -> None:
        """Takes a plan as the incumbent where it is better, improved node by node every so often."""
        relaxation, objective = self.relaxation, self.relaxation.objective(rounded)
        if self._added <= EVERY or self._added % EVERY == 0:
            objective, rounded = improved(relaxation.order, relaxation.fronts, relaxation.price, rounded, stop)
        if objective > self.best:
            self.best, self.chosen = objective, rounded

    def split(self, found: _Solved, splits: Sequence[_Split]) -> tuple[_Solved, _Solved]:
        """The halves of the split that lowers the bound most; splits of a node that is new are solved to see."""
        best: tuple[float, _Split, tuple[_Solved, _Solved] | None] | None = None
        for split in splits[:CANDIDATES]:
            known, halves = self._drops.get(split.node), None
            if known is None:
                halves = self._halves(found, split)
                drops = found.value - halves[0].value, found.value - halves[1].value
            else:
                faster, slower = (split.loss * sum(part) / len(known) for part in zip(*known, strict=True))
                drops = faster, slower
            score = WEAKER_HALF * min(drops) + max(drops)
            if best is None or score > best[0]:
                best = score, split, halves
        if best is None:
            raise ValueError("there is nothing to split")
        return best[2] or self._halves(found, best[1])

    def _halves(self, found: _Solved, split: _Split) -> tuple[_Solved, _Solved]:
        faster, slower = (
            self.relaxation.solve(allowed, self.floor) for allowed in self.relaxation.halves(found.allowed, split)
        )
        drops = (found.value - faster.value) / split.loss, (found.value - slower.value) / split.loss
        self._drops.setdefault(split.node, []).append(drops)
        return faster, slower


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
        # What the solver sees counts from each node's least gain, in units of the largest range and longest duration.
        least = np.minimum.reduceat(self.gain, self.first)
        more = self.gain - np.repeat(least, sizes)
        self.base, self.scale = float(least.sum()), SCALE / (float(more.max()) or 1.0)
        self.unit_s = float(self.duration.max()) or 1.0
        self.solved = 0
        self._upper = self.all
        self._solver = self._model(self.scale * more, self.duration / self.unit_s)

    def solve(self, allowed: Floats, floor: float) -> _Solved:
        """Of the allowed points; those whose reduced cost leaves no plan above `floor` are dropped.

        Raises Unsolved where the solver does not call its answer optimal.
        """
        changed = np.nonzero(allowed != self._upper)[0].astype(np.int32)
        if len(changed):
            self._solver.changeColsBounds(len(changed), changed, np.zeros(len(changed)), allowed[changed])
            self._upper = allowed
        self._solver.run()
        self.solved += 1
        if self._solver.getModelStatus() != HighsModelStatus.kOptimal:
            raise Unsolved(f"a relaxation ended as {self._solver.getModelStatus()}")
        solution = self._solver.getSolution()
        value = self.base + self._solver.getInfo().objective_function_value / self.scale
        mix = np.array(solution.col_value[: len(self.gain)])
        with_it = value - np.abs(np.array(solution.col_dual[: len(self.gain)])) / self.scale
        out = (allowed > 0) & (mix < MIXED) & (with_it <= floor)
        dropped = float(with_it[out].max()) if out.any() else float("-inf")
        return _Solved(value=value, mix=mix, allowed=np.where(out, 0.0, allowed), dropped=dropped)

    def rounded(self, found: _Solved) -> tuple[list[int], list[_Split]]:
        """Of each node the best point no slower than its mix, and the splits of the nodes that gain by mixing."""
        largest = np.maximum.reduceat(found.mix, self.first)
        slower = np.add.reduceat(found.mix * self.duration, self.first)
        gained = np.add.reduceat(found.mix * self.gain, self.first)
        chosen, splits = self._argmax(found.mix), list[_Split]()
        for node in np.nonzero(largest < 1 - MIXED)[0].tolist():
            start, end = int(self.first[node]), int(self.end[node])
            legal = np.nonzero(found.allowed[start:end])[0]
            seconds = self.duration[start:end][legal]
            cut = int(np.searchsorted(seconds, slower[node] * (1 + ROUNDING) + ROUNDING, side="right"))
            cut = min(max(cut, 1), len(legal) - 1)
            chosen[node] = int(legal[cut - 1])
            loss = float(gained[node]) - float(self.gain[start + legal[cut - 1]])
            if loss > TOLERANCE:
                splits.append(_Split(loss, node, int(legal[cut])))
        return chosen, sorted(splits, key=lambda split: -split.loss)

    def _argmax(self, mix: Floats) -> list[int]:
        return [int(mix[a:b].argmax()) for a, b in zip(self.first, self.end, strict=True)]

    def halves(self, allowed: Floats, split: _Split) -> tuple[Floats, Floats]:
        """The node's points before the split, and from it on."""
        start, end = int(self.first[split.node]), int(self.end[split.node])
        faster, slower = allowed.copy(), allowed.copy()
        faster[start + split.point : end] = 0.0
        slower[start : start + split.point] = 0.0
        return faster, slower

    def objective(self, chosen: Sequence[int]) -> float:
        points = [front[k] for front, k in zip(self.fronts, chosen, strict=True)]
        makespan = makespan_of(self.order, [point[1] for point in points])
        return sum([point[0] for point in points]) - self.price * makespan

    def _model(self, gain: Floats, duration: Floats) -> Any:
        points, nodes = len(gain), len(self.fronts)
        rows = _Rows()
        for n in range(nodes):
            mine = range(int(self.first[n]), int(self.end[n]))
            takes = [-float(duration[i]) for i in mine]
            rows.add(mine, [1.0] * len(mine), 1.0, 1.0)
            for m in self.order.predecessors[n] or (None,):
                before = ([], []) if m is None else ([points + m], [-1.0])
                rows.add([points + n, *before[0], *mine], [1.0, *before[1], *takes], 0.0, kHighsInf)
            if not self.order.successors[n]:
                rows.add([points + nodes, points + n], [1.0, -1.0], 0.0, kHighsInf)
        lp = HighsLp()
        lp.num_col_, lp.num_row_ = points + nodes + 1, len(rows.lower)
        lp.col_cost_ = np.concatenate((gain, np.zeros(nodes), [-self.scale * self.price * self.unit_s]))
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
