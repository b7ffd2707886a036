"""A demo burst: many runs of a user's stored workflows at once, so that queues fill and plans switch (ours)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import OuterRef, Subquery

from planner.models import WorkflowVersion
from planner.selectors import workflow_value, workflows_for
from runtime.services import submit_run

MAX_RUNS = 200
DEFAULT_RUNS = 60
MAX_CHOICES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstChoice:
    """The latest version of one workflow. `missing` names inputs without a default: a burst cannot fill those."""

    version: WorkflowVersion
    name: str
    nodes: int
    missing: tuple[str, ...]


def burst_choices(user: User) -> list[BurstChoice]:
    """The user's workflows, by name; two queries."""
    newest = WorkflowVersion.objects.filter(workflow=OuterRef("workflow")).order_by("-number").values("pk")[:1]
    versions = WorkflowVersion.objects.filter(
        workflow__in=list(workflows_for(user).values_list("pk", flat=True)[:MAX_CHOICES]), pk=Subquery(newest)
    ).select_related("workflow")
    choices = [_choice(version) for version in versions.defer("source")]
    return sorted(choices, key=lambda choice: (choice.name.lower(), choice.version.pk))


def _choice(version: WorkflowVersion) -> BurstChoice:
    value = workflow_value(version)
    missing = tuple(spec.name for spec in value.inputs if spec.required and spec.default is None)
    return BurstChoice(version=version, name=value.name, nodes=len(value.nodes), missing=missing)


def send_burst(user: User, versions: Sequence[WorkflowVersion], runs: int) -> list[str]:
    """Submits `runs` runs round the versions, each with its default inputs and deadline; their ids.

    Raises ValueError outside 1..MAX_RUNS and without a version, and whatever `submit_run` raises.
    """
    if not 1 <= runs <= MAX_RUNS:
        raise ValueError(f"a burst has 1 to {MAX_RUNS} runs")
    if not versions:
        raise ValueError("a burst needs a workflow")
    return [
        submit_run(owner=user, version=versions[index % len(versions)], inputs={}, source="burst").run.pk
        for index in range(runs)
    ]
