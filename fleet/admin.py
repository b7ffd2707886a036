"""The fleet in the admin: model classes, backends, replicas with their actions, rates that are never overwritten."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from fleet.common.admin import Admin, ReadOnlyAdmin, RowForm
from fleet.models import Backend, Fleet, ModelClass, PressureSample, RatesVersion, Replica
from fleet.probe import probe_replica
from fleet.selectors import rates_value
from fleet.services import activate_rates, check_address, record_rates, set_replica_state


@admin.register(ModelClass)
class ModelClassAdmin(Admin[ModelClass]):
    list_display = ("name", "size_rank", "parameters_b", "context_tokens", "price_in", "price_out", "reasoning")
    list_filter = ("reasoning",)
    search_fields = ("name",)


@admin.register(Fleet)
class FleetAdmin(Admin[Fleet]):
    list_display = ("name", "owner", "is_default", "backend_count", "created_at")
    list_filter = ("is_default",)
    search_fields = ("name",)
    autocomplete_fields = ("owner",)
    readonly_fields = ("created_at",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Fleet]:
        return super().get_queryset(request).select_related("owner").annotate(backends_found=Count("backends"))

    @admin.display(description="backends")
    def backend_count(self, fleet: Fleet) -> int:
        return fleet.backends.count() if not hasattr(fleet, "backends_found") else fleet.backends_found


@admin.register(Backend)
class BackendAdmin(Admin[Backend]):
    list_display = ("name", "fleet", "model_class", "hardware", "max_num_seqs", "emulated", "enabled")
    list_filter = ("fleet", "model_class", "hardware", "emulated", "enabled")
    list_select_related = ("fleet", "model_class")
    search_fields = ("name", "served_name")
    autocomplete_fields = ("fleet", "model_class")


class ReplicaForm(RowForm[Replica]):
    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"].rstrip("/")
        for message in check_address(url).get("url", []):
            raise ValidationError(message)
        return url


@admin.register(Replica)
class ReplicaAdmin(Admin[Replica]):
    form = ReplicaForm
    list_display = ("name", "backend", "url", "state", "api_key_env", "created_at")
    list_filter = ("state", "backend", "backend__model_class")
    list_select_related = ("backend",)
    search_fields = ("name", "url")
    fields = ("backend", "name", "url", "api_key_env", "state")
    autocomplete_fields = ("backend",)
    actions = ("probe", "drain", "enable", "disable")

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """An address without a scheme means http: most replicas live on a private network."""
        if db_field.name == "url":
            kwargs["assume_scheme"] = "http"
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    @admin.action(description="Probe now", permissions=["view"])
    def probe(self, request: HttpRequest, queryset: QuerySet[Replica]) -> None:
        """Asks each replica for health, models, version and metrics; one message per replica."""
        for replica in queryset.select_related("backend__model_class"):
            result = probe_replica(replica)
            level = messages.SUCCESS if result.ok else messages.ERROR
            self.message_user(request, f"{replica.name}: {result.text}", level)

    @admin.action(description="Drain: no new calls, running ones finish", permissions=["change"])
    def drain(self, request: HttpRequest, queryset: QuerySet[Replica]) -> None:
        self._set(request, queryset, Replica.State.DRAINING)

    @admin.action(description="Enable", permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Replica]) -> None:
        self._set(request, queryset, Replica.State.ENABLED)

    @admin.action(description="Disable: neither called nor polled", permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Replica]) -> None:
        self._set(request, queryset, Replica.State.DISABLED)

    def _set(self, request: HttpRequest, queryset: QuerySet[Replica], state: Replica.State) -> None:
        names = [set_replica_state(replica, state, request.user).name for replica in queryset]  # type: ignore[arg-type]  # the admin lets no anonymous user in
        self.message_user(request, f"{state.label}: {', '.join(names)}.", messages.SUCCESS)


class RatesForm(RowForm[RatesVersion]):
    def clean(self) -> dict[str, Any]:
        """What the planner's own value refuses is refused here, before it is a row."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                rates_value(RatesVersion(**data))
            except ValueError as error:
                raise ValidationError(str(error)) from error
        return data


@admin.register(RatesVersion)
class RatesVersionAdmin(Admin[RatesVersion]):
    """A calibration is added, never changed: plans name the version they were made with."""

    form = RatesForm
    list_display = (
        "backend",
        "version",
        "active",
        "source",
        "decode_tokens_per_s",
        "prefill_base_s",
        "prefill_per_token_s",
        "concurrency",
        "capacity",
        "time_scale",
        "step_base_s",
        "step_per_sequence_s",
        "created_at",
    )
    list_filter = ("active", "source", "backend")
    list_select_related = ("backend",)
    search_fields = ("backend__name", "note")
    autocomplete_fields = ("backend",)
    actions = ("activate",)
    given = (
        "backend",
        "decode_tokens_per_s",
        "prefill_base_s",
        "prefill_per_token_s",
        "concurrency",
        "capacity",
        "time_scale",
        "step_base_s",
        "step_per_sequence_s",
        "source",
        "note",
    )

    def get_fields(self, request: HttpRequest, obj: RatesVersion | None = None) -> tuple[str, ...]:
        return self.given if obj is None else (*self.given, "version", "active", "created_at")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The list keeps the permission, which its action needs; a row cannot be edited."""
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: RatesVersion, form: Any, change: bool) -> None:
        """Only adding gets here: the new version becomes the active one."""
        saved = record_rates(obj.backend, rates_value(obj), note=obj.note)
        obj.pk, obj.version, obj.active = saved.pk, saved.version, saved.active
        obj.refresh_from_db()

    @admin.action(description="Make active", permissions=["change"])
    def activate(self, request: HttpRequest, queryset: QuerySet[RatesVersion]) -> None:
        chosen = list(queryset.select_related("backend"))
        if len({rates.backend_id for rates in chosen}) < len(chosen):
            self.message_user(request, "Choose one version per backend.", messages.ERROR)
            return
        for rates in chosen:
            activate_rates(rates, request.user)  # type: ignore[arg-type]  # the admin lets no anonymous user in
        self.message_user(request, f"Active: {', '.join(map(str, chosen))}.", messages.SUCCESS)


@admin.register(PressureSample)
class PressureSampleAdmin(ReadOnlyAdmin[PressureSample]):
    list_display = ("at", "fleet", "model", "state", "load", "outstanding", "planned", "capacity")
    list_filter = ("fleet", "model", "state")
    list_select_related = ("fleet",)
    ordering = ("-at",)
    show_full_result_count = False
