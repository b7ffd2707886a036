"""Solving with CBC through PuLP (paper 4.3, App. B).

CBC runs as a subprocess, so this may be called from any thread; its files live in a temporary folder of their own and
go with it, whatever happens. Loaded at the first solve: most of dyserve's processes never solve, and the solver library
is a third of their memory.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from pulp import COIN_CMD, PULP_CBC_CMD, LpSolutionInfeasible, LpSolutionIntegerFeasible, LpSolutionOptimal

from planner.compiler.mip.ilp import OBJECTIVE_SCALE, Answer, PlanModel, chosen

BUNDLED_CBC: str = PULP_CBC_CMD.pulp_cbc_path
"""The executable in PuLP's wheel, started through the solver class that PuLP 4 keeps."""


def run(model: PlanModel, time_limit_s: float) -> Answer:
    """Runs CBC to proven optimality (gap 0), proven infeasibility or the time limit."""
    with TemporaryDirectory(prefix="dyserve-cbc-") as folder:
        log = Path(folder, "cbc.log")
        # No `threads` option: with 1 thread CBC's worker missed its wake-up in 7 of 9,000 solves and slept 10 s.
        cbc = COIN_CMD(path=BUNDLED_CBC, msg=False, timeLimit=time_limit_s, gapRel=0, logPath=str(log))
        cbc.tmpDir = folder
        model.program.solve(cbc)
        bound = logged_bound(log.read_text() if log.exists() else "")
    found = model.program.sol_status
    if found == LpSolutionOptimal:
        return Answer(status="optimal", choice=chosen(model))
    if found == LpSolutionIntegerFeasible:
        return Answer(status="feasible", choice=chosen(model), bound=bound)
    return Answer(status="infeasible" if found == LpSolutionInfeasible else "unknown", bound=bound)


def logged_bound(log: str) -> float:
    """CBC's own bound from its log, in units of the objective; infinite when it gave none."""
    found = re.search(r"^Upper bound:\s+(\S+)", log, re.MULTILINE)
    return float(found.group(1)) / OBJECTIVE_SCALE if found else float("inf")
