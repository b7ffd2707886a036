"""Nodes in series and in parallel as one node, before branching (ours; series-parallel reduction of a DAG).

Two nodes in series, of which only the second waits for the first, which waits for nothing else, take the sum of their
durations; two that wait for the same nodes and are waited for by the same take the longer one. The merged front is
exact: its hull is below the sum of the hulls where nodes are parallel, which is what branching gains by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.compiler.exact.order import Order
from planner.compiler.exact.points import Point

MOST_POINTS = 100
"""Of a merged front: larger ones are slower than what they save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """The smaller DAG; `expanded` gives the positions of the nodes it was made from."""

    order: Order
    fronts: list[list[Point]]
    _merges: list[_Merge]
    _alive: list[int]
    _count: int

    def expanded(self, choice: Sequence[int]) -> list[int]:
        chosen = dict(zip(self._alive, choice, strict=True))
        for merge in reversed(self._merges):
            chosen[merge.first], chosen[merge.second] = merge.made_of[chosen.pop(merge.first)]
        return [chosen[n] for n in range(self._count)]


@dataclass(frozen=True, slots=True)
class _Merge:
    """`second` became a part of `first`; per point of the merged front the positions in both."""

    first: int
    second: int
    made_of: list[tuple[int, int]]


def reduced(order: Order, fronts: Sequence[Sequence[Point]], rates: Sequence[float], room: float) -> Reduced:
    """`rates`: a flow through the DAG; points that give up more than `room` by it are in no better plan."""
    work = _Reduction(order, fronts, rates, room)
    work.run()
    return work.result()


class _Reduction:
    """The DAG as it shrinks: `before` and `after` by the nodes that are left, their fronts and the points' losses."""

    def __init__(self, order: Order, fronts: Sequence[Sequence[Point]], rates: Sequence[float], room: float) -> None:
        self.original, self.room, self.count = order, room, len(fronts)
        self.fronts = [list(front) for front in fronts]
        self.lost = [_lost(front, rate) for front, rate in zip(fronts, rates, strict=True)]
        self.before, self.after = _without_detours(order)
        self.merges = list[_Merge]()

    def run(self) -> None:
        merged = True
        while merged:
            merged = self._parallel() | self._series()

    def result(self) -> Reduced:
        alive = [n for n in range(self.count) if n in self.before]
        number = {n: i for i, n in enumerate(alive)}
        order = replace(
            self.original,
            order=tuple([number[n] for n in self.original.order if n in number]),
            predecessors=tuple([tuple(sorted(number[m] for m in self.before[n])) for n in alive]),
            successors=tuple([tuple(sorted(number[m] for m in self.after[n])) for n in alive]),
            sets=(),
            waiting=(),
            origin=(),
        )
        return Reduced(
            order=order,
            fronts=[self.fronts[n] for n in alive],
            _merges=self.merges,
            _alive=alive,
            _count=self.count,
        )

    def _parallel(self) -> bool:
        merged, alike = False, dict[tuple[frozenset[int], frozenset[int]], int]()
        for n in self.original.order:
            if n not in self.before:
                continue
            key = frozenset(self.before[n]), frozenset(self.after[n])
            other = alike.setdefault(key, n)
            if other != n and self._merge(other, n, parallel=True):
                for m in self.before[n]:
                    self.after[m].discard(n)
                for m in self.after[n]:
                    self.before[m].discard(n)
                del self.before[n], self.after[n]
                merged = True
        return merged

    def _series(self) -> bool:
        merged = False
        for n in reversed(self.original.order):
            if n not in self.before or len(self.after[n]) != 1:
                continue
            (m,) = self.after[n]
            if len(self.before[m]) == 1 and self._merge(n, m, parallel=False):
                self.after[n] = self.after[m]
                for k in self.after[n]:
                    self.before[k].discard(m)
                    self.before[k].add(n)
                del self.before[m], self.after[m]
                merged = True
        return merged

    def _merge(self, first: int, second: int, *, parallel: bool) -> bool:
        """The front of both as that of `first`; False, and nothing changed, where it has too many points."""
        left, right = self.fronts[first], self.fronts[second]
        ranked: list[tuple[float, float, float, tuple[int, int]]] = []
        for i, (a, lost) in enumerate(zip(left, self.lost[first], strict=True)):
            for k, (b, also) in enumerate(zip(right, self.lost[second], strict=True)):
                if lost + also <= self.room:
                    seconds = max(a[1], b[1]) if parallel else a[1] + b[1]
                    ranked.append((seconds, -(a[0] + b[0]), lost + also, (i, k)))
        front, losses, made_of = list[Point](), list[float](), list[tuple[int, int]]()
        for seconds, minus_gain, lost, pair in sorted(ranked):
            if not front or -minus_gain > front[-1][0]:
                front.append((-minus_gain, seconds, len(front)))
                losses.append(lost)
                made_of.append(pair)
        if not 0 < len(front) <= MOST_POINTS:  # 0: rounding, where the incumbent is as good as the bound
            return False
        self.fronts[first], self.lost[first] = front, losses
        self.merges.append(_Merge(first, second, made_of))
        return True


def _lost(front: Sequence[Point], rate: float) -> list[float]:
    """What each point gives up to the best one when its node pays `rate` a second: its reduced cost."""
    values = [gain - rate * seconds for gain, seconds, _ in front]
    best = max(values)
    return [best - value for value in values]


def _without_detours(order: Order) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """(predecessors, successors) without the edges that a longer path makes superfluous."""
    above: dict[int, int] = {}
    before: dict[int, set[int]] = {}
    after: dict[int, set[int]] = {n: set() for n in order.order}
    for n in order.order:
        above[n] = 0
        for m in order.predecessors[n]:
            above[n] |= above[m] | 1 << m
        before[n] = {m for m in order.predecessors[n] if not any(above[o] >> m & 1 for o in order.predecessors[n])}
        for m in before[n]:
            after[m].add(n)
    return before, after
