"""Signing in and out, and a user's own account with its API tokens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db.models import F
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from dyserve_site.models import ApiToken
from dyserve_site.tokens import MAX_TOKENS, create_token, has_room, revoke_token
from fleet.common.scopes import ALL_SCOPES, Scope

NAME_CHARACTERS = 100
LIFETIMES_DAYS = {"7": 7, "30": 30, "90": 90, "365": 365, "never": None}
SCOPE_WORDS = {
    Scope.WORKFLOWS_READ: "read workflows and plans",
    Scope.WORKFLOWS_WRITE: "upload workflows",
    Scope.RUNS_READ: "read runs",
    Scope.RUNS_WRITE: "start and cancel runs",
    Scope.FLEET_READ: "read fleet and pressure",
    Scope.FLEET_WRITE: "drain and enable replicas",
    Scope.ADMIN: "everything you may do, tokens included",
}
DEFAULT_SCOPES = frozenset({Scope.WORKFLOWS_READ, Scope.WORKFLOWS_WRITE, Scope.RUNS_READ, Scope.RUNS_WRITE})


class SignIn(auth_views.LoginView):
    template_name = "accounts/login.html"
    redirect_authenticated_user = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeChoice:
    value: str
    words: str
    checked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    token: ApiToken
    state: str
    """`enabled`, or `disabled` with the reason in `word`."""
    word: str


@login_required
@never_cache
@require_GET
def account(request: HttpRequest) -> HttpResponse:
    return render(request, "accounts/account.html", _tokens(request))


@login_required
@never_cache
@require_POST
def create(request: HttpRequest) -> HttpResponse:
    """Makes a token; the fragment shows its plain text, this once."""
    name = request.POST.get("name", "").replace("\x00", "").strip()
    scopes = [Scope(value) for value in request.POST.getlist("scopes") if value in set(ALL_SCOPES)]
    lifetime = request.POST.get("lifetime", "90")
    error = _creation_error(request, name, scopes, lifetime)
    if error:
        context = _tokens(request, name=name, chosen=frozenset(scopes), lifetime=lifetime)
        return render(request, "accounts/_tokens.html", {**context, "error": error})
    days = LIFETIMES_DAYS[lifetime]
    expires = timezone.now() + timedelta(days=days) if days else None
    token, plain = create_token(_user(request), name, scopes, expires)
    return render(request, "accounts/_tokens.html", {**_tokens(request), "created": token, "plain": plain})


@login_required
@require_POST
def revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    token = ApiToken.objects.filter(owner_id=_user(request).pk, pk=token_id).first()
    if token is None:
        raise Http404("There is no such token.")
    revoke_token(token)
    return render(request, "accounts/_tokens.html", {**_tokens(request), "revoked": token})


def _user(request: HttpRequest) -> User:
    return cast(User, request.user)


def _creation_error(request: HttpRequest, name: str, scopes: list[Scope], lifetime: str) -> str:
    if not name:
        return "Give the token a name, so that you know later where it is used."
    if len(name) > NAME_CHARACTERS:
        return f"The name is too long: at most {NAME_CHARACTERS} characters."
    if not scopes:
        return "Choose at least one scope."
    if lifetime not in LIFETIMES_DAYS:
        return "Choose one of the offered lifetimes."
    if not has_room(_user(request)):
        return f"You have {MAX_TOKENS} tokens: revoke one that is no longer used."
    return ""


def _tokens(
    request: HttpRequest, *, name: str = "", chosen: frozenset[Scope] = DEFAULT_SCOPES, lifetime: str = "90"
) -> dict[str, Any]:
    now = timezone.now()
    # Usable ones first: databases disagree about where nothing sorts.
    order = F("revoked_at").desc(nulls_first=True)
    found = ApiToken.objects.filter(owner_id=_user(request).pk).order_by(order, "-pk")[: 2 * MAX_TOKENS]
    return {
        "tokens": [_row(token, expired=bool(token.expires_at and token.expires_at <= now)) for token in found],
        "scopes": [ScopeChoice(value=s.value, words=words, checked=s in chosen) for s, words in SCOPE_WORDS.items()],
        "lifetimes": [(value, f"{days} days" if days else "never expires") for value, days in LIFETIMES_DAYS.items()],
        "lifetime": lifetime,
        "name": name,
    }


def _row(token: ApiToken, *, expired: bool) -> TokenRow:
    if token.revoked_at:
        return TokenRow(token=token, state="disabled", word="revoked")
    return TokenRow(token=token, state="disabled" if expired else "enabled", word="expired" if expired else "active")
