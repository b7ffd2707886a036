"""Runs as rows of a list: without documents, inputs and outputs, which may be a megabyte each."""

from __future__ import annotations

from django.db.models import CharField, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from runtime.models import Run


def listed(runs: QuerySet[Run]) -> QuerySet[Run]:
    """The runs with fleet, bundle and the name of their workflow, for `workflow_name`."""
    inline_name = Cast(KeyTextTransform("name", "version__document"), CharField())
    return (
        runs.select_related("fleet", "bundle", "version__workflow")
        .defer("inputs", "output", "version__document", "version__source", "version__notes", "bundle__request")
        .annotate(workflow_name=Coalesce("version__workflow__name", inline_name, output_field=CharField()))
    )


def workflow_name(run: Run) -> str:
    """The stored workflow's name, or the name inside an inline document."""
    return str(vars(run)["workflow_name"] or "")
