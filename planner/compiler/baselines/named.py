"""The baselines and ablations of the paper's evaluation (7.1, 7.5) as planners of the same problem.

Each chooses by its own rule from the problem's columns; whatever it believed then, its plan is decoded with the true
coefficients. So objectives compare with `compile_plan`'s and never exceed them. Pins and prohibitions are kept, since
they only shorten columns; caps are ignored, and the certificate names those that a plan breaks.

The paper describes them in a sentence each. `Baseline.reading` says how it is read here; among columns that a rule
leaves equal the faster one is taken, then the earlier one in the order of the menu.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from planner.compiler.baselines.exhaustive import exhaustive
from planner.compiler.baselines.rules import (
    collapsed_skills,
    fixed_model,
    model_first,
    model_only,
    no_vulnerability,
    sherlock_style,
    uniform_weights,
    verification_first,
    verifier_only,
    verify_all,
)
from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Choice, Solution
from planner.compiler.mip.fallback import upper_bound
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import DEFAULT_TIME_LIMIT_S, Timer, decode

Chooser = Callable[[Coefficients, float, float], Choice]
"""(coefficients, level, seconds per solve) -> a column of every node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Called like `compile_plan`. `paper` is the section; `optimal`: its plans are."""

    name: str
    title: str
    paper: str
    reading: str
    choose: Chooser
    optimal: bool = False

    def __call__(
        self,
        problem: PlanningProblem,
        level: float,
        *,
        time_limit_s: float = DEFAULT_TIME_LIMIT_S,
        timer: Timer = time.perf_counter,
    ) -> Plan | Infeasible:
        """The baseline's plan at `level` (>= 0); its gap is to a bound that needs no solver.

        `time_limit_s` holds for each solve of those that solve; past it they go on with the best choice known.
        """
        if level < 0:
            raise ValueError(f"level must not be negative, got {level}")
        coefficients = problem.coefficients
        if isinstance(coefficients, Infeasible):
            return coefficients
        started = timer()
        choice = self.choose(coefficients, level, time_limit_s) if coefficients.nodes else {}
        bound = None if self.optimal else upper_bound(coefficients, level)
        plan = decode(coefficients, Solution(choice=choice, solver=f"baseline:{self.name}", bound=bound), level)
        return replace(plan, solve_s=timer() - started)


_ALL = (
    Baseline(
        name="fixed_model",
        title="Fixed-Model",
        paper="7.1",
        reading="Each node's largest legal class without verification, or with its cheapest policy where verification "
        "is compulsory.",
        choose=fixed_model,
    ),
    Baseline(
        name="verify_all",
        title="Verify-All",
        paper="7.1",
        reading="Fixed-Model, and at every node that may be verified the verifying policy of the highest profiled "
        "quality for that class; equal ones: the cheaper.",
        choose=verify_all,
    ),
    Baseline(
        name="sherlock_style",
        title="Sherlock-style",
        paper="7.1",
        reading="Fixed-Model, then verification in the order of utility: vulnerability by role and fan-in times the "
        "error saved, per slot-second on top; one policy a node, within half of what Verify-All adds. The budget is "
        "ours.",
        choose=sherlock_style,
    ),
    Baseline(
        name="model_first",
        title="Model-first",
        paper="7.5",
        reading="The best models with verification disabled (cheapest policy where it is compulsory), then the best "
        "policies with the models fixed; each for the whole workflow.",
        choose=model_first,
    ),
    Baseline(
        name="verification_first",
        title="Verification-first",
        paper="7.5",
        reading="The best policies with every node on its largest legal class, then the best models with the policies "
        "fixed; each for the whole workflow.",
        choose=verification_first,
    ),
    Baseline(
        name="model_only",
        title="Model-only",
        paper="7.5",
        reading="The best models with each node's policy fixed: of those legal for most of its classes the one of the "
        "highest mean profiled quality for its skill; equal ones: the cheaper.",
        choose=model_only,
    ),
    Baseline(
        name="verifier_only",
        title="Verifier-only",
        paper="7.5",
        reading="The best policies with every node on its largest legal class.",
        choose=verifier_only,
    ),
    Baseline(
        name="uniform_weights",
        title="Uniform topology weights",
        paper="7.5",
        reading="The best plan if every node had the workflow's mean reach weight and mean vulnerability.",
        choose=uniform_weights,
    ),
    Baseline(
        name="no_vulnerability",
        title="Without vulnerability",
        paper="7.5",
        reading="The best plan without the whole risk term (v = 0); where the objective is priced, v = 1, since there "
        "v = 0 would leave no quality at all.",
        choose=no_vulnerability,
    ),
    Baseline(
        name="collapsed_skills",
        title="Collapsed skills",
        paper="7.5",
        reading="The best plan if every pair had the mean quality and tokens of its profiles over all skills.",
        choose=collapsed_skills,
    ),
    Baseline(
        name="exhaustive",
        title="Exhaustive search",
        paper="ours",
        reading="Every assignment tried, without the solver: the optimum of small problems.",
        choose=exhaustive,
        optimal=True,
    ),
)
BASELINES: Mapping[str, Baseline] = MappingProxyType({baseline.name: baseline for baseline in _ALL})
