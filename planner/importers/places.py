"""Where the values of a document stand in its text: a tree of places beside the tree of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice

from planner.importers.problems import MAX_COLLECTED, Problem, pointer_parts


@dataclass(slots=True, kw_only=True)
class Place:
    """Line and column (from 1) of one value; a member of an object stands where its key does.

    `members` is keyed by object key or by array position as text, as JSON pointers are; None saves memory for scalars.
    """

    line: int
    column: int
    members: dict[str, Place] | None = None

    def add(self, name: str, place: Place) -> None:
        if self.members is None:
            self.members = {}
        self.members[name] = place

    def find(self, pointer: str) -> Place:
        """The place of `pointer`, or of its nearest ancestor that exists."""
        place = self
        for part in pointer_parts(pointer):
            if not place.members or part not in place.members:
                break
            place = place.members[part]
        return place


def located(problems: Iterable[Problem], places: Callable[[], Place | None]) -> tuple[Problem, ...]:
    """The problems (at most MAX_COLLECTED) with line and column, in the order of the text.

    `places` is asked only when there is a problem.
    """
    known = tuple(islice(problems, MAX_COLLECTED))
    root = places() if known else None
    if root is None:
        return known
    placed = [_placed(problem, root) for problem in known]
    return tuple(sorted(placed, key=lambda problem: (problem.line or 0, problem.column or 0)))


def _placed(problem: Problem, root: Place) -> Problem:
    if problem.line is not None:
        return problem
    place = root.find(problem.pointer)
    return replace(problem, line=place.line, column=place.column)


def duplicate_key(key: str, at: str, place: Place, first: Place) -> Problem:
    return Problem(
        code="duplicate_key",
        message=f"The key {key[:80]!r} appears twice in one object (first at line {first.line}).",
        remedy="Keep one of the two.",
        pointer=at,
        line=place.line,
        column=place.column,
    )
