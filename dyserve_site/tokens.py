"""API tokens `dys_<prefix>_<secret>` and the two ways into the API: a bearer token, or a browser's session with CSRF.

The secret holds 256 random bits, so a plain SHA-256 is a safe digest and guessing needs no throttle.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from ninja.security import HttpBearer, SessionAuth

from dyserve_site.models import ApiToken
from fleet.common.problems import ApiProblem, unauthorized
from fleet.common.scopes import ALL_SCOPES, Principal, Scope

PREFIX_CHARACTERS = 10
MAX_TOKENS = 100
"""Tokens that one user may have at a time, revoked ones apart."""
USED_RESOLUTION = timedelta(minutes=1)
_NO_DIGEST = "0" * 64


def create_token(
    owner: User, name: str, scopes: Iterable[Scope], expires: datetime | None = None
) -> tuple[ApiToken, str]:
    """The stored token and its plain text, which is known here only and never again."""
    prefix = secrets.token_hex(PREFIX_CHARACTERS // 2)
    secret = secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        owner=owner,
        name=name,
        prefix=prefix,
        digest=_digest(secret),
        scopes=sorted(set(scopes)),
        expires_at=expires,
    )
    return token, f"dys_{prefix}_{secret}"


def has_room(owner: User) -> bool:
    """Whether the owner may make one more."""
    return ApiToken.objects.filter(owner_id=owner.pk, revoked_at=None).count() < MAX_TOKENS


def revoke_token(token: ApiToken) -> None:
    ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now())


def authenticate_token(plain: str, now: datetime) -> Principal | None:
    """Whose token this is and what it may do; None for one that is unknown, expired, revoked, or of a blocked user."""
    mark, _, rest = plain.partition("_")
    prefix, _, secret = rest.partition("_")
    token = _find(prefix) if mark == "dys" else None
    # Compared even when there is no such token, so that the time tells nothing about prefixes.
    matches = hmac.compare_digest(_digest(secret), token.digest if token else _NO_DIGEST)
    if token is None or not matches or not _usable(token, now):
        return None
    _note_use(token, now)
    scopes = frozenset(Scope(scope) for scope in token.scopes if scope in ALL_SCOPES)
    return Principal(user=token.owner, scopes=scopes, kind="token", token_id=token.pk)


def _find(prefix: str) -> ApiToken | None:
    if not (prefix.isascii() and prefix.isalnum()):
        return None
    return ApiToken.objects.select_related("owner").filter(prefix=prefix).first()


def _usable(token: ApiToken, now: datetime) -> bool:
    expired = token.expires_at is not None and token.expires_at <= now
    return token.revoked_at is None and not expired and token.owner.is_active


def _note_use(token: ApiToken, now: datetime) -> None:
    """At most one write a minute and token."""
    if token.last_used_at is not None and now - token.last_used_at < USED_RESOLUTION:
        return
    stale = Q(last_used_at=None) | Q(last_used_at__lte=now - USED_RESOLUTION)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class TokenAuth(HttpBearer):
    """A bearer token. One that is not valid ends here: it never falls back to a session."""

    def authenticate(self, request: HttpRequest, token: str) -> Principal:
        found = authenticate_token(token, timezone.now())
        if found is None:
            raise unauthorized("This token is unknown, expired or revoked.")
        return found


class BrowserAuth(SessionAuth):
    """A logged-in browser. Unsafe methods need the CSRF token in `X-CSRFToken`."""

    def __call__(self, request: HttpRequest) -> Principal | None:
        if not request.user.is_authenticated or not request.user.is_active:
            return None
        if request.headers.get("Authorization"):
            raise unauthorized("Send the token as `Authorization: Bearer <token>`.")
        super().__call__(request)
        return Principal(user=request.user, scopes=ALL_SCOPES, kind="session")


def bearer(request: HttpRequest) -> Principal | None:
    """The caller of a plain Django view by its bearer token; None without a valid one."""
    try:
        return TokenAuth()(request) or None
    except ApiProblem:
        return None
