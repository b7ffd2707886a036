"""What a request may choose about its plan: effort, weights, levels (MATH.md, Weights per node and The ILP)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from planner.compiler.bundle import LEVELS
from planner.compiler.weights import DEFAULT_EFFORT, PRESETS, Weights
from planner.errors import OptionsInvalid

MAX_WEIGHT = 1000.0
MAX_LEVELS = 8
MAX_LEVEL = 100.0
_WEIGHT_NAMES = tuple(field.name for field in fields(Weights))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """`effort` in [0, 1]; `levels` ordered, distinct, the smallest gives pi(0). Raises OptionsInvalid."""

    effort: float = DEFAULT_EFFORT
    weights: Weights = field(default_factory=Weights)
    levels: tuple[float, ...] = LEVELS

    def __post_init__(self) -> None:
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
        levels: Sequence[float] | None = None,
    ) -> PlanOptions:
        """Options from outside: None is the default, `weights` a preset's name or overrides of single weights."""
        return cls(
            effort=DEFAULT_EFFORT if effort is None else _number("effort", effort),
            weights=_weights(weights),
            levels=LEVELS if levels is None else tuple(sorted({_number("levels", level) for level in levels})),
        )

    def to_json(self) -> dict[str, Any]:
        return {"effort": self.effort, "weights": asdict(self.weights), "levels": list(self.levels)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlanOptions:
        return cls.of(effort=data["effort"], weights=data["weights"], levels=data["levels"])


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
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise OptionsInvalid({option: f"must be a number, got {value!r:.40}"})
    return float(value)
