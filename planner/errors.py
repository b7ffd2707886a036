"""What can go wrong in the planner's services, as one tree. A rejected document is planner.importers' WorkflowRejected.

PlannerError
├── OptionsInvalid     effort, weights or levels that mean nothing
├── NoActiveProfiles   nothing to plan with
├── PlanInfeasible     no legal implementation for a node, or limits that no plan keeps; carries every reason
├── PlanRefused        a plan that is not what it says; a defect, never the caller's fault
└── NoAnswer           a question about a plan that has no answer
    ├── Outdated           fleet, profiles or policies are not those of the plan any more
    └── Busy               too many questions at once
"""

from __future__ import annotations

from collections.abc import Iterable

from planner.compiler.plan import Conflict, Infeasible


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
    """The workflow has no plan on this fleet; every reason names its node or limit and a remedy.

    `conflicts`: limits that no plan keeps together. Not `proved`: none was found in time, though there may be one.
    """

    def __init__(self, reasons: Iterable[str], conflicts: Iterable[Conflict] = (), *, proved: bool = True) -> None:
        self.reasons, self.conflicts, self.proved = tuple(reasons), tuple(conflicts), proved
        super().__init__("; ".join(self.reasons))

    @classmethod
    def of(cls, found: Infeasible) -> PlanInfeasible:
        return cls(found.reasons, found.conflicts, proved=found.proved)


class PlanRefused(PlannerError):
    """The certificate found discrepancies; the plan was recorded and is not used."""

    def __init__(self, discrepancies: Iterable[str]) -> None:
        self.discrepancies = tuple(discrepancies)
        super().__init__(
            "the compiled plan failed its check and is not used: this is a defect of dyserve, please report what the "
            "admin lists under Refused plans"
        )


# --- Questions about a plan ------------------------------------------------------------------------------------------


class NoAnswer(PlannerError):
    """The message says why, and the remedy."""


class Outdated(NoAnswer):
    """`changed` names what is another now than when the plan was made: fleet, profiles, policies, prices."""

    def __init__(self, changed: Iterable[str]) -> None:
        self.changed = tuple(changed)
        said = " and ".join(f"the {name}" for name in self.changed)
        verb = "has" if self.changed == ("fleet",) else "have"
        super().__init__(f"{said} {verb} changed since this plan was made: compile it again")


class Busy(NoAnswer):
    """Other questions are being computed; `retry_after_s` says when to ask again."""

    def __init__(self, retry_after_s: int = 5) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"the server computes other answers: ask again in {retry_after_s} s")
