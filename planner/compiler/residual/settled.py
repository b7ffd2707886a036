"""What a run has dispatched so far, as a value (paper 5.2: completed and in-flight assignments stay; form ours)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from types import MappingProxyType

from planner.compiler.menu import Column
from planner.compiler.plan import Implementation


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A dispatched node: nominal seconds that are left (below 0 counts as 0), and an LLM node's binding.

    Raises ValueError when `remaining_s` is not finite.
    """

    remaining_s: float
    implementation: Implementation | None = None

    def __post_init__(self) -> None:
        if not isfinite(self.remaining_s):
            raise ValueError(f"remaining_s must be finite, got {self.remaining_s}")

    @property
    def planned_s(self) -> float:
        """Rounded to two significant digits like a tool's `expected_s`: the grain of the bundle cache."""
        return float(f"{max(0.0, self.remaining_s):.2g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run took of its caps so far: every finished invocation, with attempts whose output was discarded.

    Units as in `Column` and `Limits`; `work_s` and `calls` by model class. Invocations in flight do not belong here:
    they count whole, at their planned values. Raises ValueError on a number that is negative or not finite.
    """

    cost: float = 0.0
    tokens: float = 0.0
    elapsed_s: float = 0.0
    work_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    calls: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        numbers = {"cost": self.cost, "tokens": self.tokens, "elapsed_s": self.elapsed_s}
        numbers |= {f"work_s of {model}": seconds for model, seconds in self.work_s.items()}
        numbers |= {f"calls of {model}": count for model, count in self.calls.items()}
        for name, value in numbers.items():
            if not (isfinite(value) and value >= 0):
                raise ValueError(f"spent {name} must be a number that is not negative, got {value}")

    def plus(self, column: Column) -> Spent:
        return Spent(
            cost=self.cost + column.cost,
            tokens=self.tokens + column.tokens,
            elapsed_s=self.elapsed_s,
            work_s=_summed(self.work_s, column.work),
            calls={model: int(count) for model, count in _summed(self.calls, column.calls).items()},
        )


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What a run has dispatched, by node id; every other node is still to come.

    `completed` gives an LLM node the implementation that produced its output, and a tool node None. An LLM node that
    recovery executes once more is in neither mapping. Raises ValueError when a node is in both.
    """

    completed: Mapping[str, Implementation | None] = field(default_factory=lambda: MappingProxyType({}))
    in_flight: Mapping[str, InFlight] = field(default_factory=lambda: MappingProxyType({}))
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        both = sorted(set(self.completed) & set(self.in_flight))
        if both:
            raise ValueError(f"node {both[0]} is completed and in flight; a node is in one of the two")

    @cached_property
    def remaining_s(self) -> Mapping[str, float]:
        """Seconds until each settled node's output is there."""
        done = dict.fromkeys(self.completed, 0.0)
        return MappingProxyType(done | {node: flight.planned_s for node, flight in self.in_flight.items()})

    @cached_property
    def implementations(self) -> Mapping[str, Implementation | None]:
        return MappingProxyType(
            {**self.completed, **{node: flight.implementation for node, flight in self.in_flight.items()}}
        )


def _summed(left: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}
