"""Every address of the site; each app names its own."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path

from dyserve_site import api, health, views
from dyserve_site.metrics import metrics
from runtime.views import overview

admin.autodiscover()

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/v1/", api.urls),
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("login/", views.SignIn.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("account/", views.account, name="account"),
    path("account/tokens/", views.create, name="create-token"),
    path("account/tokens/<int:token_id>/revoke/", views.revoke, name="revoke-token"),
    path("", overview.home, name="home"),
    path("runs/", include("runtime.urls")),
    path("fleet/", include("fleet.urls")),
    path("", include("planner.urls")),
]

handler400 = api.bad_request
