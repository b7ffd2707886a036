"""What the importers' tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from planner.importers.document import Document, read_document
from planner.importers.native import parse_native
from planner.importers.problems import Problem, WorkflowRejected
from planner.importers.registry import import_workflow

T = TypeVar("T")
FIXTURES = Path(__file__).parents[2] / "fixtures" / "workflows"


def fixture(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def document_problems(data: bytes | str, filename: str = "") -> tuple[Problem, ...]:
    """The problems that keep `data` from being read as a document."""
    with pytest.raises(WorkflowRejected) as caught:
        read_document(data.encode() if isinstance(data, str) else data, filename=filename)
    return caught.value.problems


def import_problems(data: bytes | str, filename: str = "") -> tuple[Problem, ...]:
    with pytest.raises(WorkflowRejected) as caught:
        import_workflow(data.encode() if isinstance(data, str) else data, filename=filename)
    return caught.value.problems


def native_problems(document: Document) -> tuple[Problem, ...]:
    with pytest.raises(WorkflowRejected) as caught:
        parse_native(document)
    return caught.value.problems


def attempted(action: Callable[[], T]) -> T | tuple[Problem, ...]:
    """What `action` returns, or the problems for which it rejected its document."""
    try:
        return action()
    except WorkflowRejected as rejected:
        return rejected.problems


def found(problems: tuple[Problem, ...]) -> list[tuple[str, str, int | None]]:
    """(code, pointer, line) of each problem."""
    return [(problem.code, problem.pointer, problem.line) for problem in problems]
