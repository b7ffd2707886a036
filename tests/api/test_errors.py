"""Every error of the API has the one shape, and every exception of the apps is mapped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import OperationalError
from django.http import Http404
from django.test import Client
from ninja.errors import HttpError, Throttled
from redis.exceptions import ConnectionError as RedisAway

import fleet.errors
import planner.errors
import planner.importers.problems
import runtime.errors
from dyserve_site.problems import MAPPERS, answer, problem_of
from planner import api as planner_api
from tests.api.conftest import Person
from tests.api.routes import ROUTES
from tests.api.samples import DOCUMENT, Caller, problem

pytestmark = pytest.mark.django_db


def exceptions_of(module: Any) -> Iterator[type[Exception]]:
    for item in vars(module).values():
        if isinstance(item, type) and issubclass(item, Exception) and item.__module__ == module.__name__:
            yield item


MODULES = (fleet.errors, planner.errors, planner.importers.problems, runtime.errors)
APP_ERRORS = [kind for module in MODULES for kind in exceptions_of(module)]


@pytest.mark.parametrize("kind", APP_ERRORS, ids=lambda kind: kind.__name__)
def test_every_exception_of_the_apps_has_a_line_of_its_own_or_its_bases(kind: type[Exception]) -> None:
    assert any(base in MAPPERS for base in kind.__mro__)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Http404("secret"), 404, "not_found"),
        (PermissionDenied("secret"), 403, "forbidden"),
        (SuspiciousOperation("secret"), 400, "bad_request"),
        (RequestDataTooBig("secret"), 413, "too_large"),
        (OperationalError("secret"), 503, "unavailable"),
        (RedisAway("secret"), 503, "unavailable"),
        (Throttled(wait=3), 429, "too_many_requests"),
        (HttpError(400, "Cannot parse request body"), 400, "bad_request"),
        (runtime.errors.RunNotFound("x"), 404, "not_found"),
        (runtime.errors.IdempotencyConflict("x"), 409, "idempotency_conflict"),
        (planner.errors.NoActiveProfiles(), 409, "no_profiles"),
        (planner.errors.OptionsInvalid({"effort": "is wrong"}), 422, "invalid_options"),
        (planner.errors.PlanInfeasible(["no"]), 422, "plan_infeasible"),
        (planner.errors.PlanRefused(["cost"]), 500, "plan_refused"),
        (planner.errors.Outdated(["fleet"]), 409, "stale_plan"),
        (planner.errors.NoAnswer("there is none"), 409, "no_answer"),
        (planner.errors.Busy(3), 503, "unavailable"),
        (fleet.errors.NoDefaultFleet(), 409, "no_fleet"),
        (fleet.errors.ReplicaRejected({"url": ["bad"]}), 422, "replica_rejected"),
    ],
)
def test_errors_have_their_status_and_say_nothing_of_the_inside(error: Exception, status: int, code: str) -> None:
    found = problem_of(error)
    assert found is not None
    assert (found.status, found.code) == (status, code)
    assert "secret" not in str(found.to_json("/x"))


def test_a_bug_is_no_problem_of_the_caller() -> None:
    assert problem_of(KeyError("x")) is None
    assert problem_of(OSError("x")) is None


def test_a_bug_is_answered_without_its_cause_and_logged_with_it(
    ann: Person, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a secret of the inside")

    monkeypatch.setattr(planner_api, "workflow_for", broken)
    body = problem(ann.api.get("/workflows/1"), 500)
    assert "secret" not in str(body)
    assert body["errors"] == []
    assert "a secret of the inside" in caplog.text


def test_an_address_that_is_not_there(ann: Person) -> None:
    for path in ("/", "/moon", "/runs/a/b/c", "/workflows/", "/openapi"):
        problem(ann.api.get(path), 404)


def test_an_address_that_is_not_there_needs_no_csrf_token_to_say_so(ann: Person) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(ann.user)
    for path in ("/moon", "/workflows"):
        response = browser.post(f"/api/v1{path}", {}, content_type="application/json")
        problem(response, 404 if path == "/moon" else 403)


def test_a_request_for_another_host_has_the_shape_too(ann: Person) -> None:
    problem(Client(headers={"Host": "evil.example"}).get("/api/v1/runs"), 400)
    page = Client(headers={"Host": "evil.example"}).get("/login/")
    assert (page.status_code, page.headers["Content-Type"]) == (400, "text/html; charset=utf-8")


@pytest.mark.parametrize("path", sorted({route.path for route in ROUTES}))
def test_a_method_that_is_not_allowed_names_those_that_are(ann: Person, path: str) -> None:
    route = next(route for route in ROUTES if route.path == path)
    response = ann.api.request("PATCH", route.filled())
    problem(response, 405)
    allowed = {route.method for route in ROUTES if route.path == path}
    assert set(response.headers["Allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "bad_json"),
        (b'{"document": NaN}', "bad_number"),
        (b"\xff", "not_utf8"),
        (b"[" * 50_000, "too_deep"),
        (b'{"document": "\\u0000"}', "bad_text"),
    ],
)
def test_a_body_that_is_no_json_is_told_where(ann: Person, body: bytes, code: str) -> None:
    response = Client(headers=ann.api.headers).generic(
        "POST", "/api/v1/workflows", body, content_type="application/json"
    )
    assert problem(response, 400)["errors"][0]["code"] == code


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/yaml", ""])
def test_a_body_of_another_type_is_refused(ann: Person, content_type: str) -> None:
    response = Client(headers=ann.api.headers).generic("POST", "/api/v1/workflows", b"{}", content_type=content_type)
    problem(response, 415)


def test_a_body_over_the_limit_is_refused(ann: Person) -> None:
    problem(ann.api.post("/workflows", {"document": "x" * (2 * 1024 * 1024)}), 413)
    problem(Caller().post("/workflows", {"document": "x" * (2 * 1024 * 1024)}), 413)


def test_a_document_over_its_own_limit_is_rejected_with_the_reason(ann: Person) -> None:
    body = problem(ann.api.post("/workflows", {"document": "x" * (1024 * 1024 + 1)}), 422)
    assert body["code"] == "workflow_rejected"


def test_an_upload_that_is_no_form_is_refused(ann: Person) -> None:
    client = Client(headers=ann.api.headers)
    for body, content_type in [
        (b"x", "multipart/form-data"),
        (b"x", "multipart/form-data; boundary=y"),
        (b"--y\r\nbroken", "multipart/form-data; boundary=y"),
    ]:
        response = client.generic("POST", "/api/v1/workflows:upload", body, content_type=content_type)
        assert response.status_code in (400, 422)
        problem(response, response.status_code)


def test_validation_errors_of_parameters_name_the_parameter(ann: Person) -> None:
    error = problem(ann.api.get("/runs?limit=x"), 422)["errors"][0]
    assert "query parameter limit" in error["message"]
    assert error["remedy"] == "Send a whole number." or error["remedy"]


def test_the_answer_to_an_exception_outside_of_a_view_has_the_shape(rf: Any) -> None:
    problem_response = answer(rf.get("/api/v1/x"), ValueError("bug"))
    assert (problem_response.status_code, problem_response.headers["Content-Type"]) == (500, "application/problem+json")


def test_everything_at_once_with_many_problems(ann: Person) -> None:
    nodes = [{"id": "a", "kind": "llm", "skill": "writing", "prompt": ""} for _ in range(300)]
    errors = problem(ann.api.post("/workflows", {"document": DOCUMENT | {"nodes": nodes}}), 422)["errors"]
    assert 10 < len(errors) <= 100
