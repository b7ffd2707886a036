"""Plans of a version: compiled as the sliders move, refreshed while variants are prepared, explained, compared."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from fleet.errors import NoDefaultFleet
from fleet.selectors import default_fleet
from planner.charts import demand_chart, pareto_chart
from planner.compiler.explain import explain
from planner.compiler.plan import Bundle
from planner.errors import NoActiveProfiles, OptionsInvalid, PlanInfeasible, PlanRefused
from planner.models import PlanBundle, WorkflowVersion
from planner.options import PlanOptions
from planner.presenters.plans import badges, comparison, explanation_rows, origin_notes, variant_rows
from planner.presenters.sliders import options_of, query_of
from planner.selectors import bundle_value, options_of_bundle, problem_for, workflow_value
from planner.services import compile_version
from planner.views.access import bundle_of, own_version

NO_CONTENT = 204


@login_required
@require_GET
def compile_plans(request: HttpRequest, version_id: int) -> HttpResponse:
    """Compiles with the sliders' values; answers a fragment and writes the values into the page's address."""
    version = own_version(request, version_id)
    try:
        options = options_of(request.GET)
        compiled = compile_version(version, fleet=default_fleet(), options=options)
    except PlanInfeasible as error:
        return _no_plan(request, "This workflow has no plan on this fleet.", error.reasons)
    except PlanRefused as error:
        return _no_plan(request, "The plan of this workflow is not what it says.", (f"{error}.",))
    except OptionsInvalid as error:
        return _no_plan(request, "These settings mean nothing.", tuple(error.problems.values()))
    except (NoActiveProfiles, NoDefaultFleet) as error:
        return _no_plan(request, "There is nothing to plan with yet.", (f"{error}.",))
    response = _plans(request, version, compiled.bundle, options, compile_s=compiled.compile_s)
    page = reverse("planner:version", args=[version.pk])
    query = query_of(options)
    response["HX-Replace-Url"] = f"{page}?{query}" if query else page
    return response


@login_required
@require_GET
def prepared(request: HttpRequest, version_id: int, bundle_id: int) -> HttpResponse:
    """The same fragment once the bundle is no longer being prepared; until then nothing."""
    version, bundle = own_version(request, version_id), bundle_of(request, bundle_id)
    if bundle.state == PlanBundle.State.PREPARING:
        return HttpResponse(status=NO_CONTENT)
    return _plans(request, version, bundle, _options(bundle, version))


@login_required
@require_GET
def why(request: HttpRequest, version_id: int, bundle_id: int) -> HttpResponse:
    """Why this plan: per node the best alternative and its price."""
    version, bundle = own_version(request, version_id), bundle_of(request, bundle_id)
    value = _bound(bundle, version)
    index = _index(request, value)
    problem = problem_for(version, bundle.fleet, _options(bundle, version))
    context: dict[str, Any] = {"version": version, "bundle": bundle, "index": index, "variants": variant_rows(value)}
    try:
        context["rows"] = explanation_rows(problem, explain(problem, value.variants[index]))
    except ValueError:
        # The fleet or the profiles are others now than when this bundle was made.
        context["outdated"] = True
    return render(request, "planner/_why.html", context)


@login_required
@require_GET
def compare(request: HttpRequest, version_id: int, bundle_id: int) -> HttpResponse:
    """All variants side by side."""
    version, bundle = own_version(request, version_id), bundle_of(request, bundle_id)
    workflow, value = workflow_value(version), _bound(bundle, version)
    context = {
        "version": version,
        "value": workflow,
        "bundle": bundle,
        "comparison": comparison(value, workflow),
        "query": query_of(_options(bundle, version)),
        "notes": origin_notes(problem_for(version, bundle.fleet, _options(bundle, version))),
    }
    return render(request, "planner/compare.html", context)


def _plans(
    request: HttpRequest,
    version: WorkflowVersion,
    bundle: PlanBundle,
    options: PlanOptions,
    *,
    compile_s: float | None = None,
) -> HttpResponse:
    workflow, value = workflow_value(version), _bound(bundle, version)
    context = {
        "version": version,
        "bundle": bundle,
        "rows": variant_rows(value),
        "complete": value.complete,
        "charts": [pareto_chart(value), demand_chart(value)] if workflow.llm_nodes else [],
        "badges": badges(value, workflow),
        "compile_s": compile_s,
        "notes": origin_notes(problem_for(version, bundle.fleet, options)),
    }
    return render(request, "planner/_plans.html", context)


def _no_plan(request: HttpRequest, sentence: str, reasons: tuple[str, ...]) -> HttpResponse:
    return render(request, "planner/_no_plan.html", {"sentence": sentence, "reasons": reasons})


def _bound(bundle: PlanBundle, version: WorkflowVersion) -> Bundle:
    """The bundle with the version's node ids; a bundle of another structure does not exist here."""
    try:
        return bundle_value(bundle, workflow_value(version))
    except ValueError:
        raise Http404("This bundle belongs to another structure.") from None


def _options(bundle: PlanBundle, version: WorkflowVersion) -> PlanOptions:
    return options_of_bundle(bundle, workflow_value(version))


def _index(request: HttpRequest, bundle: Bundle) -> int:
    text = request.GET.get("variant", "0")
    index = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else -1
    if not 0 <= index < len(bundle.variants):
        raise Http404("There is no such variant.")
    return index
