"""A run's inputs against what its workflow declares: types, what is required, defaults, unknown names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from planner.compiler.workflow import InputSpec, InputType
from planner.importers.nearest import nearest
from planner.importers.problems import MAX_COLLECTED, Problem, pointer
from planner.importers.values import MAX_INTEGER, describe, value_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedInputs:
    """A run's inputs, complete with defaults, or the problems that keep the run from being accepted."""

    values: Mapping[str, Any]
    problems: tuple[Problem, ...] = ()


def validate_inputs(specs: Iterable[InputSpec], given: Any, *, at: str = "") -> CheckedInputs:
    """Check a run's inputs against what the workflow declares; `at` is the JSON pointer where they stand.

    An optional input that is missing or null gets its default; without one, a string becomes "" and everything else
    null. At most MAX_COLLECTED unknown names are reported.
    """
    known = {spec.name: spec for spec in specs}
    if not isinstance(given, Mapping):
        wrong = _problem("wrong_type", at, f"The inputs are {describe(given)}.", "Give an object of names and values.")
        return CheckedInputs(values={}, problems=(wrong,))
    unknown = islice((name for name in given if name not in known), MAX_COLLECTED)
    problems = [_unknown_input(name, at, known) for name in unknown]
    problems += [problem for spec in known.values() for problem in _input_problems(spec, given, at)]
    values = {name: _value(spec, given) for name, spec in known.items()}
    return CheckedInputs(values={} if problems else values, problems=tuple(problems))


def has_type(value: Any, wanted: InputType) -> bool:
    """Whether a JSON value has an input's type; 2.0 is an integer (1e300 is none of 64 bits), true is no number."""
    if isinstance(value, bool):
        return wanted in ("boolean", "json")
    if isinstance(value, int):
        return wanted in ("integer", "number", "json")
    if isinstance(value, float):
        return wanted in ("number", "json") or (
            wanted == "integer" and value.is_integer() and abs(value) <= MAX_INTEGER
        )
    return wanted == "json" or (wanted == "string" and isinstance(value, str))


def _input_problems(spec: InputSpec, given: Mapping[str, Any], at: str) -> Iterator[Problem]:
    place = at + pointer(spec.name)
    if _is_absent(spec, given):
        if spec.required:
            yield _problem("missing_input", at, f"The input {spec.name!r} is missing.", f"Give it a {spec.type} value.")
        return
    value = given[spec.name]
    bad = [_problem(p.code, place + p.pointer, p.message, p.remedy) for p in value_problems(value)]
    yield from bad
    if not bad and not has_type(value, spec.type):
        what = f"The input {spec.name!r} is {describe(value)}, not of type {spec.type}."
        yield _problem("wrong_type", place, what, f"Give it a {spec.type} value.")


def _unknown_input(name: Any, at: str, known: Iterable[str]) -> Problem:
    names = sorted(known)
    close = nearest(str(name), names)
    remedy = f"Did you mean {close!r}?" if close else f"The workflow's inputs: {', '.join(names) or 'none'}."
    return _problem("unknown_input", at + pointer(name), f"The workflow has no input {str(name)[:80]!r}.", remedy)


def _is_absent(spec: InputSpec, given: Mapping[str, Any]) -> bool:
    return spec.name not in given or (given[spec.name] is None and not spec.required)


def _value(spec: InputSpec, given: Mapping[str, Any]) -> Any:
    if _is_absent(spec, given):
        return "" if spec.default is None and spec.type == "string" else spec.default
    value = given[spec.name]
    return int(value) if spec.type == "integer" and has_type(value, "integer") else value


def _problem(code: str, at: str, message: str, remedy: str) -> Problem:
    return Problem(code=code, pointer=at, message=message, remedy=remedy)
