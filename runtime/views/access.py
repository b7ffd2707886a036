"""Whose runs a page may show; somebody else's do not exist."""

from __future__ import annotations

from django.http import Http404, HttpRequest

from planner.views.access import signed_in
from runtime.errors import RunNotFound
from runtime.models import Run
from runtime.selectors import run_for


def own_run(request: HttpRequest, run_id: str) -> Run:
    try:
        return run_for(signed_in(request), run_id)
    except RunNotFound:
        raise Http404("There is no such run.") from None
