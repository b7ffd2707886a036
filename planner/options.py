"""What a request may choose about its plan: effort, weights, the kind of bundle and its levels, limits (MATH.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, cast, get_args

from planner.compiler.bundle import DEFAULT_LEVELS
from planner.compiler.limits import NO_LIMITS, Limits, LimitsInvalid
from planner.compiler.limits.declared import MOST
from planner.compiler.plan import BundleKind
from planner.compiler.weights import DEFAULT_EFFORT, PRESETS, Weights
from planner.errors import OptionsInvalid

MAX_WEIGHT = 1000.0
MAX_LEVELS = 8
MAX_LEVEL = 100.0
KINDS: tuple[str, ...] = get_args(BundleKind)
_WEIGHT_NAMES = tuple(field.name for field in fields(Weights))
_OF_THE_KIND: tuple[float, ...] = (math.nan,)
"""No levels that anyone could give; compared by identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """`effort` in [0, 1]; `levels` ordered, distinct, the smallest gives pi(0): prices m for a `priced` bundle.

    Levels that are left out are the kind's. Raises OptionsInvalid.
    """

    effort: float = DEFAULT_EFFORT
    weights: Weights = field(default_factory=Weights)
    bundle: BundleKind = "levels"
    levels: tuple[float, ...] = _OF_THE_KIND
    limits: Limits = NO_LIMITS

    def __post_init__(self) -> None:
        if self.levels is _OF_THE_KIND:
            object.__setattr__(self, "levels", DEFAULT_LEVELS[self.bundle])
        problems: dict[str, str] = {}
        if not 0 <= self.effort <= 1:
            problems["effort"] = f"must lie between 0 and 1, got {self.effort}"
        for name in _WEIGHT_NAMES:
            if not 0 <= getattr(self.weights, name) <= MAX_WEIGHT:
                problems[f"weights.{name}"] = f"must lie between 0 and {MAX_WEIGHT:g}"
        if not 1 <= len(self.levels) <= MAX_LEVELS:
            problems["levels"] = f"give 1 to {MAX_LEVELS} levels, got {len(self.levels)}"
        elif not all(0 <= level <= MAX_LEVEL for level in self.levels):
            problems["levels"] = f"levels must lie between 0 and {MAX_LEVEL:g}"
        elif list(self.levels) != sorted(set(self.levels)):
            problems["levels"] = "levels must be in ascending order without repeats"
        if problems:
            raise OptionsInvalid(problems)

    @classmethod
    def of(
        cls,
        *,
        effort: float | None = None,
        weights: Mapping[str, Any] | str | None = None,
        bundle: str | None = None,
        levels: Sequence[float] | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> PlanOptions:
        """Options from outside: None is the default, `weights` a preset's name or overrides of single weights."""
        return cls(
            effort=DEFAULT_EFFORT if effort is None else _number("effort", effort),
            weights=_weights(weights),
            bundle=_kind(bundle),
            levels=_OF_THE_KIND if levels is None else _levels(levels),
            limits=NO_LIMITS if limits is None else _limits(limits),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "effort": self.effort,
            "weights": asdict(self.weights),
            "bundle": self.bundle,
            "levels": list(self.levels),
            "limits": self.limits.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlanOptions:
        """What `to_json` gave, in this version or in one that knew neither kinds nor limits."""
        return cls.of(
            effort=data["effort"],
            weights=data["weights"],
            bundle=data.get("bundle"),
            levels=data["levels"],
            limits=data.get("limits"),
        )


def _kind(given: str | None) -> BundleKind:
    if given is None:
        return "levels"
    if given not in KINDS:
        raise OptionsInvalid({"bundle": f"must be one of {', '.join(KINDS)}, got {given!r:.40}"})
    return cast("BundleKind", given)


def _levels(given: Sequence[float]) -> tuple[float, ...]:
    return tuple(sorted({_number("levels", level) for level in given}))


def _limits(given: Mapping[str, Any]) -> Limits:
    try:
        return Limits.from_json(given)
    except LimitsInvalid as error:
        raise OptionsInvalid({f"limits.{name}": text for name, text in error.problems.items()}) from error


def _weights(given: Mapping[str, Any] | str | None) -> Weights:
    if given is None:
        return Weights()
    if isinstance(given, str):
        if given not in PRESETS:
            raise OptionsInvalid({"weights": f"unknown preset {given!r}; presets: {', '.join(PRESETS)}"})
        return PRESETS[given]
    unknown = [name for name in given if name not in _WEIGHT_NAMES]
    if unknown:
        raise OptionsInvalid(
            {f"weights.{name}": f"is unknown; weights: {', '.join(_WEIGHT_NAMES)}" for name in unknown}
        )
    numbers = {name: _number(f"weights.{name}", value) for name, value in given.items()}
    negative = {f"weights.{name}": "must not be negative" for name, value in numbers.items() if value < 0}
    if negative:
        raise OptionsInvalid(negative)
    return Weights(**numbers)


def _number(option: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OptionsInvalid({option: f"must be a number, got {value!r:.40}"})
    if not abs(value) <= MOST:
        raise OptionsInvalid({option: f"must be a finite number, at most {MOST:.2g}"})
    return float(value)
