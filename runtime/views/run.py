"""One run: its page, the parts that its script fetches anew, its nodes, and what a person does with it."""

from __future__ import annotations

import json
import time
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from planner.views.access import signed_in
from runtime.errors import RunRejected
from runtime.marks import load_marks
from runtime.models import Run, RunEvent
from runtime.presenters.ledger import ledger_rows
from runtime.presenters.node import node_view
from runtime.presenters.run import (
    RunContext,
    input_texts,
    run_badges,
    run_context,
    run_dag,
    run_head,
    run_result,
    script_state,
)
from runtime.presenters.timeline import strip, timeline_rows
from runtime.selectors import invocations_of, ledger_of
from runtime.services import cancel_run, submit_run
from runtime.views.access import own_run

MAX_EVENTS = 1000
"""Events that a page is rendered with; what came before them is in the API."""
MAX_LEDGER = 200
MAX_NODES = 500
PARTS = frozenset({"head", "result", "strip", "ledger", "badges", "table"})


@login_required
@never_cache
@require_GET
def run_page(request: HttpRequest, run_id: str) -> HttpResponse:
    run, now = own_run(request, run_id), time.time()
    # Before the state: what the state has already, the script will see again and know.
    events = _last_events(run)
    context = run_context(run)
    parts_url = reverse("runtime:parts", args=[run.pk])
    return render(
        request,
        "runtime/run.html",
        {
            **_part_context(context, set(PARTS) - {"table"}, now),
            "rows": timeline_rows(context),
            "dag": run_dag(context),
            "inputs": input_texts(run),
            "script": script_state(context, events, now, parts_url=parts_url),
            "tool_nodes": bool(context.workflow.tool_nodes),
        },
    )


def _last_events(run: Run) -> list[dict[str, Any]]:
    rows = RunEvent.objects.filter(run=run).order_by("-seq").values("seq", "kind", "at", "data")
    return [dict(row) for row in reversed(rows[:MAX_EVENTS])]


@login_required
@never_cache
@require_GET
def parts(request: HttpRequest, run_id: str) -> HttpResponse:
    """Fragments of the page by name (`part`) and the bars of nodes (`node`): elements to put in the place of those
    with the same id."""
    run = own_run(request, run_id)
    context = run_context(run)
    wanted = set(request.GET.getlist("part")) & PARTS
    nodes = set(request.GET.getlist("node")[:MAX_NODES])
    found = _part_context(context, wanted, time.time())
    found["rows"] = timeline_rows(context, nodes) if nodes else []
    found["table_rows"] = timeline_rows(context) if "table" in wanted else []
    return render(request, "runtime/_parts.html", found)


def _part_context(context: RunContext, wanted: set[str], now: float) -> dict[str, Any]:
    """What the named parts show; nothing is read for the others."""
    run = context.run
    found: dict[str, Any] = {"run": run, "workflow": context.workflow, "parts": wanted}
    if wanted & {"head", "result"}:
        found |= {"head": run_head(context, now), "result": run_result(context)}
    if "ledger" in wanted:
        entries = list(ledger_of(run).order_by("-seq")[: MAX_LEDGER + 1])
        found |= {"ledger": ledger_rows(entries[:MAX_LEDGER], context.origin), "more": len(entries) > MAX_LEDGER}
    if "strip" in wanted:
        switches = list(ledger_of(run, switches_only=True)[:MAX_LEDGER])
        found["strip"] = strip(context, switches, now, load_marks(run.fleet).high)
    if "badges" in wanted:
        found["badges"] = run_badges(context)
    return found


@login_required
@never_cache
@require_GET
def node(request: HttpRequest, run_id: str, node: str) -> HttpResponse:
    """The drawer's content."""
    context = run_context(own_run(request, run_id))
    try:
        view = node_view(context, node)
    except KeyError:
        raise Http404("There is no such node.") from None
    return render(request, "runtime/_node.html", {"run": context.run, "node": view})


@login_required
@require_GET
def node_output(request: HttpRequest, run_id: str, node: str, attempt: int) -> HttpResponse:
    row = invocations_of(own_run(request, run_id), node).filter(attempt=attempt).first()
    if row is None or row.output is None:
        raise Http404("There is no such output.")
    return _download(row.output, f"{run_id}-{node}-{attempt}")


@login_required
@require_GET
def output(request: HttpRequest, run_id: str) -> HttpResponse:
    run = own_run(request, run_id)
    if run.output is None:
        raise Http404("This run has no output.")
    return _download(run.output, run.pk)


def _download(value: Any, name: str) -> HttpResponse:
    """A file, never a page: a model wrote it."""
    is_text = isinstance(value, str)
    text = value if is_text else json.dumps(value, ensure_ascii=False, indent=2)
    return HttpResponse(
        text,
        content_type="text/plain; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{name}.{"txt" if is_text else "json"}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


# --- Actions ---------------------------------------------------------------------------------------------------------


@login_required
@require_POST
def cancel(request: HttpRequest, run_id: str) -> HttpResponse:
    run = own_run(request, run_id)
    if cancel_run(run=run, by=signed_in(request)):
        messages.info(request, "Cancelled. Nothing more is dispatched; calls that left before may still finish.")
    else:
        messages.info(request, "The run had ended already.")
    return redirect("runtime:run", run.pk)


@login_required
@require_POST
def again(request: HttpRequest, run_id: str) -> HttpResponse:
    """A new run of the same version with the same inputs and settings; its seed is new."""
    run = own_run(request, run_id)
    try:
        submitted = submit_run(
            owner=signed_in(request),
            version=run.version,
            fleet=run.fleet,
            inputs=run.inputs,
            deadline_s=run.deadline_s,
            effort=run.effort,
            weights=run.weights or None,
            bundle=run.bundle_kind,
            limits=run.limits,
            controller=run.controller,
            source="page",
        )
    except RunRejected as error:
        messages.error(request, f"It cannot run again: {error.problems[0].message}")
        return redirect("runtime:run", run.pk)
    return redirect("runtime:run", submitted.run.pk)
