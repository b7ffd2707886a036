"""What is wrong with a document: every problem at once, each with its place and its remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MAX_PROBLEMS = 100  # listed in one answer
MAX_COLLECTED = 300  # looked for at all: a hostile document must not make work


def pointer(*parts: str | int) -> str:
    """The JSON pointer (RFC 6901) of a path: `pointer("nodes", 3, "a/b")` is `/nodes/3/a~1b`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def pointer_parts(text: str) -> tuple[str, ...]:
    """The inverse of `pointer`; array positions come back as text."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One error of a document. `code` is stable, `line` and `column` count from 1 and are None without a text.

    `pointer` is the JSON pointer of the offending value, of the offending key where the key is wrong, and of the
    enclosing object where something is missing.
    """

    code: str
    message: str
    remedy: str
    pointer: str = ""
    line: int | None = None
    column: int | None = None

    @property
    def place(self) -> str:
        """`line 12, /nodes/3/prompt`, as far as it is known."""
        parts = [f"line {self.line}"] if self.line is not None else []
        if self.pointer:
            parts.append(self.pointer)
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, f"{self.message} {self.remedy}".strip()) if part)


class WorkflowRejected(Exception):
    """A document that is no valid workflow. Nothing of it is kept; `problems` is never empty."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = capped(tuple(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def capped(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """At most MAX_PROBLEMS problems; the last one says how many more there were."""
    if len(problems) <= MAX_PROBLEMS:
        return problems
    rest = len(problems) - MAX_PROBLEMS + 1
    more = Problem(
        code="more_problems",
        message=f"At least {rest} more problems are not listed.",
        remedy="Correct those above first.",
    )
    return (*problems[: MAX_PROBLEMS - 1], more)
