"""What a plan gives away when profile cells have other rates, and what perfect knowledge of one cell is worth (ours).

Regret is optimum minus plan in units of the objective, both under the other rates. The value of a cell is the plan's
expected regret while this cell alone is uncertain (expected value of partial perfect information): the mean over
POINTS equally probable rates. Cells that only matter together have no value alone.

Most cells take no solve. One that the plan does not use matters only above its rate, and not at all where even at the
highest point all its columns are dominated by others of their nodes. No plan can gain more from new rates than the
sum, over the nodes, of what some column gains there beyond the planned one: cells are taken in the order of that
bound, until it is below what the last reported cell is worth. With the paper's objective regret is convex in a rate,
so that from the outermost point inwards the first without regret ends the search; with the priced one, all points are
solved of vulnerabilities and of cells that the plan uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from planner.compiler import exact
from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Choice, evaluate
from planner.compiler.menu import Column
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.stability.redraw import Cell, Redraw

POINTS = 20
TIE = 1e-9
"""Regrets up to this count as none."""
DIGITS = 12
"""Values that differ by less are equal, whatever the order in which a workflow's nodes were summed."""
Timer = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPlan:
    """A plan as positions in its nodes' columns; durations are not redrawn, so that its makespan stays."""

    positions: Mapping[str, int]
    makespan_s: float
    level: float

    def columns(self, coefficients: Coefficients) -> dict[str, Column]:
        return {node_id: coefficients.nodes[node_id].columns[i] for node_id, i in self.positions.items()}

    def objective(self, coefficients: Coefficients) -> float:
        gains = (
            coefficients.gain(coefficients.nodes[node_id], column, self.level)
            for node_id, column in self.columns(coefficients).items()
        )
        return sum(gains) - coefficients.latency_price * self.makespan_s

    def estimated_quality(self, coefficients: Coefficients) -> float:
        return coefficients.settled_quality * prod(
            1.0 - coefficients.nodes[node_id].residual_risk(column)
            for node_id, column in self.columns(coefficients).items()
        )


