"""Runs: list, page, parts, nodes, decisions, and the overview's charts and burst. The overview itself is the root."""

from __future__ import annotations

from django.urls import path

from runtime.views import overview, run, runs, submit, switches

app_name = "runtime"
urlpatterns = [
    path("", runs.run_list, name="runs"),
    path("charts/", overview.charts, name="charts"),
    path("burst/", overview.burst, name="burst"),
    path("new/<int:version_id>/", submit.submit, name="submit"),
    path("<str:run_id>/", run.run_page, name="run"),
    path("<str:run_id>/parts/", run.parts, name="parts"),
    path("<str:run_id>/output/", run.output, name="output"),
    path("<str:run_id>/cancel/", run.cancel, name="cancel"),
    path("<str:run_id>/again/", run.again, name="again"),
    path("<str:run_id>/nodes/<str:node>/", run.node, name="node"),
    path("<str:run_id>/nodes/<str:node>/output/<int:attempt>/", run.node_output, name="node-output"),
    path("<str:run_id>/switches/<int:seq>/", switches.decision, name="switch"),
]
