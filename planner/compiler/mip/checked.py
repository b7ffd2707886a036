"""One MIP from model to checked choice (paper 4.3; caps, cuts and fallback ours).

A solver keeps its rows to a tolerance. So a choice is checked against the caps themselves, and one that breaks a cap by
less than the tolerance is ruled out by a cut that no plan within the caps breaks; then the solver runs again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Solution
from planner.compiler.limits.caps import NO_PLAN, Cap, least
from planner.compiler.mip import cbc, highs
from planner.compiler.mip.fallback import incumbent, upper_bound
from planner.compiler.mip.feasibility import find_within
from planner.compiler.mip.ilp import Answer, PlanModel, add_cover, build_any, build_model
from planner.compiler.plan import Infeasible

MipSolver = Literal["cbc", "highs"]
MAX_CUTS = 50
HIGHS_COLUMNS = 60
"""Up to this many columns HiGHS is quicker: no process to start. CBC is beyond: 3 times at 350, 10 times at 1,000."""
_RUN = {"cbc": cbc.run, "highs": highs.run}


def solve(
    coefficients: Coefficients, level: float, caps: Sequence[Cap], deadline: float, solver: MipSolver
) -> Solution | Infeasible:
    """The best plan within the caps; past the deadline the best one known with its bound, a solver-free one at worst.

    Infeasible is `proved`, or says that nothing was found in time.
    """
    if not all(cap.keeps(coefficients, least(coefficients, cap)) for cap in caps):
        return NO_PLAN
    answer = checked(build_model(coefficients, level, caps), caps, deadline, solver)
    if answer.status == "infeasible":
        return NO_PLAN
    if answer.status == "optimal" and answer.choice is not None:
        return Solution(choice=answer.choice, solver=solver)
    bound = min(answer.bound, upper_bound(coefficients, level))
    if answer.choice is not None:
        return Solution(choice=answer.choice, solver=solver, bound=bound)
    choice = find_within(coefficients, level, caps, deadline) if caps else incumbent(coefficients, level)
    return not_found() if choice is None else Solution(choice=choice, solver="fallback", bound=bound)


def quicker(coefficients: Coefficients) -> MipSolver:
    """The solver that was measured to be the quicker one at this size."""
    return "highs" if sum(len(node.columns) for node in coefficients.nodes.values()) <= HIGHS_COLUMNS else "cbc"


def checked(model: PlanModel, caps: Sequence[Cap], deadline: float, solver: MipSolver) -> Answer:
    """The solver's answer, whose choice keeps the caps as they are; without one where cuts or time did not suffice."""
    answer = Answer(status="unknown")
    for _ in range(MAX_CUTS):
        answer = _RUN[solver](model, max(0.0, deadline - time.perf_counter()))
        choice = answer.choice
        if choice is None:
            return answer
        broken = [cap for cap in caps if not cap.keeps(model.coefficients, choice)]
        if not broken:
            return answer
        for cap in broken:
            add_cover(model, cap, choice)
    return replace(answer, status="unknown", choice=None)


def infeasible(coefficients: Coefficients, caps: Sequence[Cap], deadline: float) -> bool:
    """Whether it is proved, in time, that no plan keeps the caps."""
    return checked(build_any(coefficients, caps), caps, deadline, quicker(coefficients)).status == "infeasible"


def not_found() -> Infeasible:
    return Infeasible(
        reasons=("no plan that keeps all limits was found in time: allow more time, or change a limit",), proved=False
    )
