"""What the API says of workflows and plans."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Self, cast

from ninja import Schema
from pydantic import Field

from fleet.common.schemas import Body, JsonObject
from planner.compiler.explain import Alternative, NodeExplanation
from planner.compiler.plan import BundleKind, Plan
from planner.compiler.workflow import LlmNode
from planner.compiler.workflow import Workflow as WorkflowValue
from planner.importers import Imported
from planner.importers.native import dump_native
from planner.marks import Marks, ProfileMark
from planner.models import PlanBundle, Workflow, WorkflowVersion
from planner.requests import DocumentIn, SourceIn, plan_id
from planner.selectors import bundle_value, options_of_bundle, workflow_value

# --- Workflows -------------------------------------------------------------------------------------------------------


class WorkflowIn(DocumentIn):
    name: str | None = Field(
        None, min_length=1, max_length=200, description="Stored under this name, not the document's."
    )


class UploadForm(Body):
    format: str = Field("", max_length=32)
    name: str = Field("", max_length=200, pattern=r"^[^\x00]*$")


class WorkflowOut(Schema):
    id: int
    slug: str
    name: str
    description: str
    archived: bool
    latest_version: int
    versions: int
    created_at: datetime

    @classmethod
    def of(cls, row: Workflow) -> Self:
        """`row` comes from `workflows_for`, which counts the versions."""
        counts = vars(row)
        return cls(
            id=row.pk,
            slug=row.slug,
            name=row.name,
            description=row.description,
            archived=row.archived,
            latest_version=counts["last_number"] or 0,
            versions=counts["version_count"],
            created_at=row.created_at,
        )


class VersionOut(Schema):
    id: int
    workflow: int | None
    number: int | None
    digest: str
    format: str
    filename: str
    nodes: int
    notes: list[Any] = Field(description="What the importer derived, and why.")
    created_at: datetime

    @classmethod
    def of(cls, row: WorkflowVersion, **more: Any) -> Self:
        return cls(
            id=row.pk,
            workflow=row.workflow_id,
            number=row.number,
            digest=row.digest,
            format=row.source_format,
            filename=row.source_name,
            nodes=row.node_count,
            notes=row.notes,
            created_at=row.created_at,
            **more,
        )


class VersionDetailOut(VersionOut):
    document: JsonObject = Field(description="The canonical native document.")


class WorkflowStoredOut(Schema):
    workflow: WorkflowOut
    version: VersionOut
    created: bool = Field(description="false: this content is known already.")


class NodeSummaryOut(Schema):
    id: str
    kind: str
    title: str
    skill: str | None
    tool: str | None
    predecessors: list[str]


class ValidationOut(Schema):
    name: str
    format: str
    nodes: list[NodeSummaryOut]
    output: str
    inputs: list[JsonObject]
    deadline_s: float | None
    notes: list[Any]
    document: JsonObject = Field(description="The canonical native document that would be stored.")


def validation_out(imported: Imported) -> ValidationOut:
    workflow = imported.workflow
    document = dump_native(workflow)
    return ValidationOut(
        name=workflow.name,
        format=imported.format,
        nodes=_node_summaries(workflow),
        output=workflow.output,
        inputs=[{"name": name, **spec} for name, spec in document.get("inputs", {}).items()],
        deadline_s=workflow.deadline_s,
        notes=[note.to_json() for note in imported.notes],
        document=document,
    )


def _node_summaries(workflow: WorkflowValue) -> list[NodeSummaryOut]:
    return [
        NodeSummaryOut(
            id=node.id,
            kind="llm" if isinstance(node, LlmNode) else "tool",
            title=node.title,
            skill=node.skill if isinstance(node, LlmNode) else None,
            tool=None if isinstance(node, LlmNode) else node.tool,
            predecessors=list(workflow.predecessors[node.id]),
        )
        for node in workflow.nodes
    ]


# --- Plans -----------------------------------------------------------------------------------------------------------


BundleIn = Annotated[
    BundleKind | None,
    Field(description="`levels`: variants by specialization level (default). `priced`: by price of GPU-seconds."),
]
LimitsIn = Annotated[
    JsonObject | None,
    Field(
        description="Hard limits: numbers max_cost, max_calls, max_tokens, max_makespan_s, min_quality; by model class "
        "work_s (slot-seconds) and calls; by node id or * pin and forbid, lists of MODEL/POLICY/BACKEND patterns.",
    ),
]


class PlanIn(SourceIn):
    fleet: str | None = Field(None, max_length=63)
    effort: float | None = Field(None, ge=0, le=1)
    weights: dict[str, float] | str | None = Field(None, description="A preset's name, or overrides of single weights.")
    bundle: BundleIn = None
    levels: list[float] | None = Field(
        None, min_length=1, max_length=8, description="Specialization levels, or prices; the bundle's own without."
    )
    limits: LimitsIn = None


class ImplementationOut(Schema):
    model: str
    backend: str
    policy: str
    verifier_model: str | None = None
    verifier_backend: str | None = None


class VariantOut(Schema):
    index: int
    level: float
    assignment: dict[str, ImplementationOut]
    dominant_model: str | None
    estimated_quality: float = Field(
        description="A product surrogate of profiled error rates, not a measured accuracy."
    )
    makespan_s: float
    cost: float
    demand: dict[str, float] = Field(description="Slot-seconds per model class, verification included.")
    objective: float
    terms: dict[str, float]
    durations_s: dict[str, float]
    solver: str
    solve_s: float
    gap: float = Field(description="Proven relative gap; 0 is optimal.")

    @classmethod
    def of(cls, index: int, plan: Plan) -> Self:
        return cls(index=index, **{name: value for name, value in plan.to_json().items() if name in cls.model_fields})


class PlanOut(Schema):
    id: str
    version: int = Field(description="Id of the workflow version.")
    workflow: int | None
    fleet: str
    state: str = Field(description="`preparing` while only the first variant is ready, then `ready` or `failed`.")
    error: str
    effort: float
    weights: dict[str, float]
    bundle: BundleKind
    levels: list[float] = Field(description="Specialization levels, or prices in a priced bundle.")
    limits: JsonObject = Field(description="Hard limits that are set.")
    variants: list[VariantOut]
    compile_s: float | None = Field(None, description="Seconds this request waited for the first variant.")
    emulated: bool = Field(description="Rates are an emulator's, not a GPU's.")
    profiles: ProfileMark


def variants_out(version: WorkflowVersion, bundle: PlanBundle) -> list[VariantOut]:
    plans = bundle_value(bundle, workflow_value(version)).variants
    return [VariantOut.of(index, plan) for index, plan in enumerate(plans)]


def plan_out(version: WorkflowVersion, bundle: PlanBundle, *, compile_s: float | None = None) -> PlanOut:
    marks = Marks()
    return PlanOut(
        id=plan_id(version, bundle),
        version=version.pk,
        workflow=version.workflow_id,
        fleet=bundle.fleet.name,
        state=bundle.state,
        error=bundle.error,
        effort=bundle.effort,
        weights=bundle.weights,
        bundle=cast("BundleKind", bundle.kind),
        levels=bundle.levels,
        limits=options_of_bundle(bundle, workflow_value(version)).limits.to_json(),
        variants=variants_out(version, bundle),
        compile_s=compile_s,
        emulated=marks.emulated(bundle.fleet),
        profiles=marks.profiles(bundle),
    )


# --- Why this plan ---------------------------------------------------------------------------------------------------


class ExplanationQuery(Schema):
    node: str | None = Field(None, max_length=64, description="All alternatives of this LLM node, too.")


class AlternativeOut(Schema):
    """Another implementation of a node; every figure but `node_quality` is the whole plan's, alternative minus plan."""

    implementation: ImplementationOut
    node_quality: float
    estimated_quality: float
    makespan_s: float
    cost: float
    demand: float
    objective: float
    chosen: bool

    @classmethod
    def given(cls, alternative: Alternative) -> Self:
        values = {name: getattr(alternative, name) for name in cls.model_fields if name != "implementation"}
        return cls(implementation=ImplementationOut(**alternative.implementation.to_json()), **values)


