"""A valid instance of a JSON Schema, drawn from a seed (ours): a structured answer of an emulated model.

Supports type (one or several), properties, required, enum, const, items, prefixItems, minItems, maxItems,
numeric bounds, multipleOf, minLength, maxLength, format, anyOf, oneOf, allOf and local $ref. The result is checked
against the schema; when the draw does not hold, a smallest instance is tried; when neither does, the schema is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

MAX_DEPTH = 24
MAX_PARTS = 5_000
MAX_LENGTH = 100_000
"""Values of an instance, and characters of a string: a schema that asks for more would stop every replica's answers."""
_OPTIONAL_DEPTH = 6
"""Below this depth optional parts are left out, so that recursive schemas end."""


class SchemaUnsupported(ValueError):
    """No valid instance was found; the message says what does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How an instance is drawn. `text(words)` gives filler; `minimal` leaves every optional part out."""

    random: Random
    text: Callable[[int], str]
    words: int = 4
    minimal: bool = False
    _parts: Iterator[int] = field(default_factory=lambda: iter(range(MAX_PARTS)), init=False, compare=False, repr=False)

    def count_part(self) -> None:
        """Raises SchemaUnsupported once MAX_PARTS values were drawn."""
        if next(self._parts, None) is None:
            raise SchemaUnsupported(f"an instance has more than {MAX_PARTS:,} values")


def instance(schema: Mapping[str, Any], draw: Draw) -> Any:
    """A JSON value that is valid against `schema`. Raises SchemaUnsupported."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise SchemaUnsupported(f"invalid schema: {error.message}") from error
    problem = ""
    smallest = Draw(random=draw.random, text=draw.text, words=1, minimal=True)
    for attempt in (draw, smallest):
        value = _value(schema, schema, attempt, 0)
        problem = _problem(schema, value)
        if not problem:
            return value
    raise SchemaUnsupported(f"no valid instance found: {problem}")


def string_leaves(schema: Mapping[str, Any], draw: Draw) -> int:
    """How many free strings an instance holds: a length budget is shared among them."""
    count = 0

    def counting(words: int) -> str:
        nonlocal count
        count += 1
        return draw.text(words)

    instance(schema, Draw(random=draw.random, text=counting, words=draw.words))
    return count


def _problem(schema: Mapping[str, Any], value: Any) -> str:
    """What does not hold, empty when all does. The empty registry keeps remote references from being fetched."""
    try:
        error = next(Draft202012Validator(schema, registry=Registry()).iter_errors(value), None)
    except (RecursionError, Unresolvable, re.error) as failure:
        return f"the schema cannot be checked: {type(failure).__name__}"
    return error.message if error else ""


def _value(schema: Any, root: Mapping[str, Any], draw: Draw, depth: int) -> Any:
    draw.count_part()
    if depth > MAX_DEPTH:
        raise SchemaUnsupported(f"the schema nests deeper than {MAX_DEPTH} levels or requires itself")
    if schema is True or schema == {}:
        return draw.text(draw.words)
    if not isinstance(schema, Mapping):
        raise SchemaUnsupported("the schema allows no value at all (false)")
    schema = _resolved(schema, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0] if draw.minimal else draw.random.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            branches = schema[key]
            chosen = branches[0] if draw.minimal else draw.random.choice(branches)
            rest = {name: item for name, item in schema.items() if name != key}
            return _value(_merged(rest, _resolved(chosen, root)), root, draw, depth + 1)
    return _BY_TYPE[_type(schema, draw)](schema, root, draw, depth)


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follows local references and folds allOf in. Raises SchemaUnsupported for remote or unknown references."""
    for _ in range(MAX_DEPTH):
        if "$ref" in schema:
            rest = {name: item for name, item in schema.items() if name != "$ref"}
            schema = _merged(rest, _lookup(str(schema["$ref"]), root))
        elif "allOf" in schema:
            rest = {name: item for name, item in schema.items() if name != "allOf"}
            for part in schema["allOf"]:
                rest = _merged(rest, part)
            schema = rest
        else:
            return schema
    raise SchemaUnsupported("a reference in the schema leads back to itself")


