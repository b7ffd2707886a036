"""Plans, variants and bundles as values (paper 3.2, 4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

BundleKind = Literal["levels", "priced"]
"""Variants by specialization level (paper 4.4), or by the price of GPU-seconds (ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """(model, backend, policy) of one LLM node; a verifier on another model's backend belongs to it."""

    model: str
    backend: str
    policy: str
    verifier_model: str | None = None
    verifier_backend: str | None = None

    @property
    def label(self) -> str:
        """`model.policy`, with the verifier's class where it is another one."""
        return f"{self.model}.{self.policy}" + (f"@{self.verifier_model}" if self.verifier_model else "")

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Implementation:
        return cls(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One variant: an implementation for every LLM node, with the annotations the runtime selects by.

    `demand` maps model class to planned slot-seconds (work, verification included); `terms` are the objective's
    summands after weighting, signs included, so that they add up to `objective`. `estimated_quality` is the product
    surrogate of MATH.md (ours), not a measured accuracy. `gap` is the proven relative gap, 0 when optimal. `solver`
    says how the plan was found: `exact`, `highs`, `cbc`, `fallback` (no solver had one in time), `none` (no LLM node).

    `phases_s`: seconds by phase (coefficients of the problem's first solve, bound, search, mip, decode). `pruning`:
    columns of all nodes, points on their fronts, those that no bound rules out, labels that the search made, and
    relaxations that branching solved.
    """

    level: float
    assignment: Mapping[str, Implementation]
    objective: float
    terms: Mapping[str, float]
    estimated_quality: float
    makespan_s: float
    cost: float
    demand: Mapping[str, float]
    dominant_model: str | None
    solver: str
    solve_s: float
    gap: float
    versions: Mapping[str, str] = field(default_factory=dict)
    durations_s: Mapping[str, float] = field(default_factory=dict)
    digest: str = ""
    phases_s: Mapping[str, float] = field(default_factory=dict, compare=False)
    pruning: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def total_demand(self) -> float:
        return sum(self.demand.values())

    def to_json(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in self.__slots__}
        data["assignment"] = {node: impl.to_json() for node, impl in self.assignment.items()}
        for name in ("terms", "demand", "versions", "durations_s", "phases_s", "pruning"):
            data[name] = dict(data[name])
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        assignment = {node: Implementation.from_json(impl) for node, impl in data["assignment"].items()}
        return cls(**{**data, "assignment": assignment})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The variants of one request ordered by level; variant 0 is pi(0); equal assignments are kept once.

    `complete` is False while only pi(0) is known: execution may start, switching waits for the rest (paper 4.4).
    A variant's level is the price m in a `priced` bundle.
    """

    key: str
    variants: tuple[Plan, ...]
    complete: bool = True
    kind: BundleKind = "levels"

    def __post_init__(self) -> None:
        if not self.variants:
            raise ValueError("a bundle holds at least pi(0)")
        levels = [plan.level for plan in self.variants]
        if levels != sorted(levels):
            raise ValueError("variants must be ordered by level")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One limit of a set that no plan keeps, though it would keep any smaller one: what is asked, what is needed.

    `needed`: the least change of this limit alone, the others of the set kept, that makes a plan possible: a number for
    a cap, patterns to allow for a pin or a prohibition; None when the time ended before it was known. `least` False:
    enough, but perhaps more than needed. `text` says it as a sentence.
    """

    limit: str
    asked: float | str
    needed: float | str | None
    text: str
    least: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """Why there is no plan: a result, not an exception. Each reason names its node or limit and a remedy.

    `proved` False: none was found in time, though there may be one.
    """

    reasons: tuple[str, ...]
    conflicts: tuple[Conflict, ...] = ()
    proved: bool = True

    @property
    def text(self) -> str:
        return "; ".join(self.reasons)
