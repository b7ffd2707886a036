from __future__ import annotations

import re

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from tests.api.conftest import Person
from tests.api.routes import PREFIX, ROUTES

pytestmark = pytest.mark.django_db


def test_the_documentation_needs_no_inline_script_and_nothing_from_elsewhere() -> None:
    page = Client().get(f"{PREFIX}/docs")
    html = page.content.decode()
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", html, re.DOTALL)
    assert scripts
    for attributes, text in scripts:
        # A data block is never executed, so the policy does not apply to it.
        assert "src=" in attributes or 'type="application/json"' in attributes
        assert "src=" not in attributes or not text.strip()
    assert not re.search(r"\son\w+\s*=", html)
    assert not re.findall(r'(?:src|href)="(?!/)', html)
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    for address in re.findall(r'(?:src|href)="/static/([^"]+)"', html):
        assert finders.find(address), address


def test_the_documentation_sends_the_csrf_token_of_a_logged_in_reader(ann: Person) -> None:
    browser = Client()
    browser.force_login(ann.user)
    html = browser.get(f"{PREFIX}/docs").content.decode()
    assert re.search(r'data-csrf-token="\w{32,}"', html)
    assert 'data-api-csrf="true"' in html


def test_every_operation_documents_its_errors() -> None:
    schema = Client().get(f"{PREFIX}/openapi.json").json()
    assert len([1 for path in schema["paths"].values() for _ in path]) == len(ROUTES)
    for operations in schema["paths"].values():
        for operation in operations.values():
            assert operation["summary"]
            assert operation["security"] == [{"TokenAuth": []}, {"BrowserAuth": []}]
            for status in ("401", "404", "422", "500"):
                reference = operation["responses"][status]["content"]["application/problem+json"]["schema"]["$ref"]
                assert reference == "#/components/schemas/ProblemOut"


def test_references_of_the_schema_resolve() -> None:
    text = Client().get(f"{PREFIX}/openapi.json").content.decode()
    schema = Client().get(f"{PREFIX}/openapi.json").json()
    for name in re.findall(r'"#/components/schemas/([^"]+)"', text):
        assert name in schema["components"]["schemas"]


def test_lists_are_pages_with_a_bound() -> None:
    schema = Client().get(f"{PREFIX}/openapi.json").json()
    paged = 0
    for path, operations in schema["paths"].items():
        operation = operations.get("get", {})
        answer = operation.get("responses", {}).get("200", {}).get("content", {}).get("application/json", {})
        name = answer.get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
        if name.startswith("PageOut") or name == "EventsOut":
            bounded = {parameter["name"]: parameter for parameter in operation["parameters"]}
            if not path.endswith("/variants"):
                assert bounded["limit"]["schema"]["maximum"] <= 1000
            paged += 1
    assert paged == 8
