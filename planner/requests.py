"""What requests to the API name: documents, workflows by id or slug, versions, plans; always the caller's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Self

from django.contrib.auth.models import User
from django.db.models import Q
from pydantic import Field, model_validator

from fleet.common.access import may_use
from fleet.common.problems import ApiProblem, FieldProblem, not_found, rejected
from fleet.common.schemas import Body
from planner.importers.problems import WorkflowRejected
from planner.models import PlanBundle, Workflow, WorkflowVersion
from planner.selectors import bundle_value, version_for, workflow_value, workflows_for
from planner.services import inline_version

MAX_ID = 2**63 - 1

WorkflowRef = Annotated[str, Field(min_length=1, max_length=80, description="A workflow's id or slug.")]
Document = Annotated[
    str | dict[str, Any],
    Field(description="A workflow document: its text (YAML or JSON, any known format), or the object itself."),
]


class DocumentIn(Body):
    document: Document
    filename: str = Field("", max_length=255, description="Helps to recognise the format and appears in listings.")
    format: str | None = Field(None, max_length=32, description="A format's name; recognised from the content without.")
    skills: dict[str, str] | None = Field(None, max_length=500, description="Skill per node id, over the derived ones.")

    def data(self) -> bytes:
        return document_bytes(self.document)

    def import_options(self) -> dict[str, Any]:
        return {"filename": self.filename, "format": self.format, "skills": self.skills}


class SourceIn(Body):
    """What to plan or run: a stored workflow (its latest version without a number) or a document of its own."""

    workflow: WorkflowRef | None = None
    version: int | None = Field(None, ge=1, le=MAX_ID)
    document: Document | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.workflow is None) == (self.document is None):
            raise ValueError("send either workflow or document")
        if self.version is not None and self.workflow is None:
            raise ValueError("version belongs to workflow; a document has none")
        return self


def document_bytes(document: str | dict[str, Any]) -> bytes:
    return (document if isinstance(document, str) else json.dumps(document)).encode()


def rejection(error: WorkflowRejected, *, below: str = "", placed: bool = True) -> ApiProblem:
    """422 with every problem. `below` is where the document lies in the body; without `placed` it has no lines."""
    problems = [FieldProblem.of(problem, below=below) for problem in error.problems]
    if not placed:
        problems = [replace(problem, line=None, column=None) for problem in problems]
    count = len(problems)
    detail = f"The workflow was rejected: {count} problem{'s' * (count != 1)}. Nothing was stored."
    return rejected("workflow_rejected", detail, problems)


@contextmanager
def placing(document: str | dict[str, Any] | None) -> Iterator[None]:
    """Problems of a document that came as an object point into the body, those of a text into that text."""
    try:
        yield
    except WorkflowRejected as error:
        if isinstance(document, dict):
            raise rejection(error, below="/document", placed=False) from error
        raise rejection(error) from error


def workflow_for(user: User, ref: str) -> Workflow:
    """The caller's workflow by id or slug, as `workflows_for` annotates it. Raises ApiProblem 404."""
    names = [Q(pk=int(ref)), Q(slug=ref)] if _is_id(ref) else [Q(slug=ref)]
    for name in names:
        for archived in (False, True):
            found = workflows_for(user, archived=archived).filter(name).first()
            if found is not None:
                return found
    raise not_found("workflow")


def stored_version(user: User, ref: str, number: int | None = None) -> WorkflowVersion:
    """A version of the caller's workflow, the latest without a number. Raises ApiProblem 404."""
    try:
        return version_for(user, workflow_for(user, ref).pk, number)
    except WorkflowVersion.DoesNotExist:
        raise not_found("workflow version") from None


def version_of(user: User, source: SourceIn) -> WorkflowVersion:
    """The stored version that a request names, or the one of the document it brought along."""
    if source.workflow is not None:
        return stored_version(user, source.workflow, source.version)
    document = source.document or ""
    with placing(document):
        return inline_version(owner=user, data=document_bytes(document))


# --- Plans -----------------------------------------------------------------------------------------------------------


def plan_id(version: WorkflowVersion, bundle: PlanBundle) -> str:
    """Bundles are shared by everybody's workflows of one structure: a plan is one of them seen from an own version."""
    return f"{version.pk}-{bundle.pk}"


def plan_for(user: User, plan: str) -> tuple[WorkflowVersion, PlanBundle]:
    """Raises ApiProblem 404 unless the version is the caller's and the bundle has its structure."""
    version_id, _, bundle_id = plan.partition("-")
    if not (_is_id(version_id) and _is_id(bundle_id)):
        raise not_found("plan")
    version = WorkflowVersion.objects.filter(pk=int(version_id), owner_id=user.pk).first()
    bundle = PlanBundle.objects.select_related("fleet").filter(pk=int(bundle_id)).first()
    if version is None or bundle is None or not (may_use(user, bundle.fleet) and _fits(version, bundle)):
        raise not_found("plan")
    return version, bundle


def _fits(version: WorkflowVersion, bundle: PlanBundle) -> bool:
    try:
        bundle_value(bundle, workflow_value(version))
    except ValueError:
        return False
    return True


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_ID
