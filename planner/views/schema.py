"""The published JSON Schema of the native format, for editors and orchestrators; it is the same for everyone."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from planner.importers.schema_check import schema_text


@require_safe
def workflow_schema(request: HttpRequest) -> HttpResponse:
    return HttpResponse(
        schema_text(), content_type="application/schema+json", headers={"Cache-Control": "max-age=3600"}
    )
