"""What both Flow schemas say, in one form, and the helpers their readers share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.compiler.references import NAME_PATTERN
from planner.importers.graph import Edge
from planner.importers.notes import Note
from planner.importers.problems import MAX_COLLECTED, Problem, pointer
from planner.importers.values import describe

Path = tuple[str | int, ...]
_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTask:
    """One task: `key` as the file names it, `id` as the node will be named, `path` to its place in the file."""

    key: str
    id: str
    path: Path
    objective: str
    role: str = ""
    output_format: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPlan:
    """A Flow file. `edges` maps (task id, task id) to the pointer that states it."""

    task: str
    tasks: tuple[FlowTask, ...]
    edges: Mapping[Edge, str]
    notes: tuple[Note, ...] = ()


@dataclass(slots=True)
class Reader:
    """Collects the problems and notes of one file while it is read."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def report(self, code: str, path: Path, message: str, remedy: str) -> None:
        if len(self.problems) < MAX_COLLECTED:
            self.problems.append(Problem(code=code, pointer=pointer(*path), message=message, remedy=remedy))

    def note(self, code: str, message: str, node: str = "") -> None:
        self.notes.append(Note(code=code, message=message, node=node))

    def members(self, parent: Mapping[str, Any], key: str, path: Path, *, optional: bool = False) -> list[Any]:
        """The list at `key`; an empty one after a problem, or when it is optional and missing."""
        if optional and parent.get(key) is None:
            return []
        value = parent.get(key)
        if isinstance(value, list):
            return value
        self._wrong(value, key in parent, (*path, key), path, key, "a list")
        return []

    def text(self, parent: Mapping[str, Any], key: str, path: Path, *, optional: bool = False) -> str:
        """The text at `key`, stripped; empty after a problem, or when it is optional and missing."""
        value = parent.get(key)
        if optional and value is None:
            return ""
        if isinstance(value, str) and (optional or value.strip()):
            return value.strip()
        self._wrong(value, key in parent, (*path, key), path, key, "a text that is not empty")
        return ""

    def object(self, value: Any, path: Path) -> Mapping[str, Any] | None:
        if isinstance(value, Mapping):
            return value
        self.report("wrong_type", path, f"An object is needed here, not {describe(value)}.", "Write an object.")
        return None

    def key(self, value: Any, path: Path, what: str) -> str | None:
        """An id as the file writes it, a number or a text, as text."""
        if isinstance(value, int | str) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
        self.report("wrong_type", path, f"{what} must be a number or a text.", f"Write the {what.lower()}'s id.")
        return None

    def drop(self, parent: Mapping[str, Any], used: Iterable[str], where: str) -> None:
        """Note the keys of the file that mean nothing here."""
        unused = sorted(set(parent) - set(used))
        if unused:
            shown = ", ".join(repr(key[:40]) for key in unused[:10])
            self.note("dropped", f"{where}: {shown} {'is' if len(unused) == 1 else 'are'} not used")

    def _wrong(self, value: Any, present: bool, at: Path, parent: Path, key: str, wanted: str) -> None:
        if present:
            got = "an empty one" if isinstance(value, str) else describe(value)
            self.report("wrong_type", at, f"{key!r} must be {wanted}, not {got}.", f"Write {wanted}.")
        else:
            self.report("missing_key", parent, f"The key {key!r} is missing.", f"Add {key!r}.")


def node_ids(keys: Iterable[str]) -> dict[str, str]:
    """Node ids for the file's keys: as they are where that is a legal id, `task3` for 3, else made legal and unique."""
    ids: dict[str, str] = {}
    for key in keys:
        wanted = f"task{key}" if key.isascii() and key.isdigit() else key
        if not _NAME.fullmatch(wanted):
            wanted = "task_" + re.sub(r"[^A-Za-z0-9]+", "_", key)[:40].strip("_")
        unique, count = wanted, 1
        while unique in ids.values():
            count += 1
            unique = f"{wanted[:58]}_{count}"
        ids[key] = unique
    return ids
