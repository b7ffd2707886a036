"""The fleet's page."""

from __future__ import annotations

from django.urls import path

from fleet import views

app_name = "fleet"
urlpatterns = [
    path("", views.fleet_page, name="fleet"),
    path("charts/", views.charts, name="charts"),
    path("replicas/<str:name>/state/", views.set_state, name="state"),
]
