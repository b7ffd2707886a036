"""What every admin of dyserve builds on: unfold's class with Django's types, and engine rows that nobody edits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.db.models import Model
from django.http import HttpRequest

__all__ = ["Admin", "ReadOnlyAdmin", "RowForm"]

M = TypeVar("M", bound=Model)

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin as Admin
    from django.forms import ModelForm as RowForm
else:
    # unfold asks that every admin inherits its class; neither it nor Django's forms can be subscripted at run time.
    from django.forms import ModelForm
    from unfold.admin import ModelAdmin

    class Admin(ModelAdmin):
        def __class_getitem__(cls, _: object) -> type:
            return cls

    class RowForm(ModelForm):
        def __class_getitem__(cls, _: object) -> type:
            return cls


class ReadOnlyAdmin(Admin[M], Generic[M]):
    """Rows that services and the engine alone write: to look at, not to add, change or delete."""

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
