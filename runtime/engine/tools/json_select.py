"""`json_select`: one part of a JSON value, also of JSON that a model wrote into a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.engine.outputs import parse_json
from runtime.engine.tools.arguments import check_names, malformed

_MISSING = object()


class JsonSelectTool:
    """Arguments: `value`, `path`, optionally `default`. Returns the part at `path`, or `default` where there is none.

    `value` is JSON, or a text that holds it (also inside one fenced block). `path` is dotted, `steps.0.title`;
    numbers are positions from 0, negative ones count from the end; an empty path is the whole value.
    """

    name = "json_select"

    async def invoke(self, arguments: Mapping[str, Any]) -> Any:
        check_names(arguments, required=frozenset({"value", "path"}), optional=frozenset({"default"}))
        value, path = arguments["value"], arguments["path"]
        if not isinstance(path, str):
            raise malformed("the path must be a text such as steps.0.title", "/path")
        if isinstance(value, str):
            value = _parsed(value)
        found, problem = select(value, path)
        if problem is None:
            return found
        if "default" in arguments:
            return arguments["default"]
        raise malformed(f"{problem}; give a default if the part may be missing", "/path")


def select(value: Any, path: str) -> tuple[Any, str | None]:
    """The part of a JSON value at a dotted path, and None; or None and what stands in the way."""
    at = "the value"
    for step in path.split(".") if path else ():
        found = _step(value, step)
        if found is _MISSING:
            return None, f"{at} {_describe(value)} and has no {step!r}"
        value, at = found, f"{step!r}"
    return value, None


def _parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise malformed(f"the value is a text without JSON: {error}", "/value") from None


def _step(value: Any, step: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(step, _MISSING)
    if isinstance(value, list) and step.removeprefix("-").isdecimal() and step.isascii() and len(step) < 10:
        position = int(step)
        return value[position] if -len(value) <= position < len(value) else _MISSING
    return _MISSING


def _describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"has the fields {', '.join(sorted(map(str, value))[:10]) or 'none'}"
    if isinstance(value, list):
        return f"is a list of {len(value)}"
    return f"is {'null' if value is None else type(value).__name__}"
