"""Workflows and their versions."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.db.models import Count, OuterRef, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET
from django.views.decorators.vary import vary_on_headers

from fleet.common.pagination import page
from fleet.common.problems import ApiProblem
from planner.models import Workflow, WorkflowVersion
from planner.presenters.dag import DagThumb, dag_thumb, dag_view
from planner.presenters.forms import run_form
from planner.presenters.sliders import plan_controls
from planner.selectors import version_for, versions_of, workflow_value, workflows_for
from planner.views.access import own_version, signed_in

PAGE_SIZE = 25
VERSIONS_SHOWN = 50
THUMB_NODES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRow:
    workflow: Workflow
    latest: WorkflowVersion | None
    runs: int
    thumb: DagThumb | None


@login_required
@require_GET
@vary_on_headers("HX-Target")
def workflow_list(request: HttpRequest) -> HttpResponse:
    """Newest first; the filter and the cursor live in the address."""
    found = workflows_for(signed_in(request))
    query = request.GET.get("q", "").strip()[:200]
    if query:
        found = found.filter(name__icontains=query)
    try:
        shown = page(found, cursor=request.GET.get("after", ""), limit=PAGE_SIZE)
    except ApiProblem:
        raise Http404("This page of the list does not exist.") from None
    context = {"rows": _rows(list(shown.items)), "next": shown.next, "q": query, "first": "after" not in request.GET}
    partial = request.headers.get("HX-Target") == "workflow-rows"
    return render(request, "planner/_workflow_rows.html" if partial else "planner/workflows.html", context)


def _rows(workflows: list[Workflow]) -> list[WorkflowRow]:
    """Three queries, however many rows."""
    ids = [workflow.pk for workflow in workflows]
    versions = WorkflowVersion.objects.filter(workflow__in=ids).order_by()
    newest = versions.filter(workflow=OuterRef("workflow")).order_by("-number").values("pk")[:1]
    latest = {version.workflow_id: version for version in versions.filter(pk=Subquery(newest)).defer("source")}
    runs = dict(versions.values_list("workflow_id").annotate(total=Count("runs")))
    return [
        WorkflowRow(
            workflow=workflow,
            latest=latest.get(workflow.pk),
            runs=runs.get(workflow.pk, 0),
            thumb=_thumb(latest.get(workflow.pk)),
        )
        for workflow in workflows
    ]


def _thumb(version: WorkflowVersion | None) -> DagThumb | None:
    """Large graphs have no small form that says anything."""
    if version is None or version.node_count > THUMB_NODES:
        return None
    return dag_thumb(workflow_value(version))


@login_required
@require_GET
def workflow(request: HttpRequest, workflow_id: int) -> HttpResponse:
    """The latest version of a workflow."""
    try:
        latest = version_for(signed_in(request), workflow_id)
    except WorkflowVersion.DoesNotExist:
        raise Http404("There is no such workflow.") from None
    return _version_page(request, latest)


@login_required
@require_GET
def version(request: HttpRequest, version_id: int) -> HttpResponse:
    """One version, also of a DAG that a run brought along."""
    return _version_page(request, own_version(request, version_id))


def _version_page(request: HttpRequest, shown: WorkflowVersion) -> HttpResponse:
    value = workflow_value(shown)
    others = list(versions_of(shown.workflow)[: VERSIONS_SHOWN + 1]) if shown.workflow else []
    return render(
        request,
        "planner/workflow.html",
        {
            "version": shown,
            "value": value,
            "versions": others[:VERSIONS_SHOWN],
            "more_versions": len(others) > VERSIONS_SHOWN,
            "latest": not others or others[0].pk == shown.pk,
            "dag": dag_view(value),
            "form": run_form(value, plan=request.GET.urlencode()),
            "controls": plan_controls(request.GET),
            "plan_query": request.GET.urlencode(),
        },
    )


@login_required
@require_GET
def document(request: HttpRequest, version_id: int) -> HttpResponse:
    """The canonical native document as a download; `?source=1` the document as it was uploaded."""
    shown = own_version(request, version_id)
    if "source" in request.GET and shown.source:
        name, text = shown.source_name or "workflow.txt", shown.source
    else:
        slug = shown.workflow.slug if shown.workflow else "inline"
        name, text = f"{slug}-v{shown.number or 0}.json", json.dumps(shown.document, indent=2, ensure_ascii=False)
    return HttpResponse(
        text,
        content_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": _attachment(name), "X-Content-Type-Options": "nosniff"},
    )


def _attachment(name: str) -> str:
    """Always a download, with a name of harmless characters."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)[-100:].lstrip("._")
    return f'attachment; filename="{safe or "workflow.txt"}"'