def fixed_plan(problem: PlanningProblem, plan: Plan) -> tuple[Coefficients, FixedPlan]:
    """Raises ValueError when the plan is not one of this problem."""
    coefficients = problem.coefficients
    if isinstance(coefficients, Infeasible):
        raise ValueError(f"the plan is not one of this problem, which has none: {coefficients.text}")
    positions: dict[str, int] = {}
    for node_id, node in coefficients.nodes.items():
        offered = [column.implementation for column in node.columns]
        if plan.assignment.get(node_id) not in offered:
            raise ValueError(f"the plan's implementation of node {node_id} is not legal in this problem")
        positions[node_id] = offered.index(plan.assignment[node_id])
    choice = {node_id: coefficients.nodes[node_id].columns[i] for node_id, i in positions.items()}
    makespan_s = evaluate(coefficients, choice, plan.level).makespan_s
    return coefficients, FixedPlan(positions=positions, makespan_s=makespan_s, level=plan.level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The best choice under some rates, the plan's where that is as good, and the plan's regret.

    `proved` is False where the best choice is only the best one found: the regret is then a lower bound.
    """

    choice: Choice
    regret: float
    proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A plan among the cells it depends on; `deadline` by `timer`."""

    redraw: Redraw
    plan: FixedPlan
    deadline: float
    timer: Timer

    def ask(self, coefficients: Coefficients) -> Answer:
        """Answers past the deadline as well, with what the solver finds at once."""
        planned = self.plan.columns(coefficients)
        if not coefficients.nodes:
            return Answer(choice=planned, regret=0.0, proved=True)
        found, choice = exact.solve(coefficients, self.plan.level, max(0.0, self.deadline - self.timer()))
        best = evaluate(coefficients, choice, self.plan.level).objective
        regret = best - self.plan.objective(coefficients)
        kept = regret <= TIE
        return Answer(choice=planned if kept else choice, regret=0.0 if kept else regret, proved=found.bound is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellValue:
    """`value`: the plan's expected regret while only this cell is uncertain, in units of the objective.

    `flips`: the share of the cell's equally probable rates at which another plan is better.
    """

    cell: Cell
    value: float
    flips: float

    def to_json(self) -> dict[str, Any]:
        return self.cell.to_json() | {"value": self.value, "flips": self.flips}


def most_valuable(question: Question, top: int) -> tuple[tuple[CellValue, ...], int]:
    """(the `top` cells of the highest values above 0, highest first; how many cells are settled).

    Past the deadline: the best of those that promised most. What a plan that is not optimal gives away under the
    profile's own rates is no cell's, and is taken off.
    """
    search = _Search(question)
    total = len(question.redraw.cells)
    bounds = sorted(((search.bound(cell), cell) for cell in range(total)), key=lambda pair: (-pair[0], pair[1]))
    found: list[tuple[float, int, CellValue]] = []
    for settled, (bound, cell) in enumerate(bounds):
        if bound <= TIE or (len(found) >= top and bound + TIE < -found[top - 1][0]):
            break
        if question.timer() > question.deadline:
            return tuple(value for _, _, value in found[:top]), settled
        value = search.value(cell)
        if value.value > 0:
            found.append((-round(value.value, DIGITS), cell, value))
            found.sort(key=lambda entry: entry[:2])
    return tuple(value for _, _, value in found[:top]), total


class _Search:
    def __init__(self, question: Question) -> None:
        self.question, self.redraw, self.plan = question, question.redraw, question.plan
        self.base = question.redraw.base
        self.at_profile = question.ask(self.base).regret
        self.gains = {node_id: self._gains(self.base, node_id) for node_id in self.base.nodes}

    def _gains(self, coefficients: Coefficients, node_id: str) -> list[float]:
        node = coefficients.nodes[node_id]
        return [coefficients.gain(node, column, self.plan.level) for column in node.columns]

    def _sides(self, cell: int) -> tuple[Sequence[float], Sequence[float]]:
        """The cell's points above and below its rate, outermost first, those alone that may matter."""
        rate, points = self.redraw.cells[cell].rate, self.redraw.beliefs[cell].points(POINTS)
        above = [x for x in reversed(points) if x > rate]
        return above, [] if self._unused(cell) else [x for x in points if x < rate]

    def _unused(self, cell: int) -> bool:
        """Whether the cell is a quality that no planned column has: only its being higher can matter."""
        if self.redraw.cells[cell].kind != "quality":
            return False
        return all(self.plan.positions[node_id] not in used for node_id, used in self.redraw.users(cell))

    def bound(self, cell: int) -> float:
        """No less than the cell's value."""
        above, below = self._sides(cell)
        if above and self._unused(cell) and self._dominated(cell, above[0]):
            return 0.0
        return sum(len(side) * self._gained(cell, side[0]) for side in (above, below) if side) / POINTS

    def _dominated(self, cell: int, rate: float) -> bool:
        """Whether at `rate` every column of the cell is no faster and gains no more than one of another cell."""
        redrawn = self.redraw.coefficients({cell: rate})
        for node_id, used in self.redraw.users(cell):
            gains, columns = self.gains[node_id], redrawn.nodes[node_id].columns
            others = [(gains[i], column.duration_s) for i, column in enumerate(columns) if i not in used]
            for i in used:
                gain = redrawn.gain(redrawn.nodes[node_id], columns[i], self.plan.level)
                if not any(other >= gain and seconds <= columns[i].duration_s for other, seconds in others):
                    return False
        return True

    def _gained(self, cell: int, rate: float) -> float:
        """A bound on the regret: at every node the most that a column gains by `rate` beyond the planned one."""
        redrawn = self.redraw.coefficients({cell: rate})
        total = 0.0
        for node_id, node in redrawn.nodes.items():
            if node is not self.base.nodes[node_id]:
                pairs = zip(self._gains(redrawn, node_id), self.gains[node_id], strict=True)
                changes = [new - old for new, old in pairs]
                total += max(changes) - changes[self.plan.positions[node_id]]
        return total

    def value(self, cell: int) -> CellValue:
        inwards = self.base.problem.pricing is None or self._unused(cell)
        lost = [regret for side in self._sides(cell) for regret in self._regrets(cell, side, stop=inwards)]
        return CellValue(cell=self.redraw.cells[cell], value=sum(lost) / POINTS, flips=len(lost) / POINTS)

    def _regrets(self, cell: int, side: Sequence[float], *, stop: bool) -> list[float]:
        """The regrets above 0 that the cell adds at the points of one side."""
        lost: list[float] = []
        for rate in side:
            added = self.question.ask(self.redraw.coefficients({cell: rate})).regret - self.at_profile
            if added > TIE:
                lost.append(added)
            elif stop:
                break
        return lost
