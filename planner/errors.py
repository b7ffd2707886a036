"""What can go wrong in the planner's services, as one tree. A rejected document is planner.importers' WorkflowRejected.

PlannerError
├── OptionsInvalid     effort, weights or levels that mean nothing
├── NoActiveProfiles   nothing to plan with
├── PlanInfeasible     no legal implementation for a node; carries every reason
└── PlanRefused        a plan that is not what it says; a defect, never the caller's fault
"""

from __future__ import annotations

from collections.abc import Iterable


class PlannerError(Exception):
    """Root of the tree. The message names the remedy."""


class OptionsInvalid(PlannerError, ValueError):
    """`problems` maps the option to what is wrong with it."""

    def __init__(self, problems: dict[str, str]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{option}: {message}" for option, message in problems.items()))


class NoActiveProfiles(PlannerError):
    def __init__(self) -> None:
        super().__init__("no profiles are active: activate a version in the admin; `make up` loads the shipped ones")


class PlanInfeasible(PlannerError):
    """The workflow has no plan on this fleet; every reason names its node and a remedy."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(self.reasons))


class PlanRefused(PlannerError):
    """The certificate found discrepancies; the plan was recorded and is not used."""

    def __init__(self, discrepancies: Iterable[str]) -> None:
        self.discrepancies = tuple(discrepancies)
        super().__init__(
            "the compiled plan failed its check and is not used: this is a defect of dyserve, please report what the "
            "admin lists under Refused plans"
        )
