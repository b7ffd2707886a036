"""What can go wrong in the runtime's services, as one tree.

RuntimeFailure
├── RunRejected           the run was not accepted; carries every problem
│   └── InputsRejected    ... because of its inputs
├── IdempotencyConflict   the key came before, with another request
└── RunNotFound           no such run, or not this person's
"""

from __future__ import annotations

from collections.abc import Iterable

from planner.importers.problems import Problem, capped


class RuntimeFailure(Exception):
    """Root of the tree. The message names the remedy."""


class RunRejected(RuntimeFailure):
    """Nothing was stored. `problems` is never empty; pointers are into the request."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = capped(tuple(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InputsRejected(RunRejected):
    """The inputs do not fit what the workflow declares, or a setting of the run is out of range."""


class IdempotencyConflict(RuntimeFailure):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"idempotency key {key!r} came before with another request; use a new key for a new request")


class RunNotFound(RuntimeFailure):
    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"there is no run {run_id!r}, or it belongs to somebody else")
