"""YAML text to JSON values: a safe subset of YAML 1.2, with places, in one pass over the parser's events.

No tags, no merge keys, no second document; scalars as in JSON (so `on`, `no`, `12:30` and dates stay text);
aliases are followed while their expansion stays inside the limits of any document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from planner.importers.json_text import line_and_column
from planner.importers.places import Place, duplicate_key
from planner.importers.problems import Problem, WorkflowRejected, pointer
from planner.importers.values import MAX_BYTES, MAX_DEPTH, MAX_VALUES, too_deep, too_many_values

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# The parser in plain Python needs up to 10 microseconds a byte: a smaller text keeps a hostile one near a second.
MAX_YAML_BYTES = MAX_BYTES if _LOADER is not yaml.SafeLoader else 100_000

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    word: value for value in (True, False) for word in (str(value).lower(), str(value), str(value).upper())
}


@dataclass(slots=True)
class _Built:
    """A value under construction with its place and what it weighs once every alias is written out."""

    value: Any
    place: Place
    values: int = 1
    characters: int = 0
    depth: int = 0


def parse_yaml(text: str) -> tuple[Any, Place]:
    """The value and the places of one YAML document. Raises WorkflowRejected with the place of every problem."""
    builder = _Builder()
    try:
        built = builder.document(iter(yaml.parse(text, Loader=_LOADER)))
    except yaml.reader.ReaderError as error:
        raise WorkflowRejected([_bad_character(text, error)]) from error
    except yaml.MarkedYAMLError as error:
        raise WorkflowRejected([*builder.problems, _bad_syntax(error)]) from error
    if builder.problems:
        raise WorkflowRejected(builder.problems)
    return built.value, built.place


class _Builder:
    """Builds values from events. Problems that leave the rest readable are collected; limits end the reading."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._anchors: dict[str, _Built | None] = {}
        self._values = 0
        self._characters = 0

    def document(self, events: Iterator[Any]) -> _Built:
        empty = _Built(None, Place(line=1, column=1))
        built: _Built | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if built is not None:
                    self._stop("several_documents", event, "A second YAML document starts here.", "Keep one document.")
                built = self._value(next(events), events, [])
        return built or empty

    def _value(self, event: Any, events: Iterator[Any], path: list[str | int]) -> _Built:
        place = _place(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        if event.tag is not None:
            self._report("tag", event, path, f"The tag {event.tag[:80]!r} is not supported.", "Remove the tag.")
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            built = _Built(self._scalar(event, path), place, characters=len(event.value))
            self._count(event, 1, len(event.value))
        else:
            if len(path) >= MAX_DEPTH:
                raise WorkflowRejected([*self.problems, too_deep(pointer(*path), place.line, place.column)])
            self._count(event, 1, 0)
            is_list = isinstance(event, yaml.SequenceStartEvent)
            built = self._list(place, events, path) if is_list else self._object(place, events, path)
        if anchor is not None:
            self._anchors[anchor] = built
        return built

    def _list(self, place: Place, events: Iterator[Any], path: list[str | int]) -> _Built:
        built = _Built([], place)
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            path.append(len(built.value))
            self._put(built, str(path[-1]), self._value(event, events, path), _place(event))
            path.pop()
        return built

    def _object(self, place: Place, events: Iterator[Any], path: list[str | int]) -> _Built:
        built = _Built({}, place)
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key, at = self._key(event, path), _place(event)
            first = place.members.get(key) if place.members else None
            path.append(key)
            if first is not None:
                self.problems.append(duplicate_key(key, pointer(*path), at, first))
            self._put(built, key, self._value(next(events), events, path), at)
            path.pop()
        return built

    def _put(self, parent: _Built, name: str, member: _Built, at: Place) -> None:
        at.members = member.place.members
        parent.place.add(name, at)
        if isinstance(parent.value, list):
            parent.value.append(member.value)
        else:
            parent.value[name] = member.value
            parent.characters += len(name)
        parent.values += member.values
        parent.characters += member.characters
        parent.depth = max(parent.depth, member.depth + 1)

    def _key(self, event: Any, path: list[str | int]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._stop("bad_key", event, "A key must be a plain text.", "Write the key as a text.", path)
        if event.value == "<<" and event.implicit[0]:
            self._report("merge_key", event, path, "Merge keys (<<) are not supported.", "Write the keys out.")
        if event.tag is not None:
            self._report("tag", event, path, f"The tag {event.tag[:80]!r} is not supported.", "Remove the tag.")
        if event.anchor is not None:
            self._anchors[event.anchor] = _Built(event.value, _place(event), characters=len(event.value))
        self._count(event, 0, len(event.value))
        return str(event.value)

    def _alias(self, event: Any, path: list[str | int]) -> _Built:
        built = self._anchors.get(event.anchor)
        if built is None:
            known = event.anchor in self._anchors
            message = f"The alias *{event.anchor[:80]} " + ("contains itself." if known else "has no anchor before it.")
            self._stop("bad_alias", event, message, "Write the value out instead.", path)
        if len(path) + built.depth > MAX_DEPTH:
            raise WorkflowRejected([*self.problems, too_deep(pointer(*path), _place(event).line)])
        self._count(event, built.values, built.characters)
        return built

    def _count(self, event: Any, values: int, characters: int) -> None:
        """Everything an alias stands for counts again, so that a small text cannot describe a huge document."""
        self._values += values
        self._characters += characters
        if self._values > MAX_VALUES:
            raise WorkflowRejected([*self.problems, too_many_values(_place(event).line)])
        if self._characters > MAX_BYTES:
            message = f"With its aliases written out the document exceeds {MAX_BYTES:,} characters."
            self._stop("too_large", event, message, "Use fewer aliases.")

    def _scalar(self, event: Any, path: list[str | int]) -> Any:
        text = event.value
        if not event.implicit[0]:
            return text
        if _NOT_FINITE.match(text):
            self._report(
                "not_finite", event, path, f"{text} is not a finite number.", "Write a finite number, or null."
            )
            return None
        return plain_scalar(text)

    def _report(self, code: str, event: Any, path: list[str | int], message: str, remedy: str) -> None:
        self.problems.append(_problem(code, event, message, remedy, path))

    def _stop(self, code: str, event: Any, message: str, remedy: str, path: list[str | int] | None = None) -> NoReturn:
        raise WorkflowRejected([*self.problems, _problem(code, event, message, remedy, path or [])])


def plain_scalar(text: str) -> Any:
    """What an unquoted scalar means: null, true, false, a JSON number, else text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        return int(text) if len(text) <= 400 else float("inf")
    if _NUMBER.match(text):
        return float(text)
    return text


def _place(event: Any) -> Place:
    return Place(line=event.start_mark.line + 1, column=event.start_mark.column + 1)


def _problem(code: str, event: Any, message: str, remedy: str, path: list[str | int]) -> Problem:
    place = _place(event)
    return Problem(
        code=code, message=message, remedy=remedy, pointer=pointer(*path), line=place.line, column=place.column
    )


def _bad_syntax(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    what = ", ".join(part for part in (error.context, error.problem) if part)
    return Problem(
        code="bad_yaml",
        message=f"This is not YAML: {what}.",
        remedy="Correct the text at this place; quote texts that contain ': ' or start with a special character.",
        line=mark.line + 1 if mark else None,
        column=mark.column + 1 if mark else None,
    )


def _bad_character(text: str, error: yaml.reader.ReaderError) -> Problem:
    position = min(max(error.position, 0), len(text))
    line, column = line_and_column(text, position)
    return Problem(
        code="bad_character",
        message=f"YAML does not allow the character U+{_code(error.character):04X}.",
        remedy="Remove it, or write it as an escape in a quoted text.",
        line=line,
        column=column,
    )


def _code(character: Any) -> int:
    return character if isinstance(character, int) else ord(str(character)[:1] or "\0")
