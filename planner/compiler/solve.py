"""Compile, solve, decode: one plan of one problem at one specialization level (paper 4.3, 4.4).

CBC runs as a subprocess through PuLP, so `compile_plan` may be called from any thread; its files live in a temporary
folder of their own and go with it, whatever happens.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pulp import COIN_CMD, PULP_CBC_CMD, LpSolutionIntegerFeasible, LpSolutionOptimal

from planner.compiler.coefficients import Coefficients
from planner.compiler.digest import content_digest
from planner.compiler.evaluate import Choice, Evaluation, evaluate
from planner.compiler.fallback import incumbent, upper_bound
from planner.compiler.ilp import OBJECTIVE_SCALE, PlanModel, build_model
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.problem import PlanningProblem

__all__ = ["DEFAULT_TIME_LIMIT_S", "Infeasible", "PlanningProblem", "compile_plan", "plan_digest"]

DEFAULT_TIME_LIMIT_S = 10.0
BUNDLED_CBC: str = PULP_CBC_CMD.pulp_cbc_path
"""The executable in PuLP's wheel, started through the solver class that PuLP 4 keeps."""
Timer = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What a solver found: a column per node, and a bound on any plan's objective (None: this one is optimal)."""

    choice: Choice
    solver: str
    bound: float | None = None


def compile_plan(
    problem: PlanningProblem,
    level: float,
    *,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    timer: Timer = time.perf_counter,
) -> Plan | Infeasible:
    """The best plan at `level` (>= 0), or why there is none.

    Past the time limit: the best plan known with its proven gap. `Plan.solve_s` covers building the model, solving
    and decoding; the coefficients are built on the problem's first use.
    """
    if level < 0:
        raise ValueError(f"level must not be negative, got {level}")
    coefficients = problem.coefficients
    if isinstance(coefficients, Infeasible):
        return coefficients
    started = timer()
    if not coefficients.nodes:
        solution = Solution(choice={}, solver="none")
    else:
        solution = solve(coefficients, build_model(coefficients, level), level, time_limit_s)
    plan = decode(coefficients, solution, level)
    return replace(plan, solve_s=timer() - started)


def solve(coefficients: Coefficients, model: PlanModel, level: float, time_limit_s: float) -> Solution:
    """Runs CBC to proven optimality or to the limit; without an incumbent by then, takes the solver-free one."""
    with TemporaryDirectory(prefix="dyserve-cbc-") as folder:
        log = Path(folder, "cbc.log")
        # No `threads` option: with 1 thread CBC's worker missed its wake-up in 7 of 9,000 solves and slept 10 s.
        cbc = COIN_CMD(path=BUNDLED_CBC, msg=False, timeLimit=time_limit_s, gapRel=0, logPath=str(log))
        cbc.tmpDir = folder
        model.program.solve(cbc)
        bound = logged_bound(log.read_text() if log.exists() else "")
    found = model.program.sol_status
    if found == LpSolutionOptimal:
        return Solution(choice=_chosen(coefficients, model), solver="cbc")
    bound = min(bound, upper_bound(coefficients, level))
    if found == LpSolutionIntegerFeasible:
        return Solution(choice=_chosen(coefficients, model), solver="cbc", bound=bound)
    return Solution(choice=incumbent(coefficients, level), solver="fallback", bound=bound)


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


def _chosen(coefficients: Coefficients, model: PlanModel) -> Choice:
    """The column whose binary is set, per node (the largest one: solvers return 0.9999999)."""
    choice = {}
    for node_id, node in coefficients.nodes.items():
        values = [variable.value() or 0.0 for variable in model.x[node_id]]
        choice[node_id] = node.columns[values.index(max(values))]
    return choice


def _gap(value: Evaluation, bound: float | None) -> float:
    """Relative distance to the bound; 0 when the plan is optimal."""
    if bound is None:
        return 0.0
    return max(0.0, bound - value.objective) / max(abs(value.objective), 1e-9)


def logged_bound(log: str) -> float:
    """CBC's own bound from its log, in units of the objective; infinite when it gave none."""
    found = re.search(r"^Upper bound:\s+(\S+)", log, re.MULTILINE)
    return float(found.group(1)) / OBJECTIVE_SCALE if found else float("inf")
