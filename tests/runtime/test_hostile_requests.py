"""What SQLite swallows PostgreSQL may refuse: hostile requests to the whole site, on both databases."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection, connections
from django.test import Client

from dyserve_site.env import POOL_TIMEOUT_S
from dyserve_site.tokens import create_token, revoke_token
from fleet.common.scopes import Scope
from fleet.services import seed_demo_fleet
from planner.services import ensure_profiles
from tests.api.samples import DOCUMENT
from tests.runtime.databases import default_database

NAMES = ("a\x00b", "a" * 5000, "\u00e9" * 260)
ADDRESSES = (
    *("/workflows/{}", "/workflows/{}/versions", "/runs/{}", "/runs/{}/nodes", "/plans/{}", "/plans/1-{}"),
    *("/fleet?fleet={}", "/fleet/pressure?fleet={}", "/runs?workflow={}", "/workflows?cursor={}"),
)
PARTS = ("%00", "0" * 5000, "9" * 30, "0" * 25 + "9" * 20, "a" * 5000, "%F0%9F%8C%8A")


@pytest.fixture
def ann(database: str, valkey: str) -> User:
    ensure_profiles()
    seed_demo_fleet(18100, 100.0)
    return User.objects.create_user("ann")


@pytest.fixture
def api(ann: User) -> Client:
    return Client(headers={"Authorization": f"Bearer {create_token(ann, 't', [Scope.ADMIN])[1]}"})


@pytest.fixture
def browser(ann: User) -> Client:
    client = Client()
    client.force_login(ann)
    return client


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_address_of_the_api_is_a_failure(api: Client, address: str) -> None:
    for part in PARTS:
        response = api.get("/api/v1" + address.format(part))
        assert 200 <= response.status_code < 500, (part[:20], response.content)
        assert "json" in response.headers["Content-Type"]


@pytest.mark.parametrize("address", ["/workflows/?q={}", "/runs/?workflow={}", "/runs/{}/", "/workflows/{}/"])
def test_no_address_of_a_page_is_a_failure(browser: Client, address: str) -> None:
    for part in PARTS:
        assert browser.get(address.format(part)).status_code < 500, part[:20]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_breaks_the_login_of_a_stranger(database: str, name: str) -> None:
    for address in ("/login/", "/admin/login/"):
        response = Client().post(address, {"username": name, "password": "wrong"})
        assert response.status_code == 200


@pytest.mark.parametrize("name", NAMES)
def test_no_form_breaks_on_a_name(browser: Client, api: Client, name: str) -> None:
    token = {"name": name, "scopes": ["runs:read"], "lifetime": "90"}
    assert browser.post("/account/tokens/", token).status_code == 200
    document = json.dumps({**DOCUMENT, "name": f"form {len(name)}"})
    assert browser.post("/workflows/upload/", {"text": document, "filename": name}).status_code == 302
    file = SimpleUploadedFile("x.json", json.dumps(DOCUMENT).encode())
    assert api.post("/api/v1/workflows:upload", {"file": file, "name": name}).status_code == 422


def test_usable_tokens_come_before_revoked_ones(browser: Client, ann: User) -> None:
    used, spare = (create_token(ann, name, [Scope.RUNS_READ])[0] for name in ("used", "spare"))
    revoke_token(used)
    rows = browser.get("/account/").context["tokens"]
    assert [row.token.pk for row in rows] == [spare.pk, used.pk]


def test_what_a_pasted_document_holds_is_said_by_its_line(browser: Client) -> None:
    response = browser.post("/workflows/preview/", {"text": "dyserve: 1\nname: a\x00b\n"})
    assert response.status_code == 200
    assert "line 2" in response.content.decode()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_pool_without_a_free_connection_is_503_and_soon(database: str) -> None:
    present: dict[str, Any] = connections.settings["default"]
    options = {**present["OPTIONS"], "pool": {"min_size": 1, "max_size": 1, "timeout": POOL_TIMEOUT_S / 30}}
    with default_database({**present, "OPTIONS": options}):
        try:
            answers = _while_a_connection_is_held(["/profiles/", "/api/v1/workflows"])
        finally:
            connection.close()
            connection.close_pool()  # type: ignore[attr-defined]  # PostgreSQL's alone
    assert answers == [(503, True), (503, True)]


def _while_a_connection_is_held(addresses: list[str]) -> list[tuple[int, bool]]:
    """(status, whether Retry-After is said) of requests that come meanwhile, in a thread of their own."""
    User.objects.filter(pk=0).exists()  # takes the pool's only connection and keeps it
    answers: list[tuple[int, bool]] = []

    def ask() -> None:
        client = Client(raise_request_exception=False, headers={"Authorization": "Bearer dys_ab_cd"})
        client.cookies[settings.SESSION_COOKIE_NAME] = "s" * 32
        for address in addresses:
            response = client.get(address)
            answers.append((response.status_code, "Retry-After" in response.headers))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return answers
