"""Starting a run from a form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from fleet.errors import NoDefaultFleet
from planner.compiler.workflow import Workflow
from planner.errors import OptionsInvalid
from planner.importers.problems import Problem, pointer_parts
from planner.models import WorkflowVersion
from planner.presenters.forms import PREFIX, read_inputs, run_form
from planner.presenters.sliders import options_of
from planner.selectors import workflow_value
from planner.views.access import own_version, signed_in
from runtime.errors import RunRejected
from runtime.models import Run
from runtime.services import submit_run

UNPROCESSABLE = 422


@dataclass(slots=True, kw_only=True)
class FormErrors:
    """By field of the form; `general` belong to none."""

    fields: dict[str, str] = field(default_factory=dict)
    general: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.fields or self.general)

    def add(self, problems: Iterable[Problem], workflow: Workflow) -> None:
        """The first problem of a field stands for it."""
        known = {PREFIX + spec.name for spec in workflow.inputs} | {"deadline_s"}
        for problem in problems:
            parts = pointer_parts(problem.pointer)
            name = PREFIX + parts[1] if len(parts) > 1 and parts[0] == "inputs" else parts[0] if parts else ""
            words = f"{problem.message} {problem.remedy}".strip()
            if name in known:
                self.fields.setdefault(name, words)
            else:
                self.general.append(words)


@login_required
@require_http_methods(["GET", "POST"])
def submit(request: HttpRequest, version_id: int) -> HttpResponse:
    """The form alone; posting it starts the run and opens it, or shows every error at its field."""
    version = own_version(request, version_id)
    workflow = workflow_value(version)
    if request.method == "GET":
        context = {"version": version, "value": workflow, "form": run_form(workflow)}
        return render(request, "runtime/submit.html", context)
    errors = FormErrors()
    run = _submit(request, version, workflow, errors)
    if run is not None:
        return redirect("runtime:run", run.pk)
    form = run_form(workflow, request.POST.dict(), errors.fields, tuple(errors.general))
    context = {"version": version, "value": workflow, "form": form, "failed": True}
    return render(request, "runtime/submit.html", context, status=UNPROCESSABLE)


def _submit(request: HttpRequest, version: WorkflowVersion, workflow: Workflow, errors: FormErrors) -> Run | None:
    posted = request.POST.dict()
    inputs, errors.fields = read_inputs(workflow, posted)
    deadline_s, planning = _number(posted, "deadline_s", errors), _planning(posted, errors)
    if errors:
        return None
    try:
        return submit_run(
            owner=signed_in(request),
            version=version,
            inputs=inputs,
            deadline_s=deadline_s,
            **planning,
            controller=posted.get("controller", ""),
            source="page",
        ).run
    except RunRejected as error:
        errors.add(error.problems, workflow)
    except NoDefaultFleet as error:
        errors.general.append(f"{error}.")
    return None


def _planning(posted: Mapping[str, str], errors: FormErrors) -> dict[str, Any]:
    """Effort, weights, bundle and limits of the plan that the form belongs to, or the effort that it asks for."""
    if "plan" not in posted:
        return {"effort": _number(posted, "effort", errors)}
    try:
        options = options_of(QueryDict(posted["plan"]).dict())
    except OptionsInvalid as error:
        errors.general.extend(f"{option}: {message}" for option, message in error.problems.items())
        return {}
    chosen = options.to_json()
    return {name: chosen[name] for name in ("effort", "weights", "bundle", "limits")}


def _number(posted: Mapping[str, str], name: str, errors: FormErrors) -> float | None:
    text = posted.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return value
    if name == "deadline_s":
        errors.fields[name] = "Enter a number of seconds, or leave it empty."
    else:
        errors.general.append(f"{name} is no number.")
    return None
