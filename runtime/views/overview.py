"""The overview, its charts, and the demo burst."""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from fleet.charts import WINDOWS, LoadLine, load_lines, window_of
from fleet.common.access import is_emulated
from fleet.common.charts import Chart
from fleet.errors import NoDefaultFleet
from fleet.marks import LoadMarks
from fleet.models import Fleet
from fleet.selectors import default_fleet, pressure_history
from planner.views.access import signed_in
from runtime.burst import DEFAULT_RUNS, MAX_RUNS, burst_choices, send_burst
from runtime.charts import SwitchMoment, arrivals_chart, overview_load_chart
from runtime.errors import RunRejected
from runtime.marks import load_marks
from runtime.models import LedgerEntry
from runtime.overview import overview
from runtime.presenters.words import moment
from runtime.selectors import runs_for
from runtime.stats import WINDOW_S

MAX_MOMENTS = 3000
UNPROCESSABLE = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstProblem:
    message: str
    runs: str
    chosen: frozenset[int]


@login_required
@never_cache
@require_GET
def home(request: HttpRequest) -> HttpResponse:
    return _page(request)


@login_required
@never_cache
@require_GET
def charts(request: HttpRequest) -> HttpResponse:
    """Each chart's figure and table anew, by id; the page asks every few seconds."""
    found = {
        chart.id: {"figure": chart.figure, "table": render_to_string("components/chart_rows.html", {"chart": chart})}
        for chart in overview_charts(signed_in(request), time.time(), window_of(request.GET.get("window")))
    }
    return JsonResponse(found)


@login_required
@require_POST
def burst(request: HttpRequest) -> HttpResponse:
    """Submits the burst and goes to the overview, where its runs appear."""
    user, count = signed_in(request), request.POST.get("runs", "")
    chosen = frozenset(int(value) for value in request.POST.getlist("versions") if value.isascii() and value.isdigit())
    choices = [choice for choice in burst_choices(user) if choice.version.pk in chosen and not choice.missing]
    problem = _burst_problem(count, bool(choices))
    if not problem:
        try:
            sent = send_burst(user, [choice.version for choice in choices], int(count))
            messages.success(request, f"Sent {len(sent)} runs. Queues fill within seconds.")
            return redirect("home")
        except RunRejected as error:
            problem = error.problems[0].message
        except NoDefaultFleet as error:
            problem = f"{error}."
    return _page(request, BurstProblem(message=problem, runs=count, chosen=chosen))


def _burst_problem(count: str, any_workflow: bool) -> str:
    if not (count.isascii() and count.isdigit() and len(count) < 6 and 1 <= int(count) <= MAX_RUNS):
        return f"Enter a number of runs from 1 to {MAX_RUNS}."
    return "" if any_workflow else "Choose at least one workflow."


def _page(request: HttpRequest, problem: BurstProblem | None = None) -> HttpResponse:
    user, now, window_s = signed_in(request), time.time(), window_of(request.GET.get("window"))
    fleet = _fleet()
    context = {
        "document": overview(user, now),
        "charts": overview_charts(user, now, window_s, fleet),
        "window": window_s,
        "windows": WINDOWS,
        "marks": _marks(fleet),
        "fleet": fleet,
        "emulated": fleet is not None and is_emulated(fleet),
        "minutes": round(WINDOW_S / 60),
        "choices": burst_choices(user),
        "default_runs": DEFAULT_RUNS,
        "max_runs": MAX_RUNS,
        "problem": problem,
    }
    return render(request, "runtime/overview.html", context, status=UNPROCESSABLE if problem else 200)


def _fleet() -> Fleet | None:
    try:
        return default_fleet()
    except NoDefaultFleet:
        return None


def _marks(fleet: Fleet | None) -> LoadMarks:
    return load_marks(fleet) if fleet is not None else LoadMarks(high=0.85, low=0.5)


def overview_charts(user: User, now: float, window_s: int, fleet: Fleet | None = None) -> list[Chart]:
    """Load of the default fleet, with the user's switches, and the user's arrivals."""
    fleet = fleet or _fleet()
    since = now - window_s
    lines: list[LoadLine] = []
    if fleet is not None:
        lines = load_lines(pressure_history(fleet, since), now=now, window_s=window_s)
    entries = LedgerEntry.objects.filter(run__owner_id=user.pk, to_variant__isnull=False, at__gte=since)
    moments = [SwitchMoment(at=at, text=text) for at, text in entries.values_list("at", "text")[:MAX_MOMENTS]]
    runs = runs_for(user).order_by("-pk")
    came = runs.filter(accepted_at__gte=moment(since)).values_list("accepted_at", flat=True)[:MAX_MOMENTS]
    went = runs.filter(finished_at__gte=since).values_list("finished_at", flat=True)[:MAX_MOMENTS]
    return [
        overview_load_chart(lines, moments, _marks(fleet), now=now, window_s=window_s),
        arrivals_chart(
            (at.timestamp() for at in came), (at for at in went if at is not None), now=now, window_s=window_s
        ),
    ]
