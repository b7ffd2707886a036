"""Profiles of model-policy pairs by skill (paper 4.1): quality, error and token demand of the complete pair."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING

from fleet.serving.catalog import Catalog
from planner.compiler.digest import content_digest
from planner.compiler.policies import POLICIES, Policy
from planner.compiler.vulnerability import VulnerabilityCell, VulnerabilityTable

if TYPE_CHECKING:
    from planner.compiler.menu import Menus

__all__ = [
    "CallDemand",
    "PairKey",
    "PairProfile",
    "ProfileSet",
    "VulnerabilityCell",
    "VulnerabilityTable",
    "rejection_probabilities",
]

PairKey = tuple[str, str, str, str | None, bool]
"""(skill, model, policy, verifier model, thinking)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDemand:
    """Mean demand of each call in one policy role (paper; the probability is ours).

    `prompt_tokens` come on top of the node's own prompt; `output_tokens` include reasoning tokens;
    `probability` is that of the call happening at all (1 for unconditional stages).
    """

    role: str
    prompt_tokens: float
    output_tokens: float
    probability: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.prompt_tokens < inf and 0 <= self.output_tokens < inf):
            raise ValueError(f"token counts of role {self.role} must be finite and not negative")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability of role {self.role} must lie in [0, 1], got {self.probability}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairProfile:
    """What was measured of one complete pair; `quality` is the correctness rate of the output it returns.

    `interval` is the 95% interval of `quality` over `samples`; `prompt_tokens` the mean length of the node's own
    prompt, used while the real length is unknown. `verifier_model` is set where another class gives the verdict.
    """

    skill: str
    model: str
    policy: str
    quality: float
    samples: int
    interval: tuple[float, float]
    prompt_tokens: float
    calls: tuple[CallDemand, ...]
    verifier_model: str | None = None
    thinking: bool = False
    _by_role: dict[str, CallDemand] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        low, high = self.interval
        if not 0 <= low <= self.quality <= high <= 1:
            raise ValueError(f"need 0 <= low <= quality <= high <= 1, got {low}, {self.quality}, {high}")
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}")
        if not 0 <= self.prompt_tokens < inf:
            raise ValueError(f"prompt_tokens must be finite and not negative, got {self.prompt_tokens}")
        by_role = {call.role: call for call in self.calls}
        if len(by_role) != len(self.calls):
            raise ValueError("each role may be listed once only")
        object.__setattr__(self, "_by_role", by_role)

    @property
    def key(self) -> PairKey:
        return (self.skill, self.model, self.policy, self.verifier_model, self.thinking)

    @property
    def error_rate(self) -> float:
        """r = 1 - Q: the error left after the policy, same samples, same criterion (paper 4.1)."""
        return 1.0 - self.quality

    def call(self, role: str) -> CallDemand:
        return self._by_role[role]


@dataclass(frozen=True, kw_only=True)
class ProfileSet:
    """All profiles that planning reads. `illustrative`: invented, not measured; say so wherever they are shown.

    Raises ValueError when a pair repeats. JSON: `planner.compiler.profile_json`.
    """

    version: str
    pairs: tuple[PairProfile, ...]
    vulnerability: VulnerabilityTable
    illustrative: bool = False
    description: str = ""

    def __post_init__(self) -> None:
        if len(self.by_key) != len(self.pairs):
            raise ValueError("each (skill, model, policy, verifier model, thinking) may have one profile only")

    @cached_property
    def by_key(self) -> Mapping[PairKey, PairProfile]:
        return {pair.key: pair for pair in self.pairs}

    @cached_property
    def menus(self) -> dict[Hashable, Menus]:
        """Menus already made from these profiles, by fleet and policies (planner.compiler.menu); they go with them."""
        return {}

    @cached_property
    def skills(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(pair.skill for pair in self.pairs))

    @cached_property
    def digest(self) -> str:
        """Digest of everything that planning reads (not of version, mark and description)."""
        return content_digest((self.pairs, self.vulnerability))

    def pair(
        self, skill: str, model: str, policy: str, *, verifier_model: str | None = None, thinking: bool = False
    ) -> PairProfile | None:
        """The profile of one pair, or None when it was never measured."""
        return self.by_key.get((skill, model, policy, verifier_model, thinking))


def rejection_probabilities(
    profiles: ProfileSet, catalog: Catalog, policies: Mapping[str, Policy] = POLICIES
) -> dict[str, float]:
    """Per served model: the mean probability that a verdict call served by it rejects (for the emulator).

    A policy with a stage that runs on rejection tells: the probability of that stage's calls is the verdict's
    rejection rate. Models that give no profiled verdict are left out.
    """
    served = {model.name for model in catalog.served_models()}
    found: dict[str, list[float]] = {}
    for pair in profiles.pairs:
        policy = policies.get(pair.policy)
        judge = pair.verifier_model or pair.model
        if policy is not None and judge in served and pair.model in served:
            found.setdefault(judge, []).extend(_rejections(policy, pair))
    return {model: fmean(rates) for model, rates in found.items() if rates}


def mean_answer_tokens(profiles: ProfileSet, catalog: Catalog) -> float | None:
    """Mean output tokens of one unverified answer without thinking, over skills and served models (for the emulator).

    None when no such pair is profiled. A server sees no skill, so an emulated one answers every skill at this length.
    """
    served = {model.name for model in catalog.served_models()}
    lengths = [
        call.output_tokens
        for pair in profiles.pairs
        if pair.policy == "none" and not pair.thinking and pair.model in served
        for call in pair.calls
    ]
    return fmean(lengths) if lengths else None


def _rejections(policy: Policy, pair: PairProfile) -> Iterable[float]:
    for stage in policy.stages:
        if stage.when == "rejected":
            yield pair.call(stage.calls[0].role).probability
