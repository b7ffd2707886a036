"""One planning problem as a value: everything that the compiler reads, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Literal

from fleet.serving.catalog import Catalog
from planner.compiler.coefficients import Coefficients, build_coefficients
from planner.compiler.digest import content_digest
from planner.compiler.exact.order import Orders
from planner.compiler.limits import NO_LIMITS, Limits
from planner.compiler.menu import MAX_FLEETS, Menus, kept
from planner.compiler.plan import Infeasible
from planner.compiler.policies import POLICIES, Policy
from planner.compiler.pricing import Pricing
from planner.compiler.profile import ProfileSet
from planner.compiler.weights import DEFAULT_EFFORT, Weights
from planner.compiler.workflow import LlmNode, Workflow

DemandMeasure = Literal["work", "tau"]


@dataclass(frozen=True, kw_only=True)
class PlanningProblem:
    """`known_prompt_tokens`: lengths of prompts that are known already, by node id; the others use the profile's mean.

    `demand` chooses D: `work` in slot-seconds (MATH.md), or the paper's sum of tau for comparison. `pricing` replaces
    the paper's objective by the priced one, whose level is the price. Coefficients are built once, for every level.
    Raises ValueError on an effort outside [0, 1], on a prompt length that is negative or does not belong to an LLM
    node, and on pricing that leaves out a served class.
    """

    workflow: Workflow
    catalog: Catalog
    profiles: ProfileSet
    policies: Mapping[str, Policy] = field(default_factory=lambda: POLICIES)
    weights: Weights = field(default_factory=Weights)
    effort: float = DEFAULT_EFFORT
    known_prompt_tokens: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    demand: DemandMeasure = "work"
    limits: Limits = NO_LIMITS
    pricing: Pricing | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.effort <= 1:
            raise ValueError(f"effort must lie in [0, 1], got {self.effort}")
        for node_id, tokens in self.known_prompt_tokens.items():
            if not isinstance(self.workflow.by_id.get(node_id), LlmNode):
                raise ValueError(f"known_prompt_tokens names {node_id}, which is no LLM node of the workflow")
            if tokens < 0:
                raise ValueError(f"known_prompt_tokens of {node_id} must not be negative, got {tokens}")
        if self.pricing is not None and self.pricing.unpriced(self.catalog):
            missing = ", ".join(self.pricing.unpriced(self.catalog))
            raise ValueError(f"pricing has no price for {missing}: price every class that the fleet serves")

    @cached_property
    def coefficients(self) -> Coefficients | Infeasible:
        return build_coefficients(self)

    @cached_property
    def memo(self) -> dict[type, Any]:
        """What others derive from this problem and keep with it, by their class."""
        return {}

    @cached_property
    def orders(self) -> Orders:
        return Orders(self.workflow)

    @cached_property
    def menus(self) -> Menus:
        """The menus of these profiles for this fleet and these policies, shared by all problems of the process."""
        scope = (self.catalog.models, self.catalog.backends, self.versions["policies"])
        found = self.profiles.menus.get(scope)
        return kept(self.profiles.menus, scope, Menus(), MAX_FLEETS) if found is None else found

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """What a plan of this problem was compiled from; `pricing` for a priced one only."""
        priced = {} if self.pricing is None else {"pricing": content_digest(self.pricing)}
        return MappingProxyType(
            {
                "profiles": self.profiles.version,
                "catalog": self.catalog.version,
                "policies": policies_digest(tuple(self.policies.values())),
                **priced,
            }
        )


@lru_cache(maxsize=32)
def policies_digest(policies: tuple[Policy, ...]) -> str:
    return content_digest(policies)
