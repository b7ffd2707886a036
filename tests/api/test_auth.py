from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from dyserve_site import tokens
from dyserve_site.models import ApiToken
from dyserve_site.tokens import authenticate_token, create_token
from fleet.common.scopes import Scope
from tests.api.conftest import Person, person
from tests.api.routes import ROUTES, Route
from tests.api.samples import DOCUMENT, Caller, problem


@pytest.mark.parametrize("route", ROUTES, ids=str)
@pytest.mark.django_db
def test_every_route_asks_who_is_calling(route: Route) -> None:
    response = Caller().request(route.method, route.filled())
    problem(response, 401)
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    problem(Caller("dys_nobody_nothing").request(route.method, route.filled()), 401)


@pytest.mark.parametrize("route", ROUTES, ids=str)
@pytest.mark.django_db
def test_every_route_asks_for_its_scope(route: Route) -> None:
    assert route.scope is not None, "the view is not marked with @requires"
    others = set(Scope) - {route.scope, Scope.ADMIN}
    caller = person("ann", *others)
    body = {"document": DOCUMENT} if route.method == "POST" else None
    response = caller.api.request(route.method, route.filled(), body)
    # A body that does not fit is refused first, and tells nothing of what there is.
    problem(response, 422 if route.path.endswith((":upload", "/tokens")) and route.method == "POST" else 403)


def test_writing_and_reading_have_scopes_of_their_own() -> None:
    for route in ROUTES:
        reads = route.method == "GET"
        assert route.scope in {Scope.ADMIN, *(s for s in Scope if s.endswith(":read" if reads else ":write"))}


def test_a_browser_reads_with_its_session_and_writes_with_a_csrf_token(ann: Person) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(ann.user)
    assert browser.get("/api/v1/workflows").status_code == 200
    body = {"document": DOCUMENT}
    refused = browser.post("/api/v1/workflows", body, content_type="application/json")
    problem(refused, 403)
    browser.get("/api/v1/docs")
    token = browser.cookies[settings.CSRF_COOKIE_NAME].value
    stored = browser.post("/api/v1/workflows", body, content_type="application/json", headers={"X-CSRFToken": token})
    assert stored.status_code == 201


def test_a_bad_token_never_falls_back_to_the_session(ann: Person) -> None:
    browser = Client()
    browser.force_login(ann.user)
    for header in ("Bearer dys_a_b", "Bearer ", "Basic YTpi", "dys_a_b"):
        problem(browser.get("/api/v1/workflows", headers={"Authorization": header}), 401)


def test_a_blocked_user_has_no_way_in(ann: Person) -> None:
    browser = Client()
    browser.force_login(ann.user)
    ann.user.is_active = False
    ann.user.save()
    problem(browser.get("/api/v1/workflows"), 401)
    problem(ann.api.get("/workflows"), 401)


# --- Tokens over the API ---------------------------------------------------------------------------------------------


def test_tokens_are_made_listed_and_revoked(ann: Person) -> None:
    made = ann.api.post("/tokens", {"name": "ci", "scopes": ["runs:read"], "expires_in_days": 7})
    assert made.status_code == 201
    plain, details = made.json()["token"], made.json()["details"]
    assert Caller(plain).get("/runs").status_code == 200
    listed = ann.api.get("/tokens").json()["items"]
    assert [token["name"] for token in listed] == ["ci", "test"]
    assert plain not in str(listed)
    assert ann.api.delete(f"/tokens/{details['id']}").status_code == 204
    problem(Caller(plain).get("/runs"), 401)
    assert ann.api.get("/tokens").json()["items"][0]["revoked_at"] is not None


def test_a_token_expires(ann: Person) -> None:
    plain = ann.api.post("/tokens", {"name": "ci", "scopes": ["runs:read"], "expires_in_days": 7}).json()["token"]
    assert authenticate_token(plain, timezone.now() + timedelta(days=8)) is None


@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "scopes": ["runs:read"]},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["moon"]},
        {"name": "x" * 101, "scopes": ["runs:read"]},
        {"name": "x", "scopes": ["runs:read"], "expires_in_days": 0},
        {"name": "x"},
    ],
)
def test_a_bad_token_request_makes_none(ann: Person, body: object) -> None:
    assert problem(ann.api.post("/tokens", body), 422)["errors"]
    assert ApiToken.objects.count() == 1


def test_only_an_admin_token_makes_tokens(ann: Person) -> None:
    weak = create_token(ann.user, "weak", set(Scope) - {Scope.ADMIN})[1]
    problem(Caller(weak).post("/tokens", {"name": "x", "scopes": ["runs:read"]}), 403)


def test_a_user_has_only_so_many_tokens(ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 2)
    body = {"name": "ci", "scopes": ["runs:read"]}
    made = ann.api.post("/tokens", body).json()["details"]["id"]
    assert problem(ann.api.post("/tokens", body), 409)["code"] == "too_many_tokens"
    ann.api.delete(f"/tokens/{made}")
    assert ann.api.post("/tokens", body).status_code == 201
