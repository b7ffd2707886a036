from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone

from dyserve_site.models import ApiToken
from dyserve_site.tokens import authenticate_token, create_token
from fleet.common.scopes import Scope

PASSWORD = "a long enough password"
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def _static_root() -> None:
    """WhiteNoise warns about a missing folder, and warnings are errors."""
    Path(settings.STATIC_ROOT).mkdir(exist_ok=True)


@pytest.fixture
def ann(db: None) -> User:
    return User.objects.create_user("ann", password=PASSWORD)


@pytest.fixture
def browser(ann: User) -> Client:
    client = Client()
    client.force_login(ann)
    return client


def _sign_in(client: Client, username: str, password: str) -> tuple[int, str]:
    response = client.post("/login/", {"username": username, "password": password})
    return response.status_code, response.content.decode()


def test_signing_in_leads_to_where_one_was_going(client: Client, ann: User) -> None:
    data = {"username": "ann", "password": PASSWORD, "next": "/profiles/"}

    assert client.post("/login/", data).headers["Location"] == "/profiles/"


def test_signing_in_never_leaves_the_site(client: Client, ann: User) -> None:
    data = {"username": "ann", "password": PASSWORD, "next": "https://elsewhere.example/"}

    assert client.post("/login/", data).headers["Location"] == "/"


def test_a_wrong_name_and_a_wrong_password_look_the_same(client: Client, ann: User) -> None:
    known = _sign_in(client, "ann", "wrong")[1]
    unknown = _sign_in(client, "bob", "wrong")[1]

    assert "The user name or the password is wrong." in known
    hide = [('value="ann"', ""), ('value="bob"', "")]
    for old, new in hide:
        known, unknown = known.replace(old, new), unknown.replace(old, new)
    assert _without_token(known) == _without_token(unknown)


def _without_token(html: str) -> list[str]:
    return [line for line in html.splitlines() if "csrfmiddlewaretoken" not in line]


@pytest.mark.parametrize("username", ["ann", "nobody"])
def test_too_many_attempts_lock_known_and_unknown_names_alike(client: Client, ann: User, username: str) -> None:
    for _ in range(settings.AXES_FAILURE_LIMIT):
        status, html = _sign_in(client, username, "wrong")

    assert status == 429
    assert "Too many attempts to sign in" in html
    assert _sign_in(client, username, PASSWORD)[0] == 429


def test_signing_out_needs_a_post(browser: Client) -> None:
    assert browser.get("/logout/").status_code == 405
    assert browser.post("/logout/").headers["Location"] == "/login/"
    assert browser.get("/account/").status_code == 302


def test_a_new_token_is_shown_once_and_works(browser: Client, ann: User) -> None:
    data = {"name": "nightly", "scopes": ["runs:read", "runs:write"], "lifetime": "30"}
    html = browser.post("/account/tokens/", data).content.decode()

    plain = html.split('<code id="new-token">')[1].split("<")[0]
    principal = authenticate_token(plain, timezone.now())
    assert principal is not None
    assert (principal.user, principal.scopes) == (ann, frozenset({Scope.RUNS_READ, Scope.RUNS_WRITE}))
    assert plain not in browser.get("/account/").content.decode()
    token = ApiToken.objects.get()
    assert token.expires_at is not None
    assert (token.expires_at - timezone.now()).days in (29, 30)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": " "}, "Give the token a name"),
        ({"name": "x" * 101}, "too long"),
        ({"scopes": []}, "at least one scope"),
        ({"scopes": ["everything"]}, "at least one scope"),
        ({"lifetime": "1000"}, "offered lifetimes"),
    ],
)
def test_a_token_that_cannot_be_is_refused_in_words(browser: Client, changes: dict[str, object], words: str) -> None:
    data = {"name": "nightly", "scopes": ["runs:read"], "lifetime": "30", **changes}

    assert words in browser.post("/account/tokens/", data).content.decode()
    assert not ApiToken.objects.exists()


def test_a_revoked_token_is_refused_and_stays_listed(browser: Client, ann: User) -> None:
    token, plain = create_token(ann, HOSTILE, [Scope.RUNS_READ])

    html = browser.post(f"/account/tokens/{token.pk}/revoke/").content.decode()

    assert authenticate_token(plain, timezone.now()) is None
    assert "revoked" in html
    assert "<img" not in html


def test_somebody_elses_token_does_not_exist(browser: Client) -> None:
    token, plain = create_token(User.objects.create_user("bob"), "his", [Scope.RUNS_READ])

    assert browser.post(f"/account/tokens/{token.pk}/revoke/").status_code == 404
    assert authenticate_token(plain, timezone.now()) is not None
    assert "No tokens yet" in browser.get("/account/").content.decode()


def test_an_unknown_address_has_a_page_that_tells_nothing(client: Client, db: None) -> None:
    response = client.get("/nothing/<b>/")

    assert response.status_code == 404
    assert "There is nothing here" in response.content.decode()
    assert "urlpatterns" not in response.content.decode()


@pytest.mark.parametrize("name", ["400", "403", "404", "500", "403_csrf"])
def test_error_pages_need_no_context(name: str) -> None:
    assert "dyserve" in render_to_string(f"{name}.html", {})


def test_a_form_without_its_token_is_refused_in_words(ann: User) -> None:
    client = Client(enforce_csrf_checks=True)

    response = client.post("/login/", {"username": "ann", "password": PASSWORD})

    assert response.status_code == 403
    assert "This form has expired" in response.content.decode()
