"""What the API says about one plan of a bundle (planner/insights.py has the answers)."""

from __future__ import annotations

from typing import Any, Literal, Self

from ninja import Schema
from pydantic import Field

from planner.api_schemas import ImplementationOut
from planner.compiler.explain import Explanation
from planner.compiler.pareto import Axis, Front
from planner.compiler.plan import Plan
from planner.compiler.sensitivity import Range
from planner.compiler.stability import DEFAULT_DRAWS, Stability
from planner.marks import Marks, ProfileMark
from planner.models import PlanBundle, WorkflowVersion
from planner.requests import plan_id
from planner.selectors import options_of_bundle, workflow_value

MAX_INDEX = 2**31 - 1
MAX_ALTERNATIVES = 1000
MAX_POINTS = 200
"""Each names an implementation per node: megabytes for hundreds of nodes."""
MAX_DRAWS = 1000

Changes = dict[str, ImplementationOut]


class VariantQuery(Schema):
    variant: int = Field(0, ge=0, le=MAX_INDEX, description="Index of the variant in the bundle.")


class ExplainQuery(VariantQuery):
    most: int = Field(5, ge=0, le=MAX_ALTERNATIVES, description="Alternatives a node; the planned one always comes.")


class FrontQuery(VariantQuery):
    axis: Axis = "makespan_s"
    most: int = Field(
        100, ge=2, le=MAX_POINTS, description="Points, spread evenly; both ends and the plan always come."
    )


class StabilityQuery(VariantQuery):
    draws: int = Field(DEFAULT_DRAWS, ge=1, le=MAX_DRAWS)


class AboutOut(Schema):
    """What an answer is about, and the marks of its figures."""

    plan: str
    variant: int
    level: float = Field(description="Specialization level, or price in a priced bundle.")
    limits_on_plan: bool = Field(description="Caps on the whole plan are set.")
    emulated: bool = Field(description="Rates are an emulator's, not a GPU's.")
    profiles: ProfileMark


def about(version: WorkflowVersion, bundle: PlanBundle, index: int, plan: Plan) -> dict[str, Any]:
    marks = Marks()
    return {
        "plan": plan_id(version, bundle),
        "variant": index,
        "level": plan.level,
        "limits_on_plan": options_of_bundle(bundle, workflow_value(version)).limits.coupled,
        "emulated": marks.emulated(bundle.fleet),
        "profiles": marks.profiles(bundle),
    }


# --- Why this plan ---------------------------------------------------------------------------------------------------


class PricedOut(Schema):
    """Every figure but `node_quality` is the whole plan's; `estimated_quality` is a surrogate, no measured accuracy."""

    node_quality: float
    estimated_quality: float
    makespan_s: float
    cost: float
    demand: float = Field(description="Slot-seconds.")
    objective: float


class PricedAlternativeOut(PricedOut):
    """Another implementation of a node: alternative minus plan."""

    implementation: ImplementationOut
    terms: dict[str, float] = Field(description="The objective's change by term.")
    chosen: bool
    breaks: list[str] = Field(description="Limits that the plan would not keep with it.")


class VerificationOut(PricedOut):
    """What a node's policy adds to its model alone: with it minus without."""

    plain: ImplementationOut
    node_s: float
    without_makespan_s: float


class NodeWhyOut(Schema):
    node: str
    chosen: ImplementationOut
    best: PricedAlternativeOut | None = Field(description="The alternative that loses least.")
    slack_s: float = Field(description="The node may take this much longer before the makespan grows.")
    critical: bool
    verification: VerificationOut | None = Field(description="null: the node runs without verification.")
    alternatives: list[PricedAlternativeOut] = Field(description="Best objective first.")


class PlanVerificationOut(Schema):
    """What all verification adds: the plan minus the same plan with every node run plain."""

    nodes: list[str]
    makespan_s: float
    without_makespan_s: float
    estimated_quality: float
    cost: float
    demand: float
    objective: float


