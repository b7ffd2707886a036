"""`/api/v1/tokens`: a user's own API tokens. The secret is told once, when it is made."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Router, Schema
from ninja.responses import Status
from pydantic import Field

from dyserve_site.models import ApiToken
from dyserve_site.tokens import MAX_TOKENS, create_token, has_room, revoke_token
from fleet.common.pagination import page
from fleet.common.problems import ApiProblem, forbidden, not_found
from fleet.common.schemas import Body, PageOut, PageQuery
from fleet.common.scopes import Principal, Scope, caller, principal, requires

router = Router(tags=["tokens"])

MAX_ID = 2**63 - 1


class TokenIn(Body):
    name: str = Field(min_length=1, max_length=100)
    scopes: list[Scope] = Field(min_length=1, max_length=20)
    expires_in_days: int | None = Field(None, ge=1, le=3650, description="Never without.")


class TokenOut(Schema):
    id: int
    name: str
    prefix: str
    scopes: list[str]
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute.")
    created_at: datetime

    @classmethod
    def of(cls, row: ApiToken) -> Self:
        return cls(**{name: getattr(row, name) for name in TokenOut.model_fields})


class NewTokenOut(Schema):
    token: str = Field(description="The only time it is told.")
    details: TokenOut


@router.get("/tokens", response=PageOut[TokenOut], summary="Your tokens, newest first")
@requires(Scope.ADMIN)
def list_tokens(request: HttpRequest, query: Query[PageQuery]) -> PageOut[TokenOut]:
    found = page(ApiToken.objects.filter(owner=caller(request)), cursor=query.cursor, limit=query.limit)
    return PageOut(items=[TokenOut.of(row) for row in found.items], next=found.next)


@router.post("/tokens", response={201: NewTokenOut}, summary="Make a token")
@requires(Scope.ADMIN)
def add_token(request: HttpRequest, body: TokenIn) -> Status[NewTokenOut]:
    scopes = _grantable(principal(request), body.scopes)
    if not has_room(caller(request)):
        raise ApiProblem(409, "too_many_tokens", f"You have {MAX_TOKENS} tokens: revoke one that is no longer used.")
    expires = None if body.expires_in_days is None else timezone.now() + timedelta(days=body.expires_in_days)
    token, plain = create_token(caller(request), body.name, scopes, expires)
    return Status(201, NewTokenOut(token=plain, details=TokenOut.of(token)))


@router.delete("/tokens/{token_id}", response={204: None}, summary="Revoke a token")
@requires(Scope.ADMIN)
def delete_token(request: HttpRequest, token_id: int) -> Status[None]:
    """A revoked token stays listed; revoking it again changes nothing."""
    own = ApiToken.objects.filter(owner=caller(request), pk=token_id) if 0 < token_id <= MAX_ID else None
    token = own.first() if own is not None else None
    if token is None:
        raise not_found("token")
    revoke_token(token)
    return Status(204, None)


def _grantable(by: Principal, scopes: list[Scope]) -> list[Scope]:
    """A token hands on no more than it holds."""
    missing = [scope for scope in scopes if not by.allows(scope)]
    if missing:
        raise forbidden(f"This token cannot hand on scopes it lacks: {', '.join(missing)}.")
    return scopes
