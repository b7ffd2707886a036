"""Limits as a form: five fields and a text of further ones, what is wrong with each, what would be enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.compiler.limits import Limits, LimitsInvalid, parse_limits
from planner.compiler.limits.declared import parts
from planner.compiler.plan import Conflict
from planner.errors import OptionsInvalid

TEXT = "limits"
"""The name of the text of further limits; the fields are named as the limits are."""
MOST_CHARACTERS = 4000
_DIGITS = 4
_FIELDS = (
    ("max_cost", "Cost ≤", "Expected cost of the whole plan, relative", "any"),
    ("max_makespan_s", "Seconds ≤", "Predicted makespan in seconds, without queueing", "any"),
    ("max_calls", "Calls ≤", "Calls when every conditional stage runs", "1"),
    ("max_tokens", "Tokens ≤", "Expected tokens of the whole plan", "any"),
    ("min_quality", "Est. quality ≥", "Estimated quality of the plan, a surrogate between 0 and 1", "any"),
)
FIELD_NAMES = tuple(name for name, *_ in _FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitField:
    """`value` as it was typed: what is wrong is shown, never dropped."""

    name: str
    words: str
    meaning: str
    step: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitForm:
    fields: tuple[LimitField, ...]
    text: str
    most_characters: int = MOST_CHARACTERS

    @property
    def used(self) -> bool:
        return bool(self.text.strip()) or any(field.value for field in self.fields)


def limit_form(query: Mapping[str, str]) -> LimitForm:
    return LimitForm(
        fields=tuple(
            LimitField(name=name, words=words, meaning=meaning, step=step, value=query.get(name, "").strip()[:40])
            for name, words, meaning, step in _FIELDS
        ),
        text=query.get(TEXT, "")[:MOST_CHARACTERS],
    )


def limits_of(query: Mapping[str, str]) -> Limits:
    """The limits of an address. Raises OptionsInvalid with every problem, as `limits.NAME`."""
    given = query.get(TEXT, "")
    if len(given) > MOST_CHARACTERS:
        raise OptionsInvalid({f"limits.{TEXT}": f"at most {MOST_CHARACTERS} characters, got {len(given)}"})
    texts = [f"{name}={value}" for name in FIELD_NAMES if (value := query.get(name, "").strip())]
    texts += [line.strip() for line in given.splitlines() if line.strip()]
    problems: dict[str, str] = {}
    while True:
        try:
            found = parse_limits(texts)
            break
        except LimitsInvalid as error:
            # What cannot be read hides what is wrong with the others: they are looked at without it.
            problems |= error.problems
            texts, before = [text for text in texts if not _is_named(text, error.problems)], texts
            if len(texts) == len(before):
                break
    if problems:
        raise OptionsInvalid({f"limits.{name}": text for name, text in problems.items()})
    return found


def _is_named(text: str, problems: Mapping[str, str]) -> bool:
    name = text.rpartition("=")[0]
    return any(found in problems for found in (text[:60], name, name[:60], name.partition(".")[0][:60]))


def limits_query(limits: Limits) -> dict[str, str]:
    """What an address says of limits: only what is set."""
    values = limits.values()
    query = {name: _written(values[name]) for name in FIELD_NAMES if name in values}
    lines = [f"{name}={_written(value)}" for name, value in values.items() if name not in FIELD_NAMES]
    return query | ({TEXT: "\n".join(lines)} if lines else {})


def errors_by_field(problems: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """(field, what is wrong there) for every field of the form, empty where nothing is.

    Limits of the text say their names; what is no limit belongs to no field.
    """
    limits = {name.removeprefix("limits."): text for name, text in problems.items() if name.startswith("limits.")}
    further = [text if name == TEXT else f"{name}: {text}" for name, text in limits.items() if name not in FIELD_NAMES]
    return (*((name, limits.get(name, "")) for name in FIELD_NAMES), (TEXT, "; ".join(further)))


def sentences(problems: Mapping[str, str]) -> tuple[str, ...]:
    """Every problem with the name of its option."""
    return tuple(f"{name.removeprefix('limits.')}: {text}" for name, text in problems.items())


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value) if isinstance(value, int) else f"{value:.12g}"


# --- Limits that no plan keeps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictRow:
    """`value` is what the form's button puts in: None where nothing is known, empty where the limit has to go."""

    limit: str
    asked: str
    needed: str
    text: str
    value: str | None


def conflict_rows(conflicts: Iterable[Conflict]) -> tuple[ConflictRow, ...]:
    return tuple(_conflict_row(conflict) for conflict in conflicts)


def _conflict_row(conflict: Conflict) -> ConflictRow:
    asked = conflict.asked if isinstance(conflict.asked, str) else _written(conflict.asked)
    value = _enough(conflict)
    bound = "at most" if conflict.limit == "min_quality" else "at least"
    if conflict.needed is None:
        needed = "not known in time"
    elif isinstance(conflict.needed, str):
        needed = f"also {conflict.needed}"
    else:
        needed = f"{bound if conflict.least else 'for example'} {value}"
    return ConflictRow(limit=conflict.limit, asked=asked, needed=needed, text=conflict.text, value=value)


def _enough(conflict: Conflict) -> str | None:
    """A value of the limit under which a plan is possible, the other limits kept."""
    if conflict.needed is None:
        return None
    if not isinstance(conflict.needed, str):
        return _written(_rounded(conflict.needed, down=conflict.limit == "min_quality"))
    asked, needed = str(conflict.asked).split(","), conflict.needed.split(",")
    if conflict.limit.startswith("pin."):
        return ",".join(dict.fromkeys((*asked, *needed)))
    return ",".join(pattern for pattern in asked if not any(_covers(pattern, other) for other in needed))


def _covers(pattern: str, other: str) -> bool:
    return all(part in ("*", given) for part, given in zip(parts(pattern), parts(other), strict=True))


def _rounded(value: float, *, down: bool) -> float:
    """To a few digits, towards the side on which it is still enough."""
    if value == 0 or not math.isfinite(value) or value == int(value):
        return value
    step = 10.0 ** (math.floor(math.log10(abs(value))) - _DIGITS + 1)
    return float(f"{(math.floor if down else math.ceil)(value / step) * step:.12g}")
