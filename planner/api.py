"""`/api/v1/workflows` and `/api/v1/plans`."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.http import HttpRequest
from ninja import File, Form, Query, Router
from ninja.files import UploadedFile
from ninja.responses import Status

from fleet.common.access import fleet_for
from fleet.common.pagination import page
from fleet.common.problems import not_found
from fleet.common.schemas import PageOut, PageQuery
from fleet.common.scopes import Scope, caller, requires
from planner.api_schemas import (
    ExplanationOut,
    ExplanationQuery,
    PlanIn,
    PlanOut,
    UploadForm,
    ValidationOut,
    VariantOut,
    VersionDetailOut,
    VersionOut,
    WorkflowIn,
    WorkflowOut,
    WorkflowStoredOut,
    explanation_out,
    plan_out,
    validation_out,
    variants_out,
)
from planner.compiler.plan import Plan
from planner.importers import import_workflow
from planner.insight_schemas import (
    ExplainQuery,
    FrontOut,
    FrontQuery,
    PlanWhyOut,
    SensitivityOut,
    StabilityOut,
    StabilityQuery,
    VariantQuery,
    about,
)
from planner.insights import explanation_of, front_of, ranges_of, stability_of
from planner.models import PlanBundle, WorkflowVersion
from planner.options import PlanOptions
from planner.requests import DocumentIn, placing, plan_for, stored_version, version_of, workflow_for
from planner.selectors import bundle_value, versions_of, workflow_value, workflows_for
from planner.services import StoredWorkflow, compile_version, store_workflow

router = Router(tags=["workflows"])
plans = Router(tags=["plans"])


# --- Workflows -------------------------------------------------------------------------------------------------------


@router.post("/workflows:validate", response=ValidationOut, summary="Check a document; stores nothing")
@requires(Scope.WORKFLOWS_WRITE)
def validate_workflow(request: HttpRequest, body: DocumentIn) -> ValidationOut:
    """What the document means, with what the importer derived; 422 with every problem at once otherwise."""
    with placing(body.document):
        return validation_out(import_workflow(body.data(), **body.import_options()))


@router.post("/workflows:upload", response={200: WorkflowStoredOut, 201: WorkflowStoredOut}, summary="Store a file")
@requires(Scope.WORKFLOWS_WRITE)
def upload_workflow(
    request: HttpRequest, file: File[UploadedFile], form: Form[UploadForm]
) -> Status[WorkflowStoredOut]:
    """The same as POST /workflows, for `multipart/form-data`."""
    user = caller(request)
    stored = store_workflow(
        owner=user,
        data=file.read(),
        filename=file.name or "",
        format=form.format or None,
        name=form.name or None,
    )
    return _stored_out(user, stored)


@router.post("/workflows", response={200: WorkflowStoredOut, 201: WorkflowStoredOut}, summary="Store a workflow")
@requires(Scope.WORKFLOWS_WRITE)
def create_workflow(request: HttpRequest, body: WorkflowIn) -> Status[WorkflowStoredOut]:
    """201: a new workflow or a new version of one. 200: this content is known already, nothing was stored."""
    user = caller(request)
    with placing(body.document):
        stored = store_workflow(owner=user, data=body.data(), name=body.name, **body.import_options())
    return _stored_out(user, stored)


@router.get("/workflows", response=PageOut[WorkflowOut], summary="Your workflows, newest first")
@requires(Scope.WORKFLOWS_READ)
def list_workflows(request: HttpRequest, query: Query[PageQuery]) -> PageOut[WorkflowOut]:
    found = page(workflows_for(caller(request)), cursor=query.cursor, limit=query.limit)
    return PageOut(items=[WorkflowOut.of(row) for row in found.items], next=found.next)


@router.get("/workflows/{workflow}", response=WorkflowOut, summary="One workflow, by id or slug")
@requires(Scope.WORKFLOWS_READ)
def get_workflow(request: HttpRequest, workflow: str) -> WorkflowOut:
    return WorkflowOut.of(workflow_for(caller(request), workflow))


@router.get("/workflows/{workflow}/versions", response=PageOut[VersionOut], summary="Its versions, newest first")
@requires(Scope.WORKFLOWS_READ)
def list_versions(request: HttpRequest, workflow: str, query: Query[PageQuery]) -> PageOut[VersionOut]:
    rows = versions_of(workflow_for(caller(request), workflow))
    found = page(rows, cursor=query.cursor, limit=query.limit)
    return PageOut(items=[VersionOut.of(row) for row in found.items], next=found.next)


@router.get(
    "/workflows/{workflow}/versions/{number}", response=VersionDetailOut, summary="One version, with its document"
)
@requires(Scope.WORKFLOWS_READ)
def get_version(request: HttpRequest, workflow: str, number: int) -> VersionDetailOut:
    version = stored_version(caller(request), workflow, number)
    return VersionDetailOut.of(version, document=version.document)


def _stored_out(owner: User, stored: StoredWorkflow) -> Status[WorkflowStoredOut]:
    out = WorkflowStoredOut(
        workflow=WorkflowOut.of(workflow_for(owner, str(stored.workflow.pk))),
        version=VersionOut.of(stored.version),
        created=stored.created,
    )
    return Status(201 if stored.created else 200, out)


# --- Plans -----------------------------------------------------------------------------------------------------------


@plans.post("/plans", response={201: PlanOut}, summary="Compile, without a run")
@requires(Scope.WORKFLOWS_WRITE)
def create_plan(request: HttpRequest, body: PlanIn) -> Status[PlanOut]:
    """Solves the first variant and answers with the bundle so far; the other variants are prepared meanwhile."""
    user = caller(request)
    fleet = fleet_for(user, body.fleet)
    options = PlanOptions.of(
        effort=body.effort, weights=body.weights, bundle=body.bundle, levels=body.levels, limits=body.limits
    )
    version = version_of(user, body)
    compiled = compile_version(version, fleet=fleet, options=options)
    return Status(201, plan_out(version, compiled.bundle, compile_s=compiled.compile_s))


@plans.get("/plans/{plan}", response=PlanOut, summary="A bundle with the variants that are ready")
@requires(Scope.WORKFLOWS_READ)
def get_plan(request: HttpRequest, plan: str) -> PlanOut:
    return plan_out(*plan_for(caller(request), plan))


@plans.get("/plans/{plan}/variants", response=PageOut[VariantOut], summary="Its variants, by level")
@requires(Scope.WORKFLOWS_READ)
def list_variants(request: HttpRequest, plan: str) -> PageOut[VariantOut]:
    """A bundle has eight levels at most: one page holds them all."""
    return PageOut(items=variants_out(*plan_for(caller(request), plan)), next=None)


@plans.get("/plans/{plan}/variants/{index}/explain", response=ExplanationOut, summary="Why this plan")
@requires(Scope.WORKFLOWS_READ)
def explain_variant(request: HttpRequest, plan: str, index: int, query: Query[ExplanationQuery]) -> ExplanationOut:
    """Per LLM node the best alternative and the slack of its branch; with `node`, all alternatives of that node."""
    version, bundle, _ = _variant(request, plan, index)
    explanation = explanation_of(version, bundle, index)
    found = next((node.alternatives for node in explanation.nodes if node.node == query.node), None)
    if query.node is not None and found is None:
        raise not_found("LLM node")
    return explanation_out(version, bundle, index, explanation.nodes, node=query.node, found=found or ())


# --- Questions about a plan ------------------------------------------------------------------------------------------
# Answered while fleet and profiles are those of the plan, else 409 `stale_plan`; 503 while others are being answered.


@plans.get("/plans/{plan}/explanation", response=PlanWhyOut, summary="Why this plan, with every node's alternatives")
@requires(Scope.WORKFLOWS_READ)
def explain_plan(request: HttpRequest, plan: str, query: Query[ExplainQuery]) -> PlanWhyOut:
    """The critical path, what verification adds, and what every other implementation of a node would change."""
    version, bundle, variant = _variant(request, plan, query.variant)
    found = explanation_of(version, bundle, query.variant)
    return PlanWhyOut.given(found, query.most, about(version, bundle, query.variant, variant))


@plans.get("/plans/{plan}/sensitivity", response=SensitivityOut, summary="The weights for which it stays the best plan")
@requires(Scope.WORKFLOWS_READ)
def plan_sensitivity(request: HttpRequest, plan: str, query: Query[VariantQuery]) -> SensitivityOut:
    """One range for each of lambda_l, effort and level that the objective has. 409 for a plan that is not the best."""
    version, bundle, variant = _variant(request, plan, query.variant)
    found = ranges_of(version, bundle, query.variant)
    return SensitivityOut.given(found, about(version, bundle, query.variant, variant))


@plans.get("/plans/{plan}/front", response=FrontOut, summary="All plans that no other one beats, by one axis")
@requires(Scope.WORKFLOWS_READ)
def plan_front(request: HttpRequest, plan: str, query: Query[FrontQuery]) -> FrontOut:
    """Estimated quality, a surrogate, against makespan or cost. What was dropped for time is stated by `factor`."""
    version, bundle, variant = _variant(request, plan, query.variant)
    found = front_of(version, bundle, query.axis, query.variant)
    return FrontOut.given(found, query.most, about(version, bundle, query.variant, variant))


@plans.get("/plans/{plan}/stability", response=StabilityOut, summary="What stays when the profiles are redrawn")
@requires(Scope.WORKFLOWS_READ)
def plan_stability(request: HttpRequest, plan: str, query: Query[StabilityQuery]) -> StabilityOut:
    """Profiles are redrawn within their samples' uncertainty; `cells` are worth measuring next. 409 under caps on the
    whole plan, which a redraw does not keep."""
    version, bundle, variant = _variant(request, plan, query.variant)
    found = stability_of(version, bundle, query.variant, draws=query.draws)
    return StabilityOut.given(found, about(version, bundle, query.variant, variant))


def _variant(request: HttpRequest, plan: str, index: int) -> tuple[WorkflowVersion, PlanBundle, Plan]:
    """Raises ApiProblem 404."""
    version, bundle = plan_for(caller(request), plan)
    variants = bundle_value(bundle, workflow_value(version)).variants
    if not 0 <= index < len(variants):
        raise not_found("variant")
    return version, bundle, variants[index]
