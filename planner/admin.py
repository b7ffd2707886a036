"""Workflows, profiles and plans in the admin. Versions, profiles and plans are immutable: to look at."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from fleet.common.admin import Admin, ReadOnlyAdmin
from fleet.services import audit
from planner.models import PlanBundle, PlanVariant, ProfileVersion, RefusedPlan, Workflow, WorkflowVersion
from planner.services import activate_profiles


@admin.register(Workflow)
class WorkflowAdmin(Admin[Workflow]):
    """Content comes by upload; here a workflow is renamed, archived or handed to another owner."""

    list_display = ("name", "owner", "version_count", "archived", "created_at")
    list_filter = ("archived", "created_at")
    list_select_related = ("owner",)
    search_fields = ("name", "slug", "owner__username")
    autocomplete_fields = ("owner",)
    readonly_fields = ("slug", "created_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Workflow]:
        return super().get_queryset(request).annotate(versions_found=Count("versions"))

    @admin.display(description="versions", ordering="versions_found")
    def version_count(self, workflow: Any) -> int:
        return int(workflow.versions_found)


@admin.register(WorkflowVersion)
class WorkflowVersionAdmin(ReadOnlyAdmin[WorkflowVersion]):
    list_display = ("id", "workflow", "number", "owner", "source_format", "node_count", "created_at")
    list_filter = ("source_format", "created_at")
    list_select_related = ("workflow", "owner")
    search_fields = ("workflow__name", "digest", "source_name")
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkflowVersion]:
        """A list of a hundred rows must not load a hundred uploads of up to 1 MB."""
        return super().get_queryset(request).defer("document", "source", "notes")


@admin.register(ProfileVersion)
class ProfileVersionAdmin(ReadOnlyAdmin[ProfileVersion]):
    list_display = ("name", "version", "active", "illustrative", "digest", "created_at")
    list_filter = ("active", "illustrative")
    search_fields = ("name", "digest")
    # The document holds hundreds of profiles: the profiles page shows it, a form does not.
    exclude = ("document",)
    actions = ("activate",)

    def has_activate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("planner.change_profileversion")

    @admin.action(description="Make active: new plans use this version", permissions=["activate"])
    def activate(self, request: HttpRequest, queryset: QuerySet[ProfileVersion]) -> None:
        chosen = list(queryset)
        if len(chosen) != 1:
            self.message_user(request, "Choose exactly one version.", messages.ERROR)
            return
        activate_profiles(chosen[0])
        audit(request.user, chosen[0], "Made active.")  # type: ignore[arg-type]  # the admin lets no anonymous user in
        self.message_user(request, f"{chosen[0]} is active.", messages.SUCCESS)


@admin.register(PlanBundle)
class PlanBundleAdmin(ReadOnlyAdmin[PlanBundle]):
    list_display = ("__str__", "fleet", "state", "kind", "levels", "effort", "hits", "created_at", "ready_at")
    list_filter = ("state", "kind", "fleet", "created_at")
    list_select_related = ("fleet",)
    search_fields = ("key",)
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[PlanBundle]:
        return super().get_queryset(request).defer("request")


@admin.register(PlanVariant)
class PlanVariantAdmin(ReadOnlyAdmin[PlanVariant]):
    list_display = (
        "bundle",
        "index",
        "level",
        "dominant_model",
        "estimated_quality",
        "makespan_s",
        "cost",
        "solver",
        "solve_s",
        "gap",
    )
    list_filter = ("dominant_model", "solver", "level")
    list_select_related = ("bundle",)
    search_fields = ("bundle__key", "digest")
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[PlanVariant]:
        return super().get_queryset(request).defer("plan", "bundle__request")


@admin.register(RefusedPlan)
class RefusedPlanAdmin(ReadOnlyAdmin[RefusedPlan]):
    list_display = ("__str__", "fleet", "discrepancies", "times", "last_at")
    list_filter = ("fleet", "last_at")
    list_select_related = ("fleet",)
    search_fields = ("key",)
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[RefusedPlan]:
        return super().get_queryset(request).defer("request", "plan")
