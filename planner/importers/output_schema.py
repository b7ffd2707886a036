"""JSON Schemas that users give for a node's output: bounded, local, and safe to validate against.

A schema is checked here once, at import. No remote `$ref`, no recursion, patterns in the linear-time subset
(patterns.py), and a size that counts every reference as written out, because a validator follows it each time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from planner.importers.patterns import UnsafePattern, check_pattern
from planner.importers.problems import Problem, pointer, pointer_parts

MAX_SCHEMA_BYTES = 65_536
MAX_SCHEMA_DEPTH = 16
MAX_EXPANDED = 2_500
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_UNSUPPORTED = ("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$vocabulary")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_ONE = (
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
_LOCAL = re.compile(r"#/(?:\$defs|definitions)/[^/]+")
_APPLIED_LATER = ("$defs", "definitions")


def schema_problems(schema: Any, at: str) -> tuple[Problem, ...]:
    """What keeps `schema` (an object, at pointer `at`) from being used; empty when it is fine."""
    if len(json.dumps(schema)) > MAX_SCHEMA_BYTES:
        return (_problem("schema_too_large", at, f"The schema exceeds {MAX_SCHEMA_BYTES:,} bytes.", "Shorten it."),)
    checker = _Checker(schema, at)
    problems = tuple(checker.problems(schema, ()))
    return problems or checker.size_problems() or _metaschema_problems(schema, at)


class _Checker:
    def __init__(self, root: Any, at: str) -> None:
        self.root, self.at = root, at

    def problems(self, schema: Any, path: tuple[str | int, ...]) -> Iterator[Problem]:
        """Problems of the keywords that the metaschema allows and dyserve does not, in every subschema."""
        if not isinstance(schema, Mapping):
            return
        if len(path) > 2 * MAX_SCHEMA_DEPTH:
            yield self._at(path, "schema_too_deep", f"It nests deeper than {MAX_SCHEMA_DEPTH} levels.", "Flatten it.")
            return
        yield from self._keywords(schema, path)
        for keyword, steps, subschema in _subschemas(schema):
            if keyword == "patternProperties":
                yield from self._pattern(str(steps[-1]), (*path, *steps))
            yield from self.problems(subschema, (*path, *steps))

    def size_problems(self) -> tuple[Problem, ...]:
        """A reference that leads back to itself, or references that multiply."""
        try:
            size = self._expanded(self.root, (), 0)
        except _Recursive as found:
            message = f"The reference {found.reference} leads back to itself; recursive schemas are not supported."
            return (self._at((), "schema_recursive", message, "Write out as many levels as you need."),)
        if size > MAX_EXPANDED:
            message = f"With its references written out it has more than {MAX_EXPANDED:,} parts."
            return (self._at((), "schema_too_large", message, "Use fewer references."),)
        return ()

    def _keywords(self, schema: Mapping[str, Any], path: tuple[str | int, ...]) -> Iterator[Problem]:
        for keyword in _UNSUPPORTED:
            if keyword in schema:
                yield self._at(
                    (*path, keyword), "schema_keyword", f"{keyword} is not supported.", "Use $defs and local $ref."
                )
        if schema.get("$schema", DIALECT) not in (DIALECT, DIALECT + "#"):
            yield self._at((*path, "$schema"), "schema_dialect", "Only draft 2020-12 is supported.", f"Use {DIALECT}.")
        if isinstance(schema.get("pattern"), str):
            yield from self._pattern(schema["pattern"], (*path, "pattern"))
        if "$ref" in schema:
            yield from self._reference(schema["$ref"], (*path, "$ref"))

    def _pattern(self, pattern: str, path: tuple[str | int, ...]) -> Iterator[Problem]:
        try:
            check_pattern(pattern)
        except UnsafePattern as unsafe:
            yield self._at(
                path,
                "unsafe_pattern",
                f"The pattern cannot be used: {unsafe}.",
                "Anchor it with ^, let each next character decide, or use enum or maxLength instead.",
            )

    def _reference(self, reference: Any, path: tuple[str | int, ...]) -> Iterator[Problem]:
        if not isinstance(reference, str) or not _LOCAL.fullmatch(reference):
            yield self._at(
                path, "remote_reference", "A $ref must name one of the schema's own $defs.", "Write #/$defs/NAME."
            )
        elif not isinstance(_resolved(self.root, reference), Mapping | bool):
            yield self._at(path, "unknown_reference", f"{reference[:80]} does not exist.", "Define it under $defs.")

    def _expanded(self, schema: Any, open_references: tuple[str, ...], total: int) -> int:
        total += 1
        if not isinstance(schema, Mapping) or total > MAX_EXPANDED:
            return total
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in open_references:
                raise _Recursive(reference)
            total = self._expanded(_resolved(self.root, reference), (*open_references, reference), total)
        for keyword, _, subschema in _subschemas(schema):
            if keyword not in _APPLIED_LATER:
                total = self._expanded(subschema, open_references, total)
        return total

    def _at(self, path: tuple[str | int, ...], code: str, message: str, remedy: str) -> Problem:
        return _problem(code, self.at + pointer(*path), message, remedy)


class _Recursive(Exception):
    def __init__(self, reference: str) -> None:
        self.reference = reference


def _subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str | int, ...], Any]]:
    """(keyword, steps, subschema) of every schema directly inside this one; values of `const` and `enum` are none."""
    for keyword in _ONE:
        if keyword in schema:
            yield keyword, (keyword,), schema[keyword]
    for keyword in _SEVERAL:
        for index, member in enumerate(schema[keyword] if isinstance(schema.get(keyword), list) else ()):
            yield keyword, (keyword, index), member
    for keyword in _BY_NAME:
        members = schema.get(keyword)
        for name, member in members.items() if isinstance(members, Mapping) else ():
            yield keyword, (keyword, name), member


def _resolved(root: Any, reference: str) -> Any:
    value = root
    for part in pointer_parts(reference[1:]):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _metaschema_problems(schema: Any, at: str) -> tuple[Problem, ...]:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        message = f"The schema is not valid: {error.message[:200]}."
        place = at + pointer(*error.absolute_path)
        return (_problem("bad_schema", place, message, "See JSON Schema, draft 2020-12."),)
    return ()


def _problem(code: str, at: str, message: str, remedy: str) -> Problem:
    return Problem(code=code, pointer=at, message=message, remedy=remedy)
