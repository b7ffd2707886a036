"""Pareto fronts over all plans: estimated quality against makespan or against cost (ours).

Exact for the paper's sizes. What is dropped beyond them is stated: `factor` is proved, and every plan of the problem
has a point on the front that is no slower (no dearer) and has at least that share of its estimated quality. Pins and
prohibitions hold, since they shorten the nodes' menus; caps on a whole plan do not. A point carries makespan, cost and
quality, so that a caller can filter.

Cost: nodes are added one by one, a sum of costs and a product of qualities. Makespan: planner.compiler.pareto.labels;
where that had to drop plans, planner.compiler.pareto.hull proves what the front is worth.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isclose, prod
from operator import itemgetter
from typing import Any, Literal

from planner.compiler.coefficients import Coefficients
from planner.compiler.critical_path import makespan_s
from planner.compiler.evaluate import Choice
from planner.compiler.exact.order import Order, decision_order
from planner.compiler.explain import choice_of
from planner.compiler.menu import Column
from planner.compiler.pareto.bounds import Outlook, Point
from planner.compiler.pareto.hull import Envelope, envelope_of
from planner.compiler.pareto.labels import search
from planner.compiler.plan import Implementation, Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import Timer

Axis = Literal["makespan_s", "cost"]
DEFAULT_TIME_LIMIT_S = 10.0
MAX_POINTS = 5000
"""Partial plans by cost up to which all are kept."""
MAX_POINTS_LATE = 200
"""The same past the time limit."""
MAX_LABELS = 20_000
"""Partial plans by makespan after one node up to which all are kept."""
EASY_SETS, HARD_LABELS = 2, 400
"""With more open sets partial plans are hard to compare: a search without bounds gives up earlier."""
BEAM = 300
"""Partial plans that are kept after each node to find many good ones fast."""
PRICES = 12
"""Prices of a second by which partial plans are judged."""
ROUNDING = 1e-12
"""Sums in another order differ by less."""
SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """One plan: predicted seconds, cost in the catalog's price unit, the product surrogate of its quality."""

    makespan_s: float
    cost: float
    estimated_quality: float
    assignment: Mapping[str, Implementation]

    def to_json(self) -> dict[str, Any]:
        return {
            "makespan_s": self.makespan_s,
            "cost": self.cost,
            "estimated_quality": self.estimated_quality,
            "assignment": {node: implementation.to_json() for node, implementation in self.assignment.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """`points`: each slower (dearer) and of higher quality than the one before; of equal plans one is kept.

    `exact`: no other plan belongs here, `factor` is 1. `current`: the position of the given plan, None where it is not
    on the front or none was given.
    """

    axis: Axis
    points: tuple[ParetoPoint, ...]
    exact: bool
    factor: float
    current: int | None

    def to_json(self, most: int | None = None) -> dict[str, Any]:
        """`most`: how many points are written, evenly by position, both ends and the current one always."""
        count = len(self.points)
        shown = set(range(count)) if most is None or count <= most else _spread(count, max(2, most))
        written = sorted(shown | ({self.current} if self.current is not None else set()))
        return {
            "axis": self.axis,
            "exact": self.exact,
            "factor": self.factor,
            "total": count,
            "current": None if self.current is None else written.index(self.current),
            "points": [self.points[i].to_json() for i in written],
        }


def pareto_front(
    problem: PlanningProblem,
    axis: Axis,
    *,
    plan: Plan | None = None,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    timer: Timer = time.perf_counter,
) -> Front | Infeasible:
    """The front, with the place of `plan` on it. Raises ValueError when `plan` is not one of this problem."""
    coefficients = problem.coefficients
    if isinstance(coefficients, Infeasible):
        return coefficients
    given = () if plan is None else (choice_of(coefficients, plan),)
    started = timer()
    if axis == "cost":
        choices, loss = _by_cost(coefficients, started + time_limit_s, timer)
        points = _front(axis, (_point(coefficients, choice) for choice in (*given, *choices)))
        exact, factor = loss is None, 1.0 if loss is None else loss
    else:
        points, exact, factor = _by_makespan(coefficients, given, started, time_limit_s, timer)
    current = next((_place(axis, points, _point(coefficients, choice)) for choice in given), None)
    return Front(axis=axis, points=points, exact=exact, factor=factor, current=current)


# --- Points ----------------------------------------------------------------------------------------------------------


def _point(coefficients: Coefficients, choice: Choice) -> ParetoPoint:
    durations = {node_id: column.duration_s for node_id, column in choice.items()}
    factors = (1.0 - coefficients.nodes[node_id].residual_risk(column) for node_id, column in choice.items())
    return ParetoPoint(
        makespan_s=makespan_s(coefficients.problem.workflow, {**coefficients.fixed_s, **durations}),
        cost=sum(column.cost for column in choice.values()),
        estimated_quality=coefficients.settled_quality * prod(factors),
        assignment={node_id: column.implementation for node_id, column in choice.items()},
    )


def _front(axis: Axis, points: Iterable[ParetoPoint]) -> tuple[ParetoPoint, ...]:
    """Points that no other one is as fast (cheap) as and better than; of equal ones the first given stays."""
    front: list[ParetoPoint] = []
    for point in sorted(points, key=lambda found: (getattr(found, axis), -found.estimated_quality)):
        if front and point.estimated_quality <= front[-1].estimated_quality * (1 + ROUNDING):
            continue
        if front and getattr(point, axis) <= getattr(front[-1], axis) * (1 + ROUNDING):
            front.pop()
        front.append(point)
    return tuple(front)


def _place(axis: Axis, points: Sequence[ParetoPoint], given: ParetoPoint) -> int | None:
    """The position of an equal point."""
    for i, point in enumerate(points):
        if isclose(getattr(point, axis), getattr(given, axis), rel_tol=SAME) and isclose(
            point.estimated_quality, given.estimated_quality, rel_tol=SAME
        ):
            return i
    return None


def _spread(count: int, most: int) -> set[int]:
    """About `most` positions out of `count`, both ends among them."""
    return {round(i * (count - 1) / (most - 1)) for i in range(most)}


# --- Cost ------------------------------------------------------------------------------------------------------------

_Partial = tuple[float, float, "_Partial | None", Column | None]
"""(cost so far, quality so far, the partial plan before, the column chosen last)."""


def _by_cost(coefficients: Coefficients, deadline: float, timer: Timer) -> tuple[list[Choice], float | None]:
    """The front's choices, cheapest first; None, or the proved factor where partial plans were dropped."""
    partial: list[_Partial] = [(0.0, 1.0, None, None)]
    factor: float | None = None
    for node in coefficients.nodes.values():
        options = _cheapest_first(
            (column.cost, 1.0 - node.residual_risk(column), None, column) for column in node.columns
        )
        partial = _cheapest_first(
            (before[0] + option[0], before[1] * option[1], before, option[3])
            for option in options
            for before in partial
        )
        most = MAX_POINTS if timer() < deadline else MAX_POINTS_LATE
        if len(partial) > most:
            partial, share = _thinned(partial, most)
            factor = share * (1.0 if factor is None else factor)
    return [_chosen(coefficients, found) for found in partial], factor


def _cheapest_first(options: Iterable[_Partial]) -> list[_Partial]:
    """Each dearer and better than the one before."""
    front: list[_Partial] = []
    best = -1.0
    for option in sorted(options, key=itemgetter(0)):
        if option[1] > best:
            if front and front[-1][0] == option[0]:
                front.pop()
            front.append(option)
            best = option[1]
    return front


def _thinned(front: Sequence[_Partial], most: int) -> tuple[list[_Partial], float]:
    """About `most` of a front's partial plans; every one dropped has a cheaper one kept with this share of its quality.

    Whatever is added to both, the share stays: so shares of several rounds multiply.
    """
    lowest, highest = next(found[1] for found in front if found[1] > 0), front[-1][1]
    step = (highest / lowest) ** (1 / (most - 1))
    kept, share = [front[0]], 1.0
    for found in front[1:]:
        if found[1] > kept[-1][1] * step:
            kept.append(found)
        else:
            share = min(share, kept[-1][1] / found[1])
    if kept[-1] is not front[-1]:
        kept.append(front[-1])
    return kept, share


def _chosen(coefficients: Coefficients, last: _Partial) -> Choice:
    columns: list[Column] = []
    found: _Partial | None = last
    while found is not None and found[3] is not None:
        columns.append(found[3])
        found = found[2]
    return dict(zip(coefficients.nodes, reversed(columns), strict=True))


# --- Makespan --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Makespans:
    """What a search along the DAG needs; columns by node in the coefficients' order."""

    coefficients: Coefficients
    order: Order
    fronts: Sequence[Sequence[Point]]
    columns: Mapping[str, tuple[Column, ...]]

    def search(self, **options: Any) -> tuple[list[Choice], bool]:
        """Choices, and whether no plan was dropped on the way to them."""
        workflow = self.coefficients.problem.workflow
        found = search(workflow, self.order, self.fronts, **options)
        index = workflow.index
        return [
            {node_id: columns[chosen[index[node_id]]] for node_id, columns in self.columns.items()}
            for chosen in found.choices
        ], found.complete


def _by_makespan(
    coefficients: Coefficients, given: Sequence[Choice], started: float, limit_s: float, timer: Timer
) -> tuple[tuple[ParetoPoint, ...], bool, float]:
    """Points, whether they are exact, and the factor: with little effort, else a beam, else all that it leaves open."""
    workflow = coefficients.problem.workflow
    makespans = _Makespans(
        coefficients=coefficients,
        order=decision_order(workflow),
        fronts=[_points(coefficients, node.id) for node in workflow.nodes],
        columns={node_id: node.columns for node_id, node in coefficients.nodes.items()},
    )
    sets = max(map(len, makespans.order.sets))
    most, share = (MAX_LABELS, 0.75) if sets <= EASY_SETS else (HARD_LABELS, 0.25)
    choices, exact = makespans.search(most=most, deadline=started + share * limit_s, timer=timer)
    points = _front("makespan_s", (_point(coefficients, choice) for choice in (*given, *choices)))
    if exact:
        return points, True, 1.0
    envelope = envelope_of(coefficients, started + (share + 0.1) * limit_s, timer)
    points = _front("makespan_s", (*points, *(_point(coefficients, choice) for choice in envelope.choices)))
    for most, beam, until in ((BEAM, BEAM, share + 0.25), (MAX_LABELS, None, 1.0)):
        outlook = _outlook(makespans, envelope, points)
        choices, exact = makespans.search(
            outlook=outlook, most=most, beam=beam, deadline=started + until * limit_s, timer=timer
        )
        points = _front("makespan_s", (*points, *(_point(coefficients, choice) for choice in choices)))
        if exact:
            return points, True, 1.0
    return points, False, _worst_share(coefficients, envelope, points)


def _outlook(makespans: _Makespans, envelope: Envelope, points: Sequence[ParetoPoint]) -> Outlook:
    prices = sorted({price for price, _ in envelope.lines})
    chosen = [prices[i] for i in sorted(_spread(len(prices), min(len(prices), PRICES)))] if len(prices) > 1 else prices
    settled = makespans.coefficients.settled_quality
    known = [(point.makespan_s, point.estimated_quality / settled) for point in points]
    return Outlook(makespans.order, makespans.fronts, chosen, known)


def _points(coefficients: Coefficients, node_id: str) -> list[Point]:
    """A node's points, each slower and of higher quality than the one before; equal ones: the cheapest."""
    node = coefficients.nodes.get(node_id)
    if node is None:
        return [(1.0, coefficients.fixed_s[node_id], -1)]
    ordered = sorted(
        ((1.0 - node.residual_risk(column), column, i) for i, column in enumerate(node.columns)),
        key=lambda point: (point[1].duration_s, -point[0], point[1].cost),
    )
    front: list[Point] = []
    for quality, column, i in ordered:
        if not front or quality > front[-1][0]:
            front.append((quality, column.duration_s, i))
    return front


def _worst_share(coefficients: Coefficients, envelope: Envelope, points: Sequence[ParetoPoint]) -> float:
    """The least share of a plan's quality that a point as fast as it has, over all makespans that a plan can have.

    Between two points the first one stands for every plan; the envelope at the second bounds them.
    """
    settled = coefficients.settled_quality
    shares = [
        point.estimated_quality / (settled * envelope.quality(after.makespan_s)) for point, after in pairwise(points)
    ]
    return min(1.0, *shares, points[-1].estimated_quality / (settled * envelope.quality(points[-1].makespan_s)))
