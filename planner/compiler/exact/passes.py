"""Bound, incumbent, passes of the search from both ends, then branching, until the incumbent is proved."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.compiler.exact import labels
from planner.compiler.exact.bound import LARGE, TOLERANCE, Bound, improved, lagrangian_bound
from planner.compiler.exact.labels import Explored, Stop
from planner.compiler.exact.order import Order, Orders
from planner.compiler.exact.points import Point
from planner.compiler.exact.reduction import reduced
from planner.compiler.exact.steps import Step, steps_of

BEAM = 60
"""Labels a layer: a narrow pass finds better incumbents, with which fewer points are left for what follows."""
SMALL_BEAM = 100
MOST_RELAXATIONS = 50_000
"""Of branch and bound; what it holds open takes some kB each."""
Timer = Callable[[], float]
Explore = Callable[[Order, Sequence[Sequence[Point]], Sequence[Step], float, int, Stop], Explored]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`choice` holds the chosen position per node; `bound` None: proved optimal.

    `points` of all fronts; `kept`: the positions by node that no bound rules out; `labels` made by the search,
    `relaxations` solved by branching; `bound_s` and `search_s`: seconds up to the first incumbent, and after it.
    """

    choice: tuple[int, ...]
    objective: float
    bound: float | None
    points: int
    kept: tuple[tuple[int, ...], ...]
    labels: int
    relaxations: int
    bound_s: float
    search_s: float


def search(
    orders: Orders,
    fronts: Sequence[Sequence[Point]],
    price: float,
    *,
    deadline: float,
    timer: Timer = time.perf_counter,
    accepted_gap: float = 0.0,
) -> Found:
    """The best choice of one point per node, by position in file order; `price` of a second of makespan.

    Stops at a proven relative gap of at most `accepted_gap`.
    """
    started = timer()
    found = _Search(orders, fronts, price, lambda: timer() > deadline, accepted_gap)
    bounded = timer()
    if found.open and len(fronts) < LARGE:
        found.explore(labels.explore, backward=False, beam=SMALL_BEAM)
    if found.open:
        found.explore_widely()
    return Found(
        choice=found.choice,
        objective=found.objective,
        bound=found.bound if found.bound - found.objective > TOLERANCE else None,
        points=sum(map(len, fronts)),
        kept=tuple([tuple([point[2] for point in front]) for front in found.kept()]),
        labels=found.labels,
        relaxations=found.relaxations,
        bound_s=bounded - started,
        search_s=timer() - bounded,
    )


class _Search:
    """The incumbent (`objective`, `choice`) and the `bound`, as the passes improve them."""

    def __init__(self, orders: Orders, fronts: Sequence[Sequence[Point]], price: float, stop: Stop, gap: float) -> None:
        self.orders, self.fronts, self.price, self.stop, self.accepted_gap = orders, fronts, price, stop, gap
        self.flow = lagrangian_bound(orders.forward, fronts, price)
        self.objective, chosen = improved(orders.forward, fronts, price, self.flow.choice, stop)
        self.choice = tuple([front[k][2] for front, k in zip(fronts, chosen, strict=True)])
        self.bound, self.labels, self.relaxations = self.flow.value, 0, 0

    @property
    def open(self) -> bool:
        return self.bound - self.objective > max(TOLERANCE, self.accepted_gap * abs(self.objective))

    def kept(self) -> list[list[Point]]:
        return not_ruled_out(self.fronts, self.flow, self.objective)

    def explore_widely(self) -> None:
        """A pass in either direction, then branching."""
        from planner.compiler.exact import layers  # loads numpy

        for backward in (False, True):
            if self.open and not self.stop():
                self.explore(layers.explore, backward=backward, beam=BEAM)
        if self.open and not self.stop() and MOST_RELAXATIONS:
            self.branch()

    def branch(self) -> None:
        from planner.compiler.exact import branching  # loads HiGHS

        kept = self.kept()
        room = self.flow.value - self.objective + TOLERANCE
        smaller = reduced(self.orders.forward, kept, self.flow.node, room)
        found = branching.branch(
            smaller.order,
            smaller.fronts,
            self.price,
            self.objective,
            accepted_gap=self.accepted_gap,
            most=MOST_RELAXATIONS,
            stop=self.stop,
        )
        self.relaxations += found.relaxations
        if found.choice is not None:
            self.objective, chosen = found.objective, smaller.expanded(found.choice)
            self.choice = tuple([front[k][2] for front, k in zip(kept, chosen, strict=True)])
        self.bound = min(self.bound, max(found.bound, self.objective))

    def explore(self, explore: Explore, *, backward: bool, beam: int) -> None:
        order = self.orders.backward if backward else self.orders.forward
        flow, kept = self.flow.backward() if backward else self.flow, self.kept()
        steps = steps_of(order, kept, self.price, flow)
        found = explore(order, kept, steps, self.objective + TOLERANCE, beam, self.stop)
        self.labels += found.labels
        if found.better is not None:
            self.objective, self.choice = found.better
        self.bound = min(self.bound, max(found.bound, self.objective))


def not_ruled_out(fronts: Sequence[Sequence[Point]], bound: Bound, objective: float) -> list[list[Point]]:
    """Points whose reduced cost leaves room for a plan better than the incumbent."""
    room = bound.value - objective + TOLERANCE
    kept = []
    for front, rate in zip(fronts, bound.node, strict=True):
        values = [point[0] - rate * point[1] for point in front]
        least = max(values) - room
        kept.append([point for point, value in zip(front, values, strict=True) if value >= least])
    return kept
