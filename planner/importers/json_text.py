"""JSON text to values, with errors that name their place.

`json.loads` decides what JSON is; the scanner here only finds places, and only when there is a problem to place.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from planner.importers.places import Place
from planner.importers.problems import Problem, WorkflowRejected, pointer
from planner.importers.values import MAX_DEPTH, too_deep

_SPACE = re.compile(r"[ \t\n\r]*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')
_MAX_DIGITS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marker:
    """Stands for what JSON lacks (NaN, Infinity) until the problem can be placed."""

    name: str


def parse_json(text: str) -> Any:
    """The value of one JSON document. Raises WorkflowRejected: bad syntax, glued documents, duplicate keys."""
    seen_twice: list[str] = []
    decoder = json.JSONDecoder(
        object_pairs_hook=partial(_object, seen_twice), parse_int=_integer, parse_constant=_constant
    )
    start = _end_of_space(text, 0)
    try:
        value, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise WorkflowRejected([_bad_syntax(error)]) from error
    except RecursionError as error:
        raise WorkflowRejected([_first_too_deep(text)]) from error
    _refuse_more_text(text, _end_of_space(text, end))
    if seen_twice:
        raise WorkflowRejected(_duplicate_keys(text))
    return value


def json_places(text: str) -> Place:
    """The places of a text that `parse_json` accepted."""
    return _Scanner(text).scan()


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of a character offset."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _object(seen_twice: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen_twice.append("")
    return found


def _integer(digits: str) -> int | float:
    """Python refuses to read integers of thousands of digits; such a number is out of range anyway."""
    return int(digits) if len(digits) <= _MAX_DIGITS else float("inf")


def _constant(name: str) -> float:
    return float(name.replace("Infinity", "inf"))


def _end_of_space(text: str, offset: int) -> int:
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


def _bad_syntax(error: json.JSONDecodeError) -> Problem:
    return Problem(
        code="bad_json",
        message=f"This is not JSON: {error.msg[0].lower()}{error.msg[1:]} (column {error.colno}).",
        remedy="Correct the text at this place; a document in YAML must not start with '{' or '['.",
        line=error.lineno,
        column=error.colno,
    )


def _refuse_more_text(text: str, offset: int) -> None:
    if offset == len(text):
        return
    line, column = line_and_column(text, offset)
    if text[offset] in "{[":
        problem = Problem(
            code="glued_documents",
            message=f"Two JSON documents are glued together at line {line}.",
            remedy="Keep one document in a file.",
            line=line,
            column=column,
        )
    else:
        problem = Problem(
            code="extra_text",
            message=f"The JSON document has ended, but more text follows at line {line}.",
            remedy="Remove the text after the last closing bracket.",
            line=line,
            column=column,
        )
    raise WorkflowRejected([problem])


def _first_too_deep(text: str) -> Problem:
    depth = 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in ("{", "["):
            depth += 1
            if depth > MAX_DEPTH:
                line, column = line_and_column(text, token.start())
                return too_deep(line=line, column=column)
        elif mark in ("}", "]"):
            depth -= 1
    return too_deep()


def _duplicate_keys(text: str) -> list[Problem]:
    scanner = _Scanner(text)
    scanner.scan()
    return scanner.duplicates


def duplicate_key(key: str, at: str, *, line: int, column: int, first_line: int) -> Problem:
    return Problem(
        code="duplicate_key",
        message=f"The key {key!r} appears twice in one object (first at line {first_line}).",
        remedy="Keep one of the two.",
        pointer=at,
        line=line,
        column=column,
    )
