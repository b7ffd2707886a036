"""People, tokens and the audit trail in the admin; everything wears unfold, Django's and axes' own models too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from axes.models import AccessAttempt, AccessAttemptExpiration, AccessFailureLog, AccessLog
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from dyserve_site.models import ApiToken
from dyserve_site.tokens import create_token, revoke_token
from fleet.common.admin import Admin, ReadOnlyAdmin, RowForm
from fleet.common.scopes import ALL_SCOPES
from fleet.services import audit

if TYPE_CHECKING:
    UnfoldAdmin = object
    BaseUserAdmin = DjangoUserAdmin[User]
else:
    from unfold.admin import ModelAdmin as UnfoldAdmin

    BaseUserAdmin = DjangoUserAdmin

for _model in (User, Group, AccessAttempt, AccessLog, AccessFailureLog):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


@admin.register(User)
class UserAdmin(BaseUserAdmin, UnfoldAdmin):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, UnfoldAdmin):
    pass


class ApiTokenForm(RowForm[ApiToken]):
    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in sorted(ALL_SCOPES)], widget=forms.CheckboxSelectMultiple
    )

    class Meta:
        model = ApiToken
        fields = ("owner", "name", "scopes", "expires_at")


@admin.register(ApiToken)
class ApiTokenAdmin(Admin[ApiToken]):
    """The secret is shown once, right after the token was made; its digest never is."""

    form = ApiTokenForm
    list_display = ("name", "prefix", "owner", "scopes", "expires_at", "revoked_at", "last_used_at")
    list_filter = ("revoked_at", "expires_at")
    list_select_related = ("owner",)
    search_fields = ("name", "prefix", "owner__username")
    autocomplete_fields = ("owner",)
    actions = ("revoke",)
    shown = ("owner", "name", "prefix", "scopes", "expires_at", "revoked_at", "last_used_at", "created_at")

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> tuple[str, ...]:
        return ("owner", "name", "scopes", "expires_at") if obj is None else self.shown

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The list keeps the permission, which its action needs; a token cannot be edited, only revoked."""
        return obj is None and super().has_change_permission(request)

    def save_model(self, request: HttpRequest, obj: ApiToken, form: Any, change: bool) -> None:
        """Only adding gets here. A token acts as its owner, so only a superuser makes one for somebody else."""
        if obj.owner_id != request.user.pk and not request.user.is_superuser:
            raise PermissionDenied("only a superuser makes tokens for others")
        made, plain = create_token(obj.owner, obj.name, form.cleaned_data["scopes"], obj.expires_at)
        obj.pk = made.pk
        obj.refresh_from_db()
        self.message_user(request, f"Copy this token now, it is not shown again: {plain}", messages.WARNING)

    @admin.action(description="Revoke", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        for token in queryset:
            revoke_token(token)
            audit(request.user, token, "Revoked.")  # type: ignore[arg-type]  # the admin lets no anonymous user in
        self.message_user(request, "Revoked.", messages.SUCCESS)


@admin.register(LogEntry)
class LogEntryAdmin(ReadOnlyAdmin[LogEntry]):
    """The audit trail: who changed what in the admin, on the pages and through the API."""

    list_display = ("action_time", "user", "content_type", "object_repr", "action_flag", "change_message")
    list_filter = ("action_flag", "content_type", "action_time")
    list_select_related = ("user", "content_type")
    search_fields = ("object_repr", "change_message", "user__username")


class AccessAdmin(ReadOnlyAdmin[Any]):
    """What axes wrote down about logins; deleting an attempt lifts its lock."""

    list_filter = ("attempt_time",)
    search_fields = ("ip_address", "username", "path_info")


@admin.register(AccessAttempt)
class AccessAttemptAdmin(AccessAdmin):
    list_display = ("attempt_time", "username", "ip_address", "failures_since_start", "path_info")
    # Query and form data of a failed login may hold what somebody typed by mistake.
    exclude = ("get_data", "post_data")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return Admin.has_delete_permission(self, request, obj)


@admin.register(AccessLog)
class AccessLogAdmin(AccessAdmin):
    list_display = ("attempt_time", "logout_time", "username", "ip_address", "path_info")


@admin.register(AccessFailureLog)
class AccessFailureLogAdmin(AccessAdmin):
    list_display = ("attempt_time", "username", "ip_address", "locked_out", "path_info")


@admin.register(AccessAttemptExpiration)
class AccessAttemptExpirationAdmin(ReadOnlyAdmin[AccessAttemptExpiration]):
    list_display = ("access_attempt", "expires_at")
