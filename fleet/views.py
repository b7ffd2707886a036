"""The fleet's page, its chart, and what an operator does with a replica."""

from __future__ import annotations

import time
from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from fleet.charts import WINDOWS, load_chart, load_lines, window_of
from fleet.common.access import fleets_for, require_manager
from fleet.common.charts import Chart
from fleet.common.problems import ApiProblem
from fleet.consumers import pressure_message
from fleet.errors import NoDefaultFleet
from fleet.marks import load_marks
from fleet.models import Fleet, Replica
from fleet.presenters import class_views
from fleet.selectors import default_fleet, pressure_history
from fleet.services import set_replica_state

DONE = {
    "enabled": "takes calls again",
    "draining": "takes no new calls; running ones finish",
    "disabled": "is disabled",
}


@login_required
@never_cache
@require_GET
def fleet_page(request: HttpRequest) -> HttpResponse:
    now, window_s = time.time(), window_of(request.GET.get("window"))
    fleet = _fleet()
    if fleet is None:
        return render(request, "fleet/fleet.html", {"fleet": None})
    context = {
        "fleet": fleet,
        "classes": class_views(fleet),
        "document": pressure_message(now),
        "marks": load_marks(fleet),
        "chart": _chart(fleet, now, window_s),
        "window": window_s,
        "windows": WINDOWS,
        "manages": _manages(cast(User, request.user), fleet),
    }
    return render(request, "fleet/fleet.html", context)


@login_required
@never_cache
@require_GET
def charts(request: HttpRequest) -> HttpResponse:
    """The chart's figure and table anew, by its id."""
    fleet = _fleet()
    if fleet is None:
        return JsonResponse({})
    chart = _chart(fleet, time.time(), window_of(request.GET.get("window")))
    table = render_to_string("components/chart_rows.html", {"chart": chart})
    return JsonResponse({chart.id: {"figure": chart.figure, "table": table}})


@login_required
@require_POST
def set_state(request: HttpRequest, name: str) -> HttpResponse:
    """Drains, enables or disables a replica; staff alone, and the owner of a fleet of one's own."""
    user = cast(User, request.user)
    replica = (
        Replica.objects.select_related("backend__fleet").filter(name=name, backend__fleet__in=fleets_for(user)).first()
    )
    if replica is None:
        raise Http404("There is no such replica.")
    if not _manages(user, replica.backend.fleet):
        raise PermissionDenied
    try:
        set_replica_state(replica, request.POST.get("state", ""), by=user)
    except ValueError:
        raise Http404("There is no such state.") from None
    messages.success(request, f"{replica.name} {DONE[replica.state]}.")
    return redirect("fleet:fleet")


def _fleet() -> Fleet | None:
    try:
        return default_fleet()
    except NoDefaultFleet:
        return None


def _manages(user: User, fleet: Fleet) -> bool:
    try:
        require_manager(user, fleet)
    except ApiProblem:
        return False
    return True


def _chart(fleet: Fleet, now: float, window_s: int) -> Chart:
    lines = load_lines(pressure_history(fleet, now - window_s), now=now, window_s=window_s)
    return load_chart(lines, load_marks(fleet), window_s=window_s)
