"""Whatever is sent, it is answered below 500, and what is refused has the one shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import example, given
from hypothesis import strategies as st

from tests.api.conftest import Person
from tests.api.routes import ROUTES
from tests.api.samples import DOCUMENT, problem
from tests.sampling import sampled

pytestmark = pytest.mark.django_db

NASTY_TEXT = st.text(max_size=30) | st.sampled_from(
    ["\x00", "\ud800", "../..", "'; DROP", "9" * 40, "{{ inputs.x }}", "dyserve: 1", "&a [*a, *a]", "%s%n", "𝕏"]
)
NASTY_NUMBER = st.integers() | st.floats() | st.sampled_from([2**63, -(2**63), 10**400, 1e308, float("nan")])
ANYTHING = st.recursive(
    st.none() | st.booleans() | NASTY_NUMBER | NASTY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NASTY_TEXT, inner, max_size=3),
    max_leaves=8,
)
MEMBERS = (
    *("document", "filename", "format", "skills", "name", "workflow", "version", "inputs", "deadline_s", "effort"),
    *("weights", "controller", "seed", "fleet", "levels", "scopes", "expires_in_days", "bundle", "limits"),
)
NEARLY = st.fixed_dictionaries({}, optional=dict.fromkeys(MEMBERS, ANYTHING))
GOOD = {"document": DOCUMENT, "inputs": {"topic": "x"}}


def mutated(draw: st.DrawFn) -> Any:
    """A good request with one member of it replaced, however deep."""
    value = json.loads(json.dumps(GOOD))
    place: Any = value
    while True:
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        deeper = isinstance(place[key], dict | list) and place[key]
        if not deeper or draw(st.integers(0, 3)) == 0:
            place[key] = draw(ANYTHING)
            return value
        place = place[key]


BODIES = ANYTHING | NEARLY | st.composite(mutated)()
POSTS = [route for route in ROUTES if route.method == "POST"]
SAMPLED = sampled(25)


def harmless(response: Any) -> None:
    assert response.status_code < 500, response.content
    if response.status_code >= 400:
        problem(response, response.status_code)


@pytest.mark.parametrize("route", POSTS, ids=str)
def test_no_body_breaks_a_route(ann: Person, route: Any) -> None:
    client = Client(headers=ann.api.headers, raise_request_exception=True)

    @SAMPLED
    @given(BODIES)
    @example(GOOD)
    def send(body: Any) -> None:
        content = json.dumps(body).encode()
        harmless(client.generic("POST", f"/api/v1{route.filled()}", content, content_type="application/json"))

    send()


@pytest.mark.parametrize("path", ["/workflows", "/runs"])
def test_no_bytes_break_a_route(ann: Person, path: str) -> None:
    client = Client(headers=ann.api.headers)

    @SAMPLED
    @given(st.binary(max_size=60))
    def send(body: bytes) -> None:
        harmless(client.generic("POST", f"/api/v1{path}", body, content_type="application/json"))

    send()


def test_no_document_text_breaks_an_import(ann: Person) -> None:
    client = Client(headers=ann.api.headers)

    @SAMPLED
    @given(NASTY_TEXT | st.text("{}[]:,-&* \n\"'ab1", max_size=60))
    def send(text: str) -> None:
        content = json.dumps({"document": text}).encode()
        harmless(client.generic("POST", "/api/v1/workflows:validate", content, content_type="application/json"))

    send()


QUERY = ("cursor", "limit", "state", "workflow", "node", "fleet", "after", "variant", "most", "axis", "draws")
GETS = [route for route in ROUTES if route.method == "GET" and not route.path.endswith("/events")]
"""Events are read in a thread of their own, outside of this test's transaction: tests/runtime/test_streams.py."""


@pytest.mark.parametrize("route", GETS, ids=str)
def test_no_parameter_breaks_a_route(ann: Person, route: Any) -> None:
    client = Client(headers=ann.api.headers)
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)

    @SAMPLED
    @given(st.dictionaries(st.sampled_from(QUERY), text))
    def ask(query: dict[str, str]) -> None:
        harmless(client.get(f"/api/v1{route.filled()}", query_params=query))

    ask()


PATHS = ("/workflows/{}", "/workflows/{}/versions", "/runs/{}", "/runs/{}/nodes", "/runs/{}/nodes/{}", "/plans/{}")


@pytest.mark.parametrize("path", PATHS)
def test_no_address_breaks_a_route(ann: Person, path: str) -> None:
    from urllib.parse import quote

    client = Client(headers=ann.api.headers)

    @SAMPLED
    @given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
    @example("\x00")
    @example("9" * 30)
    @example("٣")
    def ask(text: str) -> None:
        harmless(client.get("/api/v1" + path.replace("{}", quote(text, safe=""))))

    ask()