def _lookup(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    node: Any = root
    if not reference.startswith("#"):
        raise SchemaUnsupported(f"only local references are followed, not {reference!r}")
    for part in reference[1:].strip("/").split("/") if reference not in ("#", "#/") else ():
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or key not in node:
            raise SchemaUnsupported(f"the reference {reference!r} leads nowhere")
        node = node[key]
    if not isinstance(node, Mapping):
        raise SchemaUnsupported(f"the reference {reference!r} leads to no schema")
    return node


def _merged(left: Mapping[str, Any], right: Any) -> dict[str, Any]:
    """Both together; properties and required are united, otherwise the right one wins."""
    if not isinstance(right, Mapping):
        return dict(left)
    merged = {**left, **right}
    if "properties" in left and "properties" in right:
        merged["properties"] = {**left["properties"], **right["properties"]}
    if "required" in left and "required" in right:
        merged["required"] = [*left["required"], *right["required"]]
    return merged


def _type(schema: Mapping[str, Any], draw: Draw) -> str:
    declared = schema.get("type")
    if isinstance(declared, list):
        real = [item for item in declared if item != "null"] or declared
        return str(real[0] if draw.minimal else draw.random.choice(real))
    if isinstance(declared, str):
        return declared
    if "properties" in schema or "required" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    if "minimum" in schema or "maximum" in schema:
        return "number"
    return "string"


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], draw: Draw, depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    required = list(dict.fromkeys(schema.get("required", ())))
    optional = [] if draw.minimal or depth > _OPTIONAL_DEPTH else [key for key in properties if key not in required]
    extra = schema.get("additionalProperties", True)
    wanted = [*(key for key in properties if key in required or key in optional)]
    wanted += [key for key in required if key not in properties]
    return {key: _value(properties.get(key, extra), root, draw, depth + 1) for key in wanted}


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], draw: Draw, depth: int) -> list[Any]:
    fixed = list(schema.get("prefixItems", ()))
    least = max(int(schema.get("minItems", 0)), 0)
    most = int(schema.get("maxItems", max(least, 3)))
    deep = draw.minimal or depth > _OPTIONAL_DEPTH
    length = least if deep else draw.random.randint(max(least, min(1, most)), max(least, min(most, least + 2)))
    if fixed and not deep:
        length = max(length, min(len(fixed), most))
    item = schema.get("items", True)
    if item is False:
        length = min(length, len(fixed))
    return [_value(fixed[i] if i < len(fixed) else item, root, draw, depth + 1) for i in range(length)]


def _bounds(schema: Mapping[str, Any], step: float) -> tuple[float, float]:
    """A closed interval inside the schema's bounds; exclusive ones are moved inwards by `step`."""
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf) + step)
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf) - step)
    if low == -math.inf:
        low = min(0.0, high) if high != math.inf else 0.0
    return low, high if high != math.inf else low + 10


def _integer(schema: Mapping[str, Any], _root: Mapping[str, Any], draw: Draw, _depth: int) -> int:
    step = max(1, int(schema.get("multipleOf", 1)))
    low, high = _bounds(schema, 1)
    first, last = math.ceil(low / step), math.floor(high / step)
    return step * (first if draw.minimal or last <= first else draw.random.randint(first, last))


def _number(schema: Mapping[str, Any], root: Mapping[str, Any], draw: Draw, depth: int) -> float:
    if "multipleOf" in schema:
        step = schema["multipleOf"]
        low, high = _bounds(schema, step)
        first, last = math.ceil(low / step), math.floor(high / step)
        return float(step * (first if draw.minimal or last <= first else draw.random.randint(first, last)))
    low, high = _bounds(schema, 1e-3)
    drawn = low if draw.minimal else draw.random.uniform(low, high)
    return min(high, max(low, round(drawn, 2)))


def _string(schema: Mapping[str, Any], _root: Mapping[str, Any], draw: Draw, _depth: int) -> str:
    text = _FORMATS.get(schema.get("format", "")) or draw.text(draw.words)
    least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", MAX_LENGTH))
    if least > MAX_LENGTH:
        raise SchemaUnsupported(f"a string has more than {MAX_LENGTH:,} characters")
    while len(text) < least:
        text += " " + draw.text(draw.words)
    return text[:most].strip().ljust(least, ".") if most < len(text) else text


_FORMATS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "emulated@example.org",
    "uri": "https://example.org/emulated",
    "uuid": "00000000-0000-4000-8000-000000000000",
}

_BY_TYPE: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any], Draw, int], Any]] = {
    "object": _object,
    "array": _array,
    "integer": _integer,
    "number": _number,
    "string": _string,
    "boolean": lambda _schema, _root, draw, _depth: True if draw.minimal else draw.random.random() < 0.5,
    "null": lambda _schema, _root, _draw, _depth: None,
}
