"""The published JSON Schema of the native format, and its findings in words that name a remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError

from planner.importers.problems import MAX_COLLECTED, Problem, pointer
from planner.importers.values import describe

_TYPES = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "an object",
    "string": "a text",
}
MAX_NODES, MAX_EDGES, MAX_INPUTS, MAX_LISTED = 500, 10_000, 100, 100
_SKILL_TAG = r"[a-z0-9][a-z0-9_-]{0,39}"  # as in the schema; a test holds the two together
_LIMITS = {"nodes": MAX_NODES, "edges": MAX_EDGES, "inputs": MAX_INPUTS}
_Path = tuple[str | int, ...]


@cache
def schema_text() -> str:
    """The published schema, as it is served."""
    return files("planner.importers").joinpath("workflow.schema.json").read_text(encoding="utf-8")


def is_skill(name: str) -> bool:
    """Whether `name` is a legal skill tag."""
    return re.fullmatch(_SKILL_TAG, name) is not None


@cache
def _validator() -> Any:
    """The schema's validator, with a `$` that is the very end: Python's also matches before a last newline."""
    extend: Any = validators.extend
    strict = extend(Draft202012Validator, {"pattern": _pattern, "additionalProperties": _additional})
    return strict(json.loads(schema_text()))


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and (instance.endswith("\n") or not re.search(pattern, instance)):
        yield ValidationError(f"{instance[:80]!r} does not match {pattern!r}")


def _additional(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """The keyword as it is, but with one error a key instead of one an object."""
    known = schema.get("properties", {})
    for key, member in instance.items() if isinstance(instance, dict) else ():
        if key not in known and wanted is False:
            yield ValidationError(key)
        elif key not in known:
            yield from validator.descend(member, wanted, path=key)


def shape_problems(value: Any) -> tuple[Problem, ...]:
    """What the published schema says against `value`; at most MAX_COLLECTED problems, found lazily."""
    oversized = tuple(_oversized(value))
    if oversized:
        return oversized
    errors: Iterator[ValidationError] = _validator().iter_errors(value)
    return tuple(dict.fromkeys(_problem(error) for error in islice(errors, MAX_COLLECTED)))


def _oversized(value: Any) -> Iterator[Problem]:
    """Collections beyond their limit are refused before a validator walks through their members."""
    if not isinstance(value, Mapping):
        return
    for name, limit in _LIMITS.items():
        yield from _over(value, (), name, limit)
    nodes = value.get("nodes")
    for index, node in enumerate(nodes if isinstance(nodes, list) else ()):
        for name in ("models", "policies") if isinstance(node, Mapping) else ():
            yield from _over(node, ("nodes", index), name, MAX_LISTED)


def _over(parent: Mapping[str, Any], at: _Path, name: str, limit: int) -> Iterator[Problem]:
    members = parent.get(name)
    if isinstance(members, list | dict) and len(members) > limit:
        yield Problem(
            code=f"too_many_{name}",
            pointer=pointer(*at, name),
            message=f"There are {len(members):,} {name}; the limit is {limit:,}.",
            remedy="Split the workflow." if not at else "List the few that are legal.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """One finding of the validator: which keyword wanted what of which value, and where."""

    keyword: str
    wanted: Any
    value: Any
    path: _Path
    schema: Any
    message: str
    is_key: bool

    @property
    def subject(self) -> str:
        if not self.path:
            return "The document"
        return repr(self.path[-1]) if isinstance(self.path[-1], str) else "The value"


def _problem(error: ValidationError) -> Problem:
    fault = _Fault(
        keyword=str(error.validator),
        wanted=error.validator_value,
        value=error.instance,
        path=tuple(error.absolute_path),
        schema=error.schema,
        message=error.message,
        is_key="propertyNames" in error.absolute_schema_path,
    )
    return _TRANSLATIONS.get(fault.keyword, _other)(fault)


def _made(fault: _Fault, code: str, message: str, remedy: str, *more: str) -> Problem:
    return Problem(code=code, pointer=pointer(*fault.path, *more), message=message, remedy=remedy)


def _wrong_type(fault: _Fault) -> Problem:
    wanted = _TYPES[fault.wanted]
    message = f"{fault.subject} must be {wanted}, not {describe(fault.value)}."
    return _made(fault, "wrong_type", message, f"Write {wanted}.")


def _missing(fault: _Fault) -> Problem:
    """The validator reports one missing key at a time and names it in its message alone."""
    key = next(key for key in fault.wanted if fault.message.startswith(f"{key!r} "))
    return _made(fault, "missing_key", f"The key {key!r} is missing.", _HINTS.get(key, f"Add {key!r}."))


def _unknown_key(fault: _Fault) -> Problem:
    key = fault.message
    known = sorted(fault.schema["properties"])
    close = get_close_matches(key[:80], known, n=1)
    remedy = f"Did you mean {close[0]!r}?" if close else f"Known here: {', '.join(known)}."
    return _made(fault, "unknown_key", f"The key {key[:80]!r} is not known here.", remedy, key)


def _not_listed(fault: _Fault) -> Problem:
    allowed = fault.wanted if fault.keyword == "enum" else [fault.wanted]
    choices = " or ".join(json.dumps(choice) for choice in allowed)
    close = get_close_matches(str(fault.value)[:80], [str(choice) for choice in allowed], n=1)
    remedy = f"Did you mean {close[0]!r}?" if close else f"Write {choices}."
    given = json.dumps(fault.value[:80]) if isinstance(fault.value, str) else describe(fault.value)
    return _made(fault, "bad_value", f"{fault.subject} must be {choices}, not {given}.", remedy)


def _bad_name(fault: _Fault) -> Problem:
    remedy = f"Use letters, digits, hyphens and underscores; it must match {fault.wanted}"
    message = f"{fault.value[:80]!r} is not a valid name."
    return _made(fault, "bad_name", message, remedy, *([fault.value] if fault.is_key else []))


def _outside(fault: _Fault) -> Problem:
    signs = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "greater than"}
    wanted = f"{signs[fault.keyword]} {fault.wanted:g}"
    message = f"{fault.subject} must be {wanted}, not {fault.value}."
    return _made(fault, "out_of_range", message, f"Write a number {wanted}.")


def _empty(fault: _Fault) -> Problem:
    remedy = "Write a text." if fault.keyword == "minLength" else "Give it at least one entry."
    return _made(fault, "empty", f"{fault.subject} is empty.", remedy)


def _too_long(fault: _Fault) -> Problem:
    message = f"{fault.subject} has a size of {len(fault.value):,}; the limit is {fault.wanted:,}."
    return _made(fault, "too_long", message, "Shorten it.")


def _repeated(fault: _Fault) -> Problem:
    return _made(fault, "repeated", f"{fault.subject} lists an entry twice.", "Keep one of the two.")


def _other(fault: _Fault) -> Problem:
    message = f"{fault.subject} is not valid: {fault.message[:200]}."
    return _made(fault, "bad_value", message, "Compare it with the published schema.")


_HINTS = {
    "dyserve": "Add `dyserve: 1`.",
    "kind": "Add `kind: llm` or `kind: tool`.",
    "skill": "Add the skill's tag, for example `skill: writing`.",
}
_TRANSLATIONS: Mapping[str, Callable[[_Fault], Problem]] = {
    "type": _wrong_type,
    "required": _missing,
    "additionalProperties": _unknown_key,
    "enum": _not_listed,
    "const": _not_listed,
    "pattern": _bad_name,
    "minimum": _outside,
    "maximum": _outside,
    "exclusiveMinimum": _outside,
    "minLength": _empty,
    "minItems": _empty,
    "maxLength": _too_long,
    "maxItems": _too_long,
    "maxProperties": _too_long,
    "uniqueItems": _repeated,
}
