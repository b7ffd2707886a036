"""Checks on a tool's arguments; every failure is `malformed_arguments` with a JSON pointer (paper 5.2's trigger)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.engine.ports import ToolFailed


def check_names(arguments: Mapping[str, Any], *, required: frozenset[str], optional: frozenset[str]) -> None:
    """Raises ToolFailed when an argument is missing or unknown."""
    known = ", ".join(sorted(required | optional))
    for name in sorted(required - arguments.keys()):
        raise malformed(f"argument {name!r} is missing; the arguments are: {known}", f"/{name}")
    for name in sorted(arguments.keys() - required - optional):
        raise malformed(f"there is no argument {name!r}; the arguments are: {known}", f"/{escaped(name)}")


def malformed(message: str, pointer: str = "") -> ToolFailed:
    return ToolFailed("malformed_arguments", message, pointer)


def escaped(name: str) -> str:
    """A name as a step of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
