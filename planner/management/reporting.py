"""What the planner's commands share: problems as people read them."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from fleet.common.commands import BAD_INPUT
from planner.errors import OptionsInvalid
from planner.importers.problems import WorkflowRejected

PIPE_COLUMNS = 160


def console_on(*, stderr: bool) -> Console:
    """A console that does not fold tables where no terminal limits them."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=PIPE_COLUMNS)


def problems_of(error: WorkflowRejected | OptionsInvalid) -> list[dict[str, Any]]:
    """The same problems for programs."""
    if isinstance(error, OptionsInvalid):
        return [{"code": "bad_option", "option": option, "message": text} for option, text in error.problems.items()]
    return [problem.to_json() for problem in error.problems]


def rejected(name: str, error: WorkflowRejected | OptionsInvalid) -> int:
    """Prints every problem to standard error, one a line; returns the exit status."""
    console = Console(stderr=True, soft_wrap=True)
    if isinstance(error, OptionsInvalid):
        for option, message in error.problems.items():
            console.print(f"--{option}: {message}", markup=False, highlight=False)
        return BAD_INPUT
    console.print(f"{name} is no valid workflow:", markup=False, highlight=False)
    for problem in error.problems:
        console.print(f"  {problem}", markup=False, highlight=False)
    return BAD_INPUT
