"""The JSON values that dyserve accepts from outside: bounded, finite, and storable in every database."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from planner.importers.problems import MAX_PROBLEMS, Problem, pointer

MAX_BYTES = 1_000_000
MAX_DEPTH = 64
MAX_VALUES = 100_000
MAX_INTEGER = 2**63 - 1
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def describe(value: Any) -> str:
    """What a value is, in words a person reads: `an object`, `the number 3`, `a text`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        text = str(value)
        return f"the number {text}" if len(text) <= 20 else "a long number"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "an object"


def too_large(size: int) -> Problem:
    return Problem(
        code="too_large",
        message=f"The document has {size:,} bytes; the limit is {MAX_BYTES:,}.",
        remedy="Split the workflow, or pass long texts as inputs of the run.",
    )


def too_deep(at: str = "", line: int | None = None, column: int | None = None) -> Problem:
    return Problem(
        code="too_deep",
        message=f"Values are nested more than {MAX_DEPTH} levels deep.",
        remedy="Flatten the value, or pass it as a text.",
        pointer=at,
        line=line,
        column=column,
    )


def too_many_values(line: int | None = None) -> Problem:
    return Problem(
        code="too_many_values",
        message=f"The document holds more than {MAX_VALUES:,} values.",
        remedy="A workflow has at most 500 nodes: remove what does not belong to it.",
        line=line,
    )


def value_problems(value: Any) -> tuple[Problem, ...]:
    """Problems of a JSON value that came from outside: too deep, too many parts, unstorable text, a bad number."""
    return tuple(islice(_Walk().problems(value, []), MAX_PROBLEMS + 1))


class _Walk:
    """One pass over a value; counts what it has seen and stops at the limits."""

    def __init__(self) -> None:
        self.values = 0

    def problems(self, value: Any, path: list[str | int]) -> Iterator[Problem]:
        self.values += 1
        if self.values > MAX_VALUES:
            if self.values == MAX_VALUES + 1:
                yield too_many_values()
        elif isinstance(value, str):
            yield from _text_problems(value, path)
        elif isinstance(value, bool) or value is None:
            return
        elif isinstance(value, int | float):
            yield from _number_problems(value, path)
        elif len(path) >= MAX_DEPTH:
            yield too_deep(pointer(*path))
        else:
            yield from self._members(value, path)

    def _members(self, value: Any, path: list[str | int]) -> Iterator[Problem]:
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            path.append(key)
            if isinstance(key, str):
                yield from _text_problems(key, path)
            yield from self.problems(member, path)
            path.pop()
            if self.values > MAX_VALUES:
                return


def _text_problems(text: str, path: list[str | int]) -> Iterator[Problem]:
    found = _UNSTORABLE.search(text)
    if found:
        yield Problem(
            code="unstorable_text",
            message=f"The text holds the character U+{ord(found.group()):04X}, which cannot be stored.",
            remedy="Remove it; write characters beyond U+FFFF directly or as a complete surrogate pair.",
            pointer=pointer(*path),
        )


def _number_problems(number: float, path: list[str | int]) -> Iterator[Problem]:
    if isinstance(number, float) and not math.isfinite(number):
        yield Problem(
            code="not_finite",
            message="The number is not finite (NaN, Infinity, or too large for a 64-bit float).",
            remedy="Write a finite number, or null.",
            pointer=pointer(*path),
        )
    elif isinstance(number, int) and abs(number) > MAX_INTEGER:
        yield Problem(
            code="integer_too_large",
            message="The integer does not fit into 64 bits.",
            remedy="Write it as a text, or as a number with an exponent.",
            pointer=pointer(*path),
        )
