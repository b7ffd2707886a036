"""Bytes from outside to one JSON value with places: JSON or YAML, at most 1 MB, UTF-8, bounded in every direction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from planner.importers.json_text import json_places, parse_json
from planner.importers.places import Place, located
from planner.importers.problems import Problem, WorkflowRejected
from planner.importers.values import MAX_BYTES, too_large, value_problems
from planner.importers.yaml_text import MAX_YAML_BYTES, parse_yaml

Syntax = Literal["json", "yaml"]
_YAML_NAMES = (".yaml", ".yml")


def _no_places() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One JSON value; `places` computes where its parts stand (None for a value that never was a text)."""

    value: Any
    syntax: Syntax = "json"
    places: Callable[[], Place | None] = _no_places

    def located(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """The problems with line and column, in the order of the text."""
        return located(problems, self.places)

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Raises WorkflowRejected when there are problems."""
        placed = self.located(problems)
        if placed:
            raise WorkflowRejected(placed)


def read_document(data: bytes, *, filename: str = "") -> Document:
    """The document in `data`. Raises WorkflowRejected, and nothing else, on any other bytes.

    JSON when it parses as JSON, or when it starts like JSON and the name does not say YAML; else YAML.
    """
    if len(data) > MAX_BYTES:
        raise WorkflowRejected([too_large(len(data))])
    text = _decoded(data)
    if not text.strip():
        raise WorkflowRejected([_empty()])
    document = _parsed(text, is_yaml=filename.lower().endswith(_YAML_NAMES))
    document.refuse(value_problems(document.value))
    return document


def document_of(value: Any) -> Document:
    """A value that was parsed elsewhere (an API's request body), held to the same limits, without places."""
    document = Document(value=value)
    document.refuse(value_problems(value))
    return document


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = Problem(
            code="not_utf8",
            message=f"The file is not UTF-8 text: byte {error.start} (0x{data[error.start]:02X}) is not valid.",
            remedy="Save it as UTF-8.",
            line=data.count(b"\n", 0, error.start) + 1,
        )
        raise WorkflowRejected([problem]) from error


def _parsed(text: str, *, is_yaml: bool) -> Document:
    if text.lstrip()[0] in "{[":
        try:
            return Document(value=parse_json(text), syntax="json", places=partial(json_places, text))
        except WorkflowRejected as rejected:
            if not (is_yaml and rejected.problems[0].code == "bad_json"):
                raise
    if len(text.encode()) > MAX_YAML_BYTES:
        raise WorkflowRejected([too_large(len(text.encode()))])
    value, root = parse_yaml(text)
    return Document(value=value, syntax="yaml", places=lambda: root)


def _empty() -> Problem:
    return Problem(code="empty", message="The document is empty.", remedy="Choose a file that describes a workflow.")
