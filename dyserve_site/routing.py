"""Addresses of the WebSockets."""

from __future__ import annotations

from django.urls import path, re_path

from fleet.common.sockets import UnknownConsumer
from fleet.consumers import FleetConsumer
from runtime.consumers import OverviewConsumer, RunConsumer

websocket_urlpatterns = [
    re_path(r"^ws/runs/(?P<run_id>[0-9a-z_]{1,32})/$", RunConsumer.as_asgi()),
    path("ws/overview/", OverviewConsumer.as_asgi()),
    path("ws/fleet/", FleetConsumer.as_asgi()),
    re_path("", UnknownConsumer.as_asgi()),
]
