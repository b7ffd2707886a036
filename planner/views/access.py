"""Whose rows a page may show."""

from __future__ import annotations

from typing import cast

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest

from fleet.common.access import may_use
from planner.models import PlanBundle, WorkflowVersion


def signed_in(request: HttpRequest) -> User:
    """The user of a view behind `login_required`."""
    return cast(User, request.user)


def own_version(request: HttpRequest, version_id: int) -> WorkflowVersion:
    """A version of the user's, inline ones included; somebody else's does not exist."""
    versions = WorkflowVersion.objects.select_related("workflow").filter(owner_id=signed_in(request).pk)
    version = versions.filter(pk=version_id).first()
    if version is None:
        raise Http404("There is no such version.")
    return version


def bundle_of(request: HttpRequest, bundle_id: int) -> PlanBundle:
    """Bundles are shared by all versions of one structure, but a plan on somebody else's fleet tells of that fleet."""
    bundle = PlanBundle.objects.select_related("fleet").filter(pk=bundle_id).first()
    if bundle is None or not may_use(signed_in(request), bundle.fleet):
        raise Http404("There is no such bundle.")
    return bundle
