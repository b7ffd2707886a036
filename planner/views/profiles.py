"""Profiles: what planning believes about models, policies and faults."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from planner.charts import profile_chart, vulnerability_chart
from planner.errors import NoActiveProfiles
from planner.models import ProfileVersion
from planner.selectors import active_profile_version, active_profiles


@login_required
@require_GET
def profiles(request: HttpRequest) -> HttpResponse:
    """The active version: quality by skill and implementation, vulnerability by role, skill and fan-in."""
    try:
        active = active_profiles()
    except NoActiveProfiles as error:
        return render(request, "planner/profiles.html", {"missing": f"{error}."})
    modes = sorted({pair.thinking for pair in active.pairs})
    context = {
        "row": active_profile_version(),
        "profiles": active,
        "charts": [profile_chart(active, thinking=thinking) for thinking in modes],
        "vulnerability": vulnerability_chart(active),
        "versions": ProfileVersion.objects.defer("document")[:20],
        "models": sorted({pair.model for pair in active.pairs}),
        "policies": len({pair.policy for pair in active.pairs}),
        "samples": sum(pair.samples for pair in active.pairs),
    }
    return render(request, "planner/profiles.html", context)
