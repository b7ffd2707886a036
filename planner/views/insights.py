"""What a page asks about one plan of a bundle: why, how far it holds, what else there is, how far to trust it.

Each answer is a fragment that the page loads when it is looked at; computing one may take seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from planner.charts import front_chart
from planner.compiler.pareto import Axis
from planner.compiler.plan import Bundle, Plan
from planner.compiler.workflow import Workflow
from planner.errors import Busy, NoActiveProfiles, NoAnswer, Outdated
from planner.insights import explanation_of, front_of, planned, ranges_of, stability_of
from planner.models import PlanBundle, WorkflowVersion
from planner.presenters.plans import level_word, variant_name
from planner.presenters.ranges import range_views
from planner.presenters.trust import trust_view
from planner.presenters.why import alternatives_page, why_view
from planner.selectors import bundle_value, options_of_bundle, workflow_value
from planner.views.access import bundle_of, own_version

AXES: tuple[Axis, ...] = ("makespan_s", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A variant of a bundle, seen from a version of the user's."""

    version: WorkflowVersion
    bundle: PlanBundle
    workflow: Workflow
    value: Bundle
    index: int

    @property
    def plan(self) -> Plan:
        return self.value.variants[self.index]

    @property
    def coupled(self) -> bool:
        """Whether the plan keeps caps on the whole plan."""
        return options_of_bundle(self.bundle, self.workflow).limits.coupled

    def context(self, **further: Any) -> dict[str, Any]:
        return {
            "version": self.version,
            "bundle": self.bundle,
            "index": self.index,
            "variant": variant_name(self.index),
            "level": f"{level_word(self.value).lower()} {self.plan.level:g}",
            "coupled": self.coupled,
            **further,
        }


Answer = Callable[[HttpRequest, Question], HttpResponse]


def bound(bundle: PlanBundle, version: WorkflowVersion) -> Bundle:
    """The bundle with the version's node ids; a bundle of another structure does not exist here."""
    try:
        return bundle_value(bundle, workflow_value(version))
    except ValueError:
        raise Http404("This bundle belongs to another structure.") from None


def _about_a_plan(answer: Answer) -> Callable[[HttpRequest, int, int], HttpResponse]:
    """A view of the question; where it has no answer, the fragment says why and what to do."""

    @login_required
    @require_GET
    @wraps(answer)
    def view(request: HttpRequest, version_id: int, bundle_id: int) -> HttpResponse:
        version, bundle = own_version(request, version_id), bundle_of(request, bundle_id)
        value = bound(bundle, version)
        index = _number(request, "variant", 0)
        if not 0 <= index < len(value.variants):
            raise Http404("There is no such variant.")
        question = Question(version=version, bundle=bundle, workflow=workflow_value(version), value=value, index=index)
        try:
            return answer(request, question)
        except (NoAnswer, NoActiveProfiles) as error:
            again = {Outdated: "compile", Busy: "ask"}.get(type(error), "")
            return render(request, "planner/_no_answer.html", {"reason": str(error), "again": again})

    return cast("Callable[[HttpRequest, int, int], HttpResponse]", view)


def _number(request: HttpRequest, name: str, default: int) -> int:
    """-1 for what is no small number."""
    text = request.GET.get(name, str(default))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else -1


@_about_a_plan
def why(request: HttpRequest, asked: Question) -> HttpResponse:
    """The critical path, each node's best alternative and its price by term, what verification adds."""
    explanation = explanation_of(asked.version, asked.bundle, asked.index)
    context = asked.context(why=why_view(explanation, asked.plan, asked.workflow))
    return render(request, "planner/_why.html", context)


@_about_a_plan
def alternatives(request: HttpRequest, asked: Question) -> HttpResponse:
    """Every legal implementation of one node, best first, a page at a time."""
    problem, _ = planned(asked.version, asked.bundle, asked.index)
    explanation = explanation_of(asked.version, asked.bundle, asked.index)
    page = alternatives_page(problem, explanation, request.GET.get("node", ""), _number(request, "page", 1))
    if page is None:
        raise Http404("There is no such LLM node, or no such page of its implementations.")
    return render(request, "planner/_alternatives.html", asked.context(page=page))


@_about_a_plan
def ranges(request: HttpRequest, asked: Question) -> HttpResponse:
    """How far lambda_l, effort and level may move before another plan is better."""
    found = ranges_of(asked.version, asked.bundle, asked.index)
    priced = asked.value.kind == "priced"
    context = asked.context(
        ranges=range_views(found, asked.plan, asked.workflow, priced=priced),
        priced=priced,
    )
    return render(request, "planner/_ranges.html", context)


@_about_a_plan
def front(request: HttpRequest, asked: Question) -> HttpResponse:
    """One front over all plans, the bundle's variants marked on it."""
    axis = next((known for known in AXES if known == request.GET.get("axis")), None)
    if axis is None:
        raise Http404("There is no such axis.")
    found = front_of(asked.version, asked.bundle, axis, asked.index)
    context = asked.context(front=found, chart=front_chart(found, asked.value, asked.plan))
    return render(request, "planner/_front.html", context)


@_about_a_plan
def stability(request: HttpRequest, asked: Question) -> HttpResponse:
    """What stays when the profiles are redrawn from their intervals, and which cell to measure next."""
    context = asked.context()
    if not asked.coupled:
        found = stability_of(asked.version, asked.bundle, asked.index)
        context["trust"] = trust_view(found, asked.workflow)
    return render(request, "planner/_stability.html", context)
