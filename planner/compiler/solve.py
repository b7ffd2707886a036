"""Compile, solve, decode: one plan of one problem at one specialization level (paper 4.3, 4.4).

The planner's own exact solver comes first. Its optimum is the optimum within caps too where it keeps them; where it
breaks one, and where it gave up with time left, a MIP solver takes over. `compile_plan` may be called from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Literal

from planner.compiler import exact
from planner.compiler.coefficients import Coefficients
from planner.compiler.digest import content_digest
from planner.compiler.evaluate import Evaluation, Solution, evaluate
from planner.compiler.limits.caps import NO_PLAN, Cap, caps_of, presolved, undominated
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
PROVED_UP_TO = 32
"""Nodes up to which a plan is searched for until it is proved optimal, or the time is up."""
ACCEPTED_GAP = 1e-3
"""Of larger workflows: a proven gap that is good enough. Profiles are known to some percent."""
SHARE_WITH_CAPS = 0.25
"""Of the time for the own solver where there are caps, which it does not know: the rest is left to one that does."""
Solver = Literal["auto", "cbc", "highs"]
Timer = Callable[[], float]


def compile_plan(
    problem: PlanningProblem,
    level: float,
    *,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    solver: Solver = "auto",
    accepted_gap: float | None = None,
    timer: Timer = time.perf_counter,
) -> Plan | Infeasible:
    """The best plan at `level` (>= 0) within the problem's limits, or why there is none.

    `solver="cbc"` and `"highs"` solve the whole ILP as references. Past the time limit: the best plan known with its
    proven gap; an Infeasible that is not `proved` where no plan within the limits was found by then. With a proven gap
    of at most `accepted_gap` the search ends early: 0 up to PROVED_UP_TO nodes, else ACCEPTED_GAP. `Plan.solve_s`
    covers building the model, solving and decoding; the coefficients are built on the problem's first use.
    Raises ValueError on a level that is negative or not finite, and on limits that name no LLM node of the workflow.
    """
    started = timer()
    coefficients = problem.coefficients
    if isinstance(coefficients, Infeasible):
        return coefficients
    built_s = timer() - started
    plan = compile_coefficients(
        coefficients, level, time_limit_s=time_limit_s, solver=solver, accepted_gap=accepted_gap, timer=timer
    )
    return replace(plan, phases_s={"coefficients": built_s, **plan.phases_s}) if isinstance(plan, Plan) else plan


def compile_coefficients(
    coefficients: Coefficients,
    level: float,
    *,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    solver: Solver = "auto",
    accepted_gap: float | None = None,
    timer: Timer = time.perf_counter,
) -> Plan | Infeasible:
    """`compile_plan` from coefficients, which need not be the problem's own: a residual problem plans fewer nodes."""
    if not 0 <= level < inf:
        raise ValueError(f"level must {'not be negative' if level < 0 else 'be a finite number'}, got {level}")
    started = timer()
    deadline = time.perf_counter() + time_limit_s
    gap = (ACCEPTED_GAP if len(coefficients.nodes) > PROVED_UP_TO else 0.0) if accepted_gap is None else accepted_gap
    solution = _solve(coefficients, level, deadline, solver, gap)
    if not isinstance(solution, Infeasible):
        solved = timer()
        plan, decoded = decode(coefficients, solution, level), timer()
        return replace(plan, solve_s=decoded - started, phases_s={**plan.phases_s, "decode": decoded - solved})
    if not solution.proved:
        return solution
    from planner.compiler.limits import conflicts  # when it is needed only: it loads the solver libraries

    return conflicts.explained(coefficients, deadline)


def _solve(
    coefficients: Coefficients, level: float, deadline: float, solver: Solver, gap: float
) -> Solution | Infeasible:
    caps = caps_of(coefficients)
    possible = presolved(coefficients, caps)
    if possible is None:
        return NO_PLAN
    if not coefficients.nodes:
        return Solution(choice={}, solver="none")
    if solver == "auto":
        return _solve_own(possible, level, caps, deadline, gap)
    from planner.compiler.mip import checked as mip

    return mip.solve(coefficients, level, caps, deadline, solver)


def _solve_own(
    coefficients: Coefficients, level: float, caps: Sequence[Cap], deadline: float, gap: float
) -> Solution | Infeasible:
    """The own solver, which knows no caps; the MIP solver where its plan breaks one or is not proved."""
    limit_s = max(0.0, deadline - time.perf_counter()) * (SHARE_WITH_CAPS if caps else 1.0)
    found, choice = exact.solve(coefficients, level, limit_s, accepted_gap=gap)
    own = Solution(
        choice=choice,
        solver="exact",
        bound=found.bound,
        phases_s={"bound": found.bound_s, "search": found.search_s},
        pruning={
            "columns": sum(len(node.menu) for node in coefficients.nodes.values()),
            "points": found.points,
            "kept": sum(map(len, found.kept)),
            "labels": found.labels,
            "relaxations": found.relaxations,
        },
    )
    kept = all(cap.keeps(coefficients, choice) for cap in caps)
    close = own.bound is None or own.bound - found.objective <= gap * abs(found.objective)
    if kept and (close or time.perf_counter() >= deadline):
        return own
    from planner.compiler.mip import checked as mip  # when it is needed only: it loads the solver libraries

    # What the own solver rules out by gain and duration alone may be all that keeps a cap.
    smaller = undominated(coefficients, level, caps) if caps else exact.reduced(coefficients, found)
    started = time.perf_counter()
    other = mip.solve(smaller, level, caps, deadline, mip.quicker(smaller))
    if isinstance(other, Infeasible):
        return own if kept else other
    other = replace(other, phases_s={**own.phases_s, "mip": time.perf_counter() - started}, pruning=own.pruning)
    if kept:
        return _better(coefficients, own, other, level)
    bound = found.objective if found.bound is None else found.bound
    return other if other.bound is None else replace(other, bound=min(bound, other.bound))


def _better(coefficients: Coefficients, own: Solution, other: Solution, level: float) -> Solution:
    """The MIP solver's plan unless our own incumbent is as good; the tighter of the two bounds holds for either."""
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
        phases_s=solution.phases_s,
        pruning=solution.pruning,
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
