"""Solving with HiGHS through PuLP, in this process (ours, beside App. B's CBC).

It releases the interpreter lock while it solves, keeps its time limit to some tenths of a second and writes nothing.
One thread: HiGHS then starts no workers, which a process forked later would wait for, and which a solve in a thread
that ends soon may miss. Loaded at the first solve, like CBC.
"""

from __future__ import annotations

from highspy import HighsModelStatus, SolutionStatus
from pulp import HiGHS

from planner.compiler.mip.ilp import OBJECTIVE_SCALE, Answer, PlanModel, chosen

INFEASIBLE = (HighsModelStatus.kInfeasible, HighsModelStatus.kUnboundedOrInfeasible)
"""The objective is bounded by the sum of the nodes' best columns."""


def run(model: PlanModel, time_limit_s: float) -> Answer:
    """Runs HiGHS to proven optimality (gap 0), proven infeasibility or the time limit."""
    model.program.solve(HiGHS(msg=False, timeLimit=time_limit_s, gapRel=0, threads=1))
    solved = model.program.solverModel
    status, info = solved.getModelStatus(), solved.getInfo()
    if status == HighsModelStatus.kOptimal:
        return Answer(status="optimal", choice=chosen(model))
    if status in INFEASIBLE:
        return Answer(status="infeasible")
    bound = -info.mip_dual_bound / OBJECTIVE_SCALE  # PuLP hands it the negated objective, to minimise
    if info.primal_solution_status == SolutionStatus.kSolutionStatusFeasible:
        return Answer(status="feasible", choice=chosen(model), bound=bound)
    return Answer(status="unknown", bound=bound)
