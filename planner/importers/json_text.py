"""JSON text to values, with errors that name their place.

`json.loads` decides what JSON is; the scanner here only finds places, and only when there is a problem to place.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

from planner.importers.places import Place, duplicate_key
from planner.importers.problems import Problem, WorkflowRejected, pointer
from planner.importers.values import MAX_DEPTH, MAX_VALUES, too_deep

_SPACE = re.compile(r"[ \t\n\r]*")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_MAX_DIGITS = 400


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


class _Scanner:
    """Walks the tokens of a valid JSON text once; places beyond MAX_VALUES are not kept."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.duplicates: list[Problem] = []
        self._line, self._line_start, self._read = 1, 0, 0
        self._open: list[_Container] = []

    def scan(self) -> Place:
        root = Place(line=1, column=1)
        for count, token in enumerate(_TOKEN.finditer(self.text)):
            if count > 4 * MAX_VALUES:
                break
            self._advance(token.start())
            mark = token.group()
            if mark in ("}", "]"):
                self._open.pop()
            elif mark not in (":", ","):
                place = self._take(mark, Place(line=self._line, column=token.start() - self._line_start + 1))
                root = place if place is not None and not self._open else root
                if place is not None and mark in ("{", "["):
                    self._open.append(_Container(place, is_object=mark == "{"))
        return root

    def _advance(self, offset: int) -> None:
        lines = self.text.count("\n", self._read, offset)
        if lines:
            self._line += lines
            self._line_start = self.text.rfind("\n", self._read, offset) + 1
        self._read = offset

    def _take(self, mark: str, place: Place) -> Place | None:
        """Note a key, or put a value at its place in the tree and return that place."""
        if not self._open:
            return place
        parent = self._open[-1]
        if not parent.is_object:
            parent.place.add(str(parent.count), place)
            parent.count += 1
            return place
        if parent.key is None:
            parent.key, parent.key_place = _key_text(mark), place
            return None
        key, parent.key = parent.key, None
        first = parent.place.members.get(key) if parent.place.members else None
        if first is not None:
            at = pointer(*(step for container in self._open[:-1] for step in container.step), key)
            self.duplicates.append(duplicate_key(key, at, parent.key_place, first))
        parent.place.add(key, parent.key_place)
        parent.last_key = key
        return parent.key_place


class _Container:
    """An object or array that is still open in the scan."""

    __slots__ = ("count", "is_object", "key", "key_place", "last_key", "place")

    def __init__(self, place: Place, *, is_object: bool) -> None:
        self.place, self.is_object = place, is_object
        self.count = 0
        self.key: str | None = None
        self.key_place = place
        self.last_key = ""

    @property
    def step(self) -> tuple[str | int]:
        """How the path goes on from here to the value being read."""
        return (self.last_key if self.is_object else self.count - 1,)


def _key_text(token: str) -> str:
    return str(json.loads(token)) if "\\" in token else token[1:-1]
