"""Compile, solve, decode: one plan of one problem at one specialization level (paper 4.3, 4.4).

The planner's own exact solver comes first; what it gives up on goes to CBC, a subprocess, without the columns that are
proved to be in no better plan. So `compile_plan` may be called from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from planner.compiler import exact
from planner.compiler.coefficients import Coefficients
from planner.compiler.digest import content_digest
from planner.compiler.evaluate import Evaluation, Solution, evaluate
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.problem import PlanningProblem

__all__ = [
    "DEFAULT_TIME_LIMIT_S",
    "Infeasible",
    "PlanningProblem",
    "compile_coefficients",
    "compile_plan",
    "plan_digest",
]

DEFAULT_TIME_LIMIT_S = 10.0
OPTIMAL_TOLERANCE = 1e-9
Solver = Literal["auto", "cbc"]
Timer = Callable[[], float]


def compile_plan(
    problem: PlanningProblem,
    level: float,
    *,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    solver: Solver = "auto",
    timer: Timer = time.perf_counter,
) -> Plan | Infeasible:
    """The best plan at `level` (>= 0), or why there is none. `solver="cbc"` solves the whole ILP as a reference.

    Past the time limit: the best plan known with its proven gap. `Plan.solve_s` covers building the model, solving
    and decoding; the coefficients are built on the problem's first use.
    """
    if level < 0:
        raise ValueError(f"level must not be negative, got {level}")
    coefficients = problem.coefficients
    if isinstance(coefficients, Infeasible):
        return coefficients
    return compile_coefficients(coefficients, level, time_limit_s=time_limit_s, solver=solver, timer=timer)


def compile_coefficients(
    coefficients: Coefficients,
    level: float,
    *,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    solver: Solver = "auto",
    timer: Timer = time.perf_counter,
) -> Plan | Infeasible:
    """`compile_plan` from coefficients, which need not be the problem's own: a residual problem plans fewer nodes."""
    started = timer()
    if not coefficients.nodes:
        solution = Solution(choice={}, solver="none")
    else:
        solution = _solve(coefficients, level, time_limit_s, solver)
    plan = decode(coefficients, solution, level)
    return replace(plan, solve_s=timer() - started)


def _solve(coefficients: Coefficients, level: float, time_limit_s: float, solver: Solver) -> Solution:
    deadline = time.perf_counter() + time_limit_s
    if solver == "auto":
        found, choice = exact.solve(coefficients, level, time_limit_s)
        own = Solution(choice=choice, solver="exact", bound=found.bound)
        if own.bound is None or time.perf_counter() >= deadline:
            return own
        coefficients = exact.reduced(coefficients, found)
    from planner.compiler import cbc  # when it is needed only: see there

    solution = cbc.solve(coefficients, level, max(0.0, deadline - time.perf_counter()))
    return solution if solver == "cbc" else _better(coefficients, own, solution, level)


def _better(coefficients: Coefficients, own: Solution, other: Solution, level: float) -> Solution:
    """CBC's plan unless our own incumbent is as good; the tighter of the two bounds holds for either."""
    ours, theirs = (evaluate(coefficients, s.choice, level).objective for s in (own, other))
    proved = theirs if other.bound is None else other.bound
    bound = max(ours, min(proved, proved if own.bound is None else own.bound))
    best = own if ours >= theirs else other
    optimal = bound - max(ours, theirs) <= OPTIMAL_TOLERANCE
    return replace(best, bound=None if optimal else bound)


def decode(coefficients: Coefficients, solution: Solution, level: float) -> Plan:
    """The solver's choice as a plan; every number is re-evaluated from the coefficients, none is the solver's."""
    value = evaluate(coefficients, solution.choice, level)
    assignment = {node: column.implementation for node, column in solution.choice.items()}
    plan = Plan(
        level=level,
        assignment=assignment,
        objective=value.objective,
        terms=value.terms,
        estimated_quality=value.estimated_quality,
        makespan_s=value.makespan_s,
        cost=value.cost,
        demand=value.demand,
        dominant_model=value.dominant_model,
        solver=solution.solver,
        solve_s=0.0,
        gap=_gap(value, solution.bound),
        versions=dict(coefficients.problem.versions),
        durations_s=value.durations_s,
    )
    return replace(plan, digest=plan_digest(plan))


def plan_digest(plan: Plan) -> str:
    """Identity of a plan: level, assignment and the versions it was compiled from; not how it was found."""
    return content_digest((plan.level, plan.assignment, plan.versions))


def _gap(value: Evaluation, bound: float | None) -> float:
    """Relative distance to the bound; 0 when the plan is optimal."""
    if bound is None:
        return 0.0
    return max(0.0, bound - value.objective) / max(abs(value.objective), 1e-9)
