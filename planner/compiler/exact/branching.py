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

from planner.compiler.exact.bound import improved
from planner.compiler.exact.labels import Stop
from planner.compiler.exact.order import Order
from planner.compiler.exact.points import Point
from planner.compiler.exact.relaxation import Relaxation, Solved, Split, Unsolved

CLOSED = 1e-9
"""A relaxation that is better than the incumbent by less is no better: so exact are its values."""
CANDIDATES = 12
"""Nodes that are compared before one of them is split."""
WEAKER_HALF = 5.0
"""How much more the half that lowers the bound less counts: both have to be closed."""
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

    At most `most` relaxations; what is still open then, or at `stop()`, has its bound. Where the solver fails nothing
    is bounded: infinity.
    """
    tree = _Tree(Relaxation(order, fronts, price), objective, accepted_gap)
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


class _Tree:
    """The incumbent (`best`, `chosen`), the relaxations that are open, and a bound on all that are not."""

    def __init__(self, relaxation: Relaxation, objective: float, accepted_gap: float) -> None:
        self.relaxation, self.accepted_gap = relaxation, accepted_gap
        self.best, self.ruled_out = objective, float("-inf")
        self.chosen: list[int] | None = None
        self.open: list[tuple[float, int, Solved]] = []
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

    def pop(self) -> Solved:
        return heapq.heappop(self.open)[2]

    def add(self, found: Solved) -> None:
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

    def split(self, found: Solved, splits: Sequence[Split]) -> tuple[Solved, Solved]:
        """The halves of the split that lowers the bound most; splits of a node that is new are solved to see."""
        best: tuple[float, Split, tuple[Solved, Solved] | None] | None = None
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

    def _halves(self, found: Solved, split: Split) -> tuple[Solved, Solved]:
        faster, slower = (
            self.relaxation.solve(allowed, self.floor) for allowed in self.relaxation.halves(found.allowed, split)
        )
        drops = (found.value - faster.value) / split.loss, (found.value - slower.value) / split.loss
        self._drops.setdefault(split.node, []).append(drops)
        return faster, slower
