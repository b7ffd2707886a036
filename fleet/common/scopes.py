"""Who calls the API and what they may do there."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeVar, cast

from django.contrib.auth.models import User
from django.http import HttpRequest

from fleet.common.problems import forbidden

View = TypeVar("View", bound=Callable[..., Any])


class Scope(StrEnum):
    WORKFLOWS_READ = "workflows:read"
    WORKFLOWS_WRITE = "workflows:write"
    RUNS_READ = "runs:read"
    RUNS_WRITE = "runs:write"
    FLEET_READ = "fleet:read"
    FLEET_WRITE = "fleet:write"
    ADMIN = "admin"
    """Everything that the token's owner may do, tokens included."""


ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller. A browser's session holds every scope; a token the ones it was made with."""

    user: User
    scopes: frozenset[Scope]
    kind: Literal["session", "token"]
    token_id: int | None = None

    def allows(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes


def principal(request: HttpRequest) -> Principal:
    """The caller of an API view: authentication ran before it and put the value here."""
    return cast(Principal, request.auth)  # type: ignore[attr-defined]  # django-ninja's own attribute


def caller(request: HttpRequest) -> User:
    return principal(request).user


def requires(scope: Scope) -> Callable[[View], View]:
    """Marks an API view with the scope it needs and enforces it. Every route carries this mark; a test looks."""

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            _check(request, scope)
            return view(request, *args, **kwargs)

        @functools.wraps(view)
        async def checked_later(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            _check(request, scope)
            return await view(request, *args, **kwargs)

        wrapped: Any = checked_later if inspect.iscoroutinefunction(view) else checked
        wrapped.required_scope = scope
        # django-ninja would look the annotations up in this module: they are resolved in the view's own.
        wrapped.__signature__ = inspect.signature(view, eval_str=True)
        return cast(View, wrapped)

    return decorate


def _check(request: HttpRequest, scope: Scope) -> None:
    if not principal(request).allows(scope):
        raise forbidden(f"This token lacks the scope {scope}.")