class PlanWhyOut(AboutOut):
    objective: float
    terms: dict[str, float]
    estimated_quality: float = Field(
        description="A product surrogate of profiled error rates, not a measured accuracy."
    )
    makespan_s: float
    cost: float
    demand: dict[str, float] = Field(description="Slot-seconds per model class.")
    critical_path: list[str] = Field(description="One longest path, tools included.")
    critical: list[str] = Field(description="All nodes without slack.")
    slack_s: dict[str, float] = Field(description="Every node's, tools included.")
    verification: PlanVerificationOut
    nodes: list[NodeWhyOut]

    @classmethod
    def given(cls, found: Explanation, most: int, about: dict[str, Any]) -> Self:
        return cls(**{**found.to_json(most), **about})


# --- How far it holds ------------------------------------------------------------------------------------------------


class EndOut(Schema):
    at: float
    open: bool = Field(description="The plan is still the best at the end of the parameter's span.")
    proved: bool
    takes_over: str | None = Field(description="Digest of the plan that is better beyond.")
    changes: Changes = Field(description="What that plan does otherwise, by node.")


class RangeOut(Schema):
    parameter: Literal["lambda_l", "effort", "level"]
    value: float = Field(description="The plan's own.")
    proved: bool
    low: EndOut
    high: EndOut


class SensitivityOut(AboutOut):
    ranges: list[RangeOut]

    @classmethod
    def given(cls, found: tuple[Range, ...], about: dict[str, Any]) -> Self:
        return cls(ranges=[RangeOut(**item.to_json()) for item in found], **about)


# --- What else there is ----------------------------------------------------------------------------------------------


class PointOut(Schema):
    makespan_s: float
    cost: float
    estimated_quality: float = Field(description="A surrogate, not a measured accuracy.")
    assignment: dict[str, ImplementationOut]


class FrontOut(AboutOut):
    axis: Axis
    exact: bool = Field(description="No other plan belongs here.")
    factor: float = Field(description="Every plan has a point no worse on the axis with this share of its quality.")
    total: int = Field(description="Points of the whole front.")
    current: int | None = Field(description="Position of the plan among `points`; null: it is not on the front.")
    points: list[PointOut] = Field(
        description="Pins and forbidden implementations are kept; caps on the whole plan are not."
    )

    @classmethod
    def given(cls, found: Front, most: int, about: dict[str, Any]) -> Self:
        return cls(**found.to_json(most), **about)


# --- How far to trust it ---------------------------------------------------------------------------------------------


class ShareOut(Schema):
    value: float
    count: int
    of: int
    interval: tuple[float, float] = Field(description="95%.")


class NodeStabilityOut(Schema):
    node: str
    planned: ImplementationOut
    unchanged: ShareOut
    other: ImplementationOut | None = Field(description="What the node gets most often where it changes.")
    other_share: ShareOut


class CellOut(Schema):
    """A profile cell that is worth measuring."""

    kind: Literal["quality", "vulnerability"]
    skill: str
    model: str | None = None
    policy: str | None = None
    verifier_model: str | None = None
    thinking: bool
    role: str | None = None
    fan_in: str | None = None
    rate: float
    samples: int
    interval: tuple[float, float]
    samples_to_halve: int = Field(description="Further samples that would halve the interval.")
    value: float = Field(description="Expected regret while this cell alone is uncertain, in units of the objective.")
    flips: float = Field(description="Share of its probable rates at which another plan is better.")


class StabilityOut(AboutOut):
    seed: int
    draws: int
    draws_asked: int
    complete: bool = Field(description="The time limit cut nothing off.")
    unproved: int = Field(description="Draws whose optimum is only the best plan found.")
    unchanged: ShareOut
    nodes: list[NodeStabilityOut]
    regret: float
    relative_regret: float
    quality_p05: float = Field(description="Quantiles of the plan's estimated quality, a surrogate.")
    quality_p50: float
    quality_p95: float
    cells: list[CellOut] = Field(description="Most valuable first.")
    cells_used: int
    cells_settled: int
    advice: str

    @classmethod
    def given(cls, found: Stability, about: dict[str, Any]) -> Self:
        return cls(**{**found.to_json(), **about})
