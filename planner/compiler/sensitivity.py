"""How far a weight may move before another plan is better (ours).

For a fixed plan the objective is linear in lambda_l (T_ref belongs to the reference plan), in the effort e (through
rho) and in the level L; limits do not depend on them. So the optimal value is a maximum of lines, convex in each of
them, and a plan is optimal on an interval. Its ends are found by solving at the far end of the parameter's span: where
another plan wins, its line crosses the plan's own nearer by, and that is the next point to solve at. Every winner's
line is flatter against the plan's than the one before, so that this ends, at the first crossing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from planner.compiler.evaluate import evaluate
from planner.compiler.explain import choice_of
from planner.compiler.plan import Implementation, Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import Timer, compile_plan

Parameter = Literal["lambda_l", "effort", "level"]

SPANS: Mapping[Parameter, tuple[float, float]] = MappingProxyType(
    {"lambda_l": (0.0, 1000.0), "effort": (0.0, 1.0), "level": (0.0, 100.0)}
)
"""Where a range is looked for; widened to the plan's own value where that lies outside."""
PRICED: tuple[Parameter, ...] = ("level",)
"""The priced objective has neither lambda_l nor effort."""
TIE = 1e-9
"""A plan that is worse by less, in units of the objective, is still optimal."""
DEFAULT_TIME_LIMIT_S = 10.0


class NotOptimal(ValueError):
    """The plan is not the best one at its own weights: no range of them makes it that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of a range. `open`: the plan is still optimal there, at the end of the parameter's span.

    Otherwise `plan` is the one that takes over beyond `at`, compiled where it was met, and `changes` holds the nodes
    that change with their new implementations. Not `proved`: a solve along the way was not, or the time was up; the
    range then ends at `at` or before, and a plan that is named is better beyond `at`, perhaps not the best one.
    """

    at: float
    open: bool
    proved: bool
    plan: Plan | None = None
    changes: Mapping[str, Implementation]

    def to_json(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "open": self.open,
            "proved": self.proved,
            "takes_over": self.plan.digest if self.plan else None,
            "changes": {node: implementation.to_json() for node, implementation in self.changes.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The values of one parameter for which the plan stays optimal, all others as they are; `value` is today's."""

    parameter: Parameter
    value: float
    low: End
    high: End

    @property
    def proved(self) -> bool:
        return self.low.proved and self.high.proved

    def to_json(self) -> dict[str, Any]:
        return {
            "parameter": self.parameter,
            "value": self.value,
            "proved": self.proved,
            "low": self.low.to_json(),
            "high": self.high.to_json(),
        }


def sensitivity(
    problem: PlanningProblem,
    plan: Plan,
    *,
    parameters: tuple[Parameter, ...] = ("lambda_l", "effort", "level"),
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    timer: Timer = time.perf_counter,
) -> tuple[Range, ...]:
    """One range per parameter that the problem's objective has; `time_limit_s` holds for all of them together.

    Raises ValueError when the plan is not one of this problem, NotOptimal when a solve finds a better one at its own
    weights: plans of large workflows are accepted with a proven gap.
    """
    search = _Search(problem=problem, plan=plan, deadline=timer() + time_limit_s, timer=timer)
    optimal = search.is_optimal()
    known = PRICED if problem.pricing is not None else tuple(SPANS)
    return tuple(search.range(parameter, optimal=optimal) for parameter in parameters if parameter in known)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    problem: PlanningProblem
    plan: Plan
    deadline: float
    timer: Timer

    def is_optimal(self) -> bool:
        """Whether the plan is proved optimal. Raises NotOptimal; ValueError when it is not one of this problem."""
        level = self.plan.level
        own, best = _objective(self.problem, level, self.plan), self._solve("level", level)
        if best is not None and _objective(self.problem, level, best) > own + TIE:
            raise NotOptimal("the plan is not optimal at its own weights: compile it again, then ask for ranges")
        return best is not None and best.gap == 0

    def range(self, parameter: Parameter, *, optimal: bool) -> Range:
        value = self._value(parameter)
        low, high = SPANS[parameter]
        return Range(
            parameter=parameter,
            value=value,
            low=self._end(parameter, value, min(low, value), optimal=optimal),
            high=self._end(parameter, value, max(high, value), optimal=optimal),
        )

    def _value(self, parameter: Parameter) -> float:
        if parameter == "level":
            return self.plan.level
        return self.problem.weights.lambda_l if parameter == "lambda_l" else self.problem.effort

    def _end(self, parameter: Parameter, value: float, bound: float, *, optimal: bool) -> End:
        """From the far end of the span back to the first crossing with the plan's own line.

        Without proof that the plan is optimal at `value` nothing is proved: the optimal value is convex.
        """
        at, winner, proved = bound, None, optimal
        while at != value:
            best = self._solve(parameter, at)
            if best is None or self._lead(parameter, at, best) <= TIE:
                proved = optimal and best is not None and best.gap == 0
                break
            before, at, winner = at, self._crossing(parameter, value, at, best), best
            if at == before:
                break  # the lines differ by rounding only
        changes = dict(_changes(self.plan, winner)) if winner is not None else {}
        return End(at=at, open=winner is None, proved=proved, plan=winner, changes=changes)

    def _crossing(self, parameter: Parameter, value: float, at: float, best: Plan) -> float:
        """Where the line of `best`, which wins at `at`, crosses the plan's own, which wins at `value`."""
        behind, ahead = max(0.0, -self._lead(parameter, value, best)), self._lead(parameter, at, best)
        return value + (at - value) * behind / (behind + ahead)

    def _lead(self, parameter: Parameter, at: float, other: Plan) -> float:
        """By how much another plan is better than the plan at a value of the parameter."""
        problem, level = self._at(parameter, at)
        return _objective(problem, level, other) - _objective(problem, level, self.plan)

    def _solve(self, parameter: Parameter, at: float) -> Plan | None:
        """The best plan at a value of the parameter; None when there is no time for one."""
        left_s = self.deadline - self.timer()
        if left_s <= 0:
            return None
        problem, level = self._at(parameter, at)
        found = compile_plan(problem, level, time_limit_s=left_s, accepted_gap=0.0, timer=self.timer)
        return found if isinstance(found, Plan) else None

    def _at(self, parameter: Parameter, at: float) -> tuple[PlanningProblem, float]:
        if parameter == "level":
            return self.problem, at
        if parameter == "effort":
            return replace(self.problem, effort=at), self.plan.level
        return replace(self.problem, weights=replace(self.problem.weights, lambda_l=at)), self.plan.level


def _changes(plan: Plan, other: Plan) -> Iterator[tuple[str, Implementation]]:
    for node_id, implementation in plan.assignment.items():
        if other.assignment[node_id] != implementation:
            yield node_id, other.assignment[node_id]


def _objective(problem: PlanningProblem, level: float, plan: Plan) -> float:
    coefficients = problem.coefficients
    if isinstance(coefficients, Infeasible):
        raise ValueError(f"the problem has no plan: {coefficients.text}")
    return evaluate(coefficients, choice_of(coefficients, plan), level).objective
