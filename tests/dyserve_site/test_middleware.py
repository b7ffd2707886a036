"""What every request passes: addresses that no database takes, and a database that is away."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError, ProgrammingError
from django.test import Client

from dyserve_site.tokens import create_token
from fleet.common.scopes import Scope
from planner.views import profiles as view


@pytest.fixture
def browser(db: None) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_user("ann"))
    return client


@pytest.mark.parametrize("address", ["/workflows/?q=a%00b", "/workflows/?%00=a", "/runs/%00/", "/login/?next=%00"])
def test_a_page_at_an_address_with_a_nul_is_a_bad_request(browser: Client, address: str) -> None:
    response = browser.get(address)
    assert (response.status_code, b"could not be read" in response.content) == (400, True)


@pytest.mark.parametrize("address", ["/api/v1/runs/%00", "/api/v1/fleet?fleet=%00", "/api/v1/runs/x/events?a=%00"])
def test_the_api_says_the_same_in_its_own_shape(db: None, address: str) -> None:
    token = create_token(User.objects.create_user("ann"), "t", [Scope.ADMIN])[1]
    response = Client(headers={"Authorization": f"Bearer {token}"}).get(address)
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize("error", [OperationalError("db.example: away"), InterfaceError("closed")])
def test_a_database_that_is_away_is_no_fault_of_the_page(
    browser: Client, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def away() -> Any:
        raise error

    monkeypatch.setattr(view, "active_profiles", away)
    response = browser.get("/profiles/")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "3")
    assert b"does not answer" in response.content
    assert b"db.example" not in response.content
    assert "script-src 'self'" in response.headers["Content-Security-Policy"]


def test_a_wrong_query_is_a_fault_and_stays_one(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> Any:
        raise ProgrammingError("no such column")

    monkeypatch.setattr(view, "active_profiles", wrong)
    assert browser.get("/profiles/").status_code == 500
