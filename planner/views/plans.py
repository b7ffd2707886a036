"""Plans of a version: compiled as the form changes, refreshed while variants are prepared, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from fleet.errors import NoDefaultFleet
from fleet.selectors import default_fleet
from planner.charts import demand_chart, pareto_chart
from planner.compiler.plan import Conflict
from planner.errors import NoActiveProfiles, OptionsInvalid, PlanInfeasible, PlanRefused
from planner.models import PlanBundle, WorkflowVersion
from planner.options import PlanOptions
from planner.presenters.limits import conflict_rows, errors_by_field, sentences
from planner.presenters.plans import badges, comparison, level_word, origin_notes, variant_rows
from planner.presenters.sliders import options_of, query_of
from planner.selectors import options_of_bundle, problem_for, workflow_value
from planner.services import compile_version
from planner.views.access import bundle_of, own_version
from planner.views.insights import bound

NO_CONTENT = 204
NO_PROBLEMS: Mapping[str, str] = MappingProxyType({})


@login_required
@require_GET
def compile_plans(request: HttpRequest, version_id: int) -> HttpResponse:
    """Compiles with the form's values; answers a fragment and writes the values into the page's address."""
    version = own_version(request, version_id)
    try:
        options = options_of(request.GET)
        compiled = compile_version(version, fleet=default_fleet(), options=options)
    except PlanInfeasible as error:
        sentence = _without_plan(error)
        return _no_plan(request, sentence, error.reasons, conflicts=error.conflicts)
    except PlanRefused as error:
        return _no_plan(request, "The plan of this workflow is not what it says.", (f"{error}.",))
    except OptionsInvalid as error:
        return _no_plan(request, "These settings mean nothing.", sentences(error.problems), problems=error.problems)
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
    """The same fragment once the bundle is no longer being prepared, what is said about pi(0) left as it is."""
    version, bundle = own_version(request, version_id), bundle_of(request, bundle_id)
    if bundle.state == PlanBundle.State.PREPARING:
        return HttpResponse(status=NO_CONTENT)
    return _plans(request, version, bundle, _options(bundle, version))


@login_required
@require_GET
def compare(request: HttpRequest, version_id: int, bundle_id: int) -> HttpResponse:
    """All variants side by side."""
    version, bundle = own_version(request, version_id), bundle_of(request, bundle_id)
    workflow, value = workflow_value(version), bound(bundle, version)
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
    workflow, value = workflow_value(version), bound(bundle, version)
    context = {
        "version": version,
        "bundle": bundle,
        "rows": variant_rows(value),
        "complete": value.complete,
        "level_word": level_word(value),
        "refresh": compile_s is None,
        "field_errors": () if compile_s is None else errors_by_field(NO_PROBLEMS),
        "charts": [pareto_chart(value), demand_chart(value)] if workflow.llm_nodes else [],
        "badges": badges(value, workflow),
        "compile_s": compile_s,
        "notes": origin_notes(problem_for(version, bundle.fleet, options)),
    }
    return render(request, "planner/_plans.html", context)


def _without_plan(error: PlanInfeasible) -> str:
    if not error.proved:
        return "No plan that keeps these limits was found in time; there may be one."
    return "No plan keeps these limits." if error.conflicts else "This workflow has no plan on this fleet."


def _no_plan(
    request: HttpRequest,
    sentence: str,
    reasons: tuple[str, ...],
    *,
    problems: Mapping[str, str] = NO_PROBLEMS,
    conflicts: Sequence[Conflict] = (),
) -> HttpResponse:
    context = {
        "sentence": sentence,
        "reasons": reasons,
        "conflicts": conflict_rows(conflicts),
        "field_errors": errors_by_field(problems),
    }
    return render(request, "planner/_no_plan.html", context)


def _options(bundle: PlanBundle, version: WorkflowVersion) -> PlanOptions:
    return options_of_bundle(bundle, workflow_value(version))
