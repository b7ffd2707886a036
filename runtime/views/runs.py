"""The list of runs; filters and the cursor live in the address."""

from __future__ import annotations

import time
from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from fleet.common.pagination import page
from fleet.common.problems import ApiProblem
from planner.selectors import workflows_for
from planner.views.access import signed_in
from runtime.engine.events import RunState
from runtime.listing import listed
from runtime.presenters.runs import run_rows, state_tabs
from runtime.selectors import runs_for
from runtime.stats import totals

PAGE_SIZE = 25
MAX_WORKFLOWS = 200
FILTERS = ("state", "workflow", "late")


@login_required
@never_cache
@require_GET
def run_list(request: HttpRequest) -> HttpResponse:
    """The page, or for a script the rows alone: it puts them in place while runs move on."""
    context = _rows(signed_in(request), request.GET)
    if "rows" in request.GET:
        return render(request, "runtime/_run_rows.html", context)
    context["workflows"] = list(workflows_for(signed_in(request)).values_list("pk", "name")[:MAX_WORKFLOWS])
    return render(request, "runtime/runs.html", context)


def _rows(user: User, query: QueryDict) -> dict[str, Any]:
    """Raises Http404 on a filter or a cursor that no page gave out."""
    state, workflow, late = (query.get(name, "") for name in FILTERS)
    if state and state not in set(RunState):
        raise Http404("There is no such state.")
    runs = runs_for(user)
    if workflow:
        if not (workflow.isascii() and workflow.isdigit() and len(workflow) < 19):
            raise Http404("There is no such workflow.")
        runs = runs.filter(version__workflow_id=int(workflow))
    if late:
        runs = runs.filter(late=True)
    counts = totals(runs)
    chosen = runs.filter(state=state) if state else runs
    try:
        found = page(listed(chosen), cursor=query.get("after", ""), limit=PAGE_SIZE)
    except ApiProblem:
        raise Http404("This page of the list does not exist.") from None
    return {
        "rows": run_rows(found.items, time.time()),
        "tabs": state_tabs(counts, state),
        "next": found.next,
        "first": "after" not in query,
        "state": state,
        "workflow": workflow,
        "late": bool(late),
        "filtered": any((state, workflow, late)),
        "address": _address(query),
        "base": _address(query, without=("state",)),
    }


def _address(query: QueryDict, without: tuple[str, ...] = ()) -> str:
    """The filters alone, as a query string that more can be appended to."""
    kept = QueryDict(mutable=True)
    for name in FILTERS:
        value = query.get(name)
        if value and name not in without:
            kept[name] = value
    text = kept.urlencode()
    return f"{text}&" if text else ""
