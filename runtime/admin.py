"""Runs in the admin: engine rows to look at, and the settings of the switching rule to change."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import F, QuerySet
from django.http import HttpRequest

from fleet.common.admin import Admin, ReadOnlyAdmin, RowForm
from runtime.models import Call, ControllerSettings, IdempotencyKey, Invocation, LedgerEntry, Run, RunEvent


class ControllerSettingsForm(RowForm[ControllerSettings]):
    class Meta:
        model = ControllerSettings
        fields = (
            "fleet",
            "controller",
            "high",
            "low",
            "ratio",
            "dwell_s",
            "drop_absolute",
            "drop_relative",
            "count_planned",
        )

    def clean(self) -> dict[str, Any]:
        """The two marks must leave a band between them, or runs would switch to and fro."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        low, high = data.get("low"), data.get("high")
        if low is not None and high is not None and low >= high:
            self.add_error("low", f"must lie below high ({high:g})")
        return data


@admin.register(ControllerSettings)
class ControllerSettingsAdmin(Admin[ControllerSettings]):
    form = ControllerSettingsForm
    list_display = ("fleet", "controller", "high", "low", "ratio", "dwell_s", "drop_absolute", "drop_relative")
    list_filter = ("controller",)
    list_select_related = ("fleet",)
    search_fields = ("fleet__name",)
    autocomplete_fields = ("fleet",)


class EngineAdmin(ReadOnlyAdmin[Any]):
    """Many rows with large columns: lists are cut to pages, load no texts and do not count everything.

    They show `run_id`, not `run`: Django would join the run, and its version with the uploaded document.
    """

    show_full_result_count = False
    list_per_page = 50
    large: tuple[str, ...] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.defer(*self.large)


@admin.register(Run)
class RunAdmin(EngineAdmin):
    large = ("inputs", "output", "error")
    list_display = (
        "id",
        "owner",
        "workflow",
        "state",
        "late",
        "nodes_done",
        "nodes_total",
        "switches",
        "calls",
        "accepted_at",
    )
    list_filter = ("state", "late", "fleet", "source", "accepted_at")
    list_select_related = ("owner",)
    search_fields = ("id", "owner__username", "version__workflow__name")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).annotate(workflow_found=F("version__workflow__name"))
        return rows

    @admin.display(ordering="workflow_found")
    def workflow(self, run: Any) -> str:
        return run.workflow_found or "inline"


@admin.register(RunEvent)
class RunEventAdmin(EngineAdmin):
    large = ("data",)
    list_display = ("run_id", "seq", "kind", "at")
    list_filter = ("kind",)
    search_fields = ("run__id",)
    ordering = ("-id",)


@admin.register(Invocation)
class InvocationAdmin(EngineAdmin):
    large = ("arguments", "output", "error")
    list_display = ("run_id", "node", "attempt", "kind", "state", "variant", "calls", "dispatched_at", "finished_at")
    list_filter = ("state", "kind")
    search_fields = ("run__id", "node")
    ordering = ("-id",)


@admin.register(Call)
class CallAdmin(EngineAdmin):
    large = ("messages", "text", "reasoning")
    list_display = (
        "run_id",
        "node",
        "attempt",
        "role",
        "model",
        "replica",
        "prompt_tokens",
        "output_tokens",
        "tries",
        "error",
    )
    list_filter = ("model", "replica", "role", "finish_reason")
    search_fields = ("run__id", "node", "request_id")
    ordering = ("-id",)


@admin.register(LedgerEntry)
class LedgerEntryAdmin(EngineAdmin):
    large = ("loads", "thresholds", "candidates", "changed", "kept")
    list_display = ("run_id", "seq", "at", "active_variant", "to_variant", "reason")
    list_filter = ("reason",)
    search_fields = ("run__id", "text")
    ordering = ("-id",)


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(EngineAdmin):
    list_display = ("key", "owner", "run_id", "created_at")
    list_select_related = ("owner",)
    search_fields = ("key", "run__id")
