"""`/api/v1/workflows` and `/api/v1/plans`."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.http import HttpRequest
from ninja import File, Form, Query, Router
from ninja.files import UploadedFile
from ninja.responses import Status

from fleet.common.access import fleet_for
from fleet.common.pagination import page
from fleet.common.problems import ApiProblem, not_found
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
from planner.compiler.explain import alternatives, explain
from planner.importers import import_workflow
from planner.options import PlanOptions
from planner.requests import DocumentIn, placing, plan_for, stored_version, version_of, workflow_for
from planner.selectors import (
    bundle_value,
    options_of_bundle,
    problem_for,
    versions_of,
    workflow_value,
    workflows_for,
)
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
    version, bundle = plan_for(caller(request), plan)
    workflow = workflow_value(version)
    variants = bundle_value(bundle, workflow).variants
    if not 0 <= index < len(variants):
        raise not_found("variant")
    if query.node is not None and query.node not in {node.id for node in workflow.llm_nodes}:
        raise not_found("LLM node")
    problem = problem_for(version, bundle.fleet, options_of_bundle(bundle, workflow))
    try:
        nodes = explain(problem, variants[index])
        found = alternatives(problem, variants[index], query.node) if query.node is not None else ()
    except ValueError as error:
        detail = f"The fleet or the profiles have changed since this plan was made ({error}); compile it again."
        raise ApiProblem(409, "stale_plan", detail) from error
    return explanation_out(version, bundle, index, nodes, node=query.node, found=found)
