"""One decision of a run, so that a person reads why."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from runtime.presenters.ledger import decision_view
from runtime.presenters.run import run_context
from runtime.selectors import ledger_of
from runtime.views.access import own_run


@login_required
@require_GET
def decision(request: HttpRequest, run_id: str, seq: int) -> HttpResponse:
    run = own_run(request, run_id)
    entry = ledger_of(run).filter(seq=seq).first()
    if entry is None:
        raise Http404("There is no such decision.")
    before = ledger_of(run).filter(seq__lt=seq).order_by("-seq").values_list("seq", flat=True).first()
    after = ledger_of(run).filter(seq__gt=seq).values_list("seq", flat=True).first()
    context = run_context(run)
    shown = {
        "run": run,
        "workflow": context.workflow,
        "decision": decision_view(context, entry),
        "before": before,
        "after": after,
    }
    return render(request, "runtime/switch.html", shown)