class NodeExplanationOut(Schema):
    node: str
    chosen: ImplementationOut
    best: AlternativeOut | None = Field(description="The alternative that loses least; null: there is only one choice.")
    slack_s: float = Field(description="The node may take this much longer before the makespan grows.")


class ExplanationOut(Schema):
    plan: str
    variant: int
    nodes: list[NodeExplanationOut]
    node: str | None
    alternatives: list[AlternativeOut]
    emulated: bool
    profiles: ProfileMark


def node_explanation_out(explanation: NodeExplanation) -> NodeExplanationOut:
    return NodeExplanationOut(
        node=explanation.node,
        chosen=ImplementationOut(**explanation.chosen.to_json()),
        best=None if explanation.best is None else AlternativeOut.given(explanation.best),
        slack_s=explanation.slack_s,
    )


def explanation_out(
    version: WorkflowVersion,
    bundle: PlanBundle,
    index: int,
    nodes: Sequence[NodeExplanation],
    *,
    node: str | None,
    found: Sequence[Alternative],
) -> ExplanationOut:
    marks = Marks()
    return ExplanationOut(
        plan=plan_id(version, bundle),
        variant=index,
        nodes=[node_explanation_out(explanation) for explanation in nodes],
        node=node,
        alternatives=[AlternativeOut.given(alternative) for alternative in found],
        emulated=marks.emulated(bundle.fleet),
        profiles=marks.profiles(bundle),
    )
