"""What the planner's commands share: reading a file, exit statuses, and problems as people read them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from rich.console import Console

from planner.errors import OptionsInvalid
from planner.importers.problems import WorkflowRejected
from planner.importers.values import MAX_BYTES

FAILED = 1
BAD_INPUT = 2
PIPE_COLUMNS = 160


def read_file(name: str) -> bytes:
    """The file's bytes, of standard input for `-`; more than the importer takes is not read. Raises CommandError."""
    try:
        if name == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(name).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}", returncode=BAD_INPUT) from error


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
