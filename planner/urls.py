"""The planner's pages: workflows with their versions and plans, and profiles."""

from __future__ import annotations

from django.urls import path

from planner.views import insights, plans, profiles, schema, uploads, workflows

app_name = "planner"
urlpatterns = [
    path("workflows/", workflows.workflow_list, name="workflows"),
    path("workflows/upload/", uploads.upload, name="upload"),
    path("workflows/preview/", uploads.preview_upload, name="preview"),
    path("workflows/<int:workflow_id>/", workflows.workflow, name="workflow"),
    path("workflows/versions/<int:version_id>/", workflows.version, name="version"),
    path("workflows/versions/<int:version_id>/document/", workflows.document, name="document"),
    path("workflows/versions/<int:version_id>/plans/", plans.compile_plans, name="plans"),
    path("workflows/versions/<int:version_id>/plans/<int:bundle_id>/", plans.prepared, name="prepared"),
    path("workflows/versions/<int:version_id>/plans/<int:bundle_id>/why/", insights.why, name="why"),
    path(
        "workflows/versions/<int:version_id>/plans/<int:bundle_id>/alternatives/",
        insights.alternatives,
        name="alternatives",
    ),
    path("workflows/versions/<int:version_id>/plans/<int:bundle_id>/ranges/", insights.ranges, name="ranges"),
    path("workflows/versions/<int:version_id>/plans/<int:bundle_id>/front/", insights.front, name="front"),
    path("workflows/versions/<int:version_id>/plans/<int:bundle_id>/stability/", insights.stability, name="stability"),
    path("workflows/versions/<int:version_id>/plans/<int:bundle_id>/compare/", plans.compare, name="compare"),
    path("schemas/workflow.json", schema.workflow_schema, name="schema"),
    path("profiles/", profiles.profiles, name="profiles"),
]
