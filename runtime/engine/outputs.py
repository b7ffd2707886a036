"""Node outputs: strict JSON, validation against the node's schema, and how two outputs are compared (ours)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry

from planner.compiler.workflow import OutputSpec

_FENCED = re.compile(r"```[A-Za-z0-9]*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_NOTHING_REMOTE: Registry[Any] = Registry()
MAX_DEPTH = 64
"""Levels of a JSON output, as of a workflow's own values: what is nested deeper breaks whoever reads it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A text read as a node's output: its `value`, or the `problem` that a person and a model can read."""

    value: Any = None
    problem: str | None = None


def parse_output(text: str, spec: OutputSpec) -> Parsed:
    """Read a model's text as the node's output: text as it is, JSON parsed and validated."""
    if spec.format == "text":
        return Parsed(value=text)
    try:
        value = parse_json(text)
    except ValueError as error:
        return Parsed(problem=str(error))
    return Parsed(value=value, problem=_schema_problem(value, spec))


def parse_json(text: str) -> Any:
    """Strict JSON from a text: the whole text, or the one fenced block in it. ValueError says what is wrong.

    Stricter than `json.loads`: no NaN, no infinity, no NUL and no lone surrogate, because no database keeps them, and
    at most MAX_DEPTH levels.
    """
    fenced = _FENCED.findall(text)
    source = fenced[0] if len(fenced) == 1 and not text.lstrip().startswith(("{", "[", '"')) else text
    try:
        value = json.loads(source, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} at character {error.pos}") from None
    if _is_too_deep(value):
        raise ValueError("the JSON is nested too deeply")
    if "\\u" in source:
        _refuse_unstorable(value)
    return value


def clean_text(text: str) -> str:
    """The text with NULs and lone surrogates, which no database keeps, as replacement characters."""
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def canonical(value: Any) -> str:
    """Canonical JSON: two outputs are equal when their canonical texts are. 2.0 equals 2; key order does not matter."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [member for inner in level if isinstance(inner, dict | list) for member in _members(inner)]
        if not level:
            return False
    return True


def _members(value: dict[str, Any] | list[Any]) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, dict) else value)


def _unique_items(_: Any, is_wanted: Any, items: Any, __: Any) -> Iterator[ValidationError]:
    """The keyword in linear time: the library compares every pair, for minutes on a list that a model may write."""
    if is_wanted and isinstance(items, list) and len({canonical(item) for item in items}) < len(items):
        yield ValidationError("the list has an item twice")


_extend: Any = validators.extend  # untyped in the library's stubs
_Validator = _extend(Draft202012Validator, {"uniqueItems": _unique_items})


def _schema_problem(value: Any, spec: OutputSpec) -> str | None:
    if spec.schema is None:
        return None
    errors = _Validator(_plain(spec.schema), registry=_NOTHING_REMOTE).iter_errors(value)
    error = best_match(errors)
    if error is None:
        return None
    return f"{error.json_path} does not match the schema: {error.message[:300]}"


def _plain(value: Any) -> Any:
    """The value with plain dicts and lists, and whole floats as integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if hasattr(value, "items"):
        return {key: _plain(member) for key, member in value.items()}
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _refuse_unstorable(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False).replace("\\\\", "")
    if "\\u0000" in text or text != clean_text(text):
        raise ValueError("the JSON holds a NUL or a lone surrogate")
