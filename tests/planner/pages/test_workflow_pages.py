from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from planner.models import WorkflowVersion
from planner.services import inline_version, store_workflow
from planner.views.workflows import PAGE_SIZE
from tests.planner.pages.samples import HOSTILE, native


def _stored(owner: User, name: str = "Two steps", **changes: str) -> WorkflowVersion:
    return store_workflow(owner=owner, data=native(name, **changes).encode(), filename="two.json").version


def test_an_empty_list_names_the_next_action(browser: Client) -> None:
    html = browser.get("/workflows/").content.decode()

    assert "No workflows yet" in html
    assert 'href="/workflows/upload/"' in html


def test_the_list_shows_a_row_a_workflow_with_its_last_version(browser: Client, ann: User) -> None:
    _stored(ann)
    _stored(ann, description="changed")

    html = browser.get("/workflows/").content.decode()

    assert html.count('class="primary-cell"') == 1
    assert "v2" in html
    assert "dag-thumb" in html


def test_the_list_costs_the_same_number_of_queries_however_long_it_is(
    browser: Client, ann: User, django_assert_max_num_queries: pytest.FixtureRequest
) -> None:
    for index in range(12):
        _stored(ann, f"Workflow {index}")

    with django_assert_max_num_queries(8):  # type: ignore[operator]  # pytest-django's fixture is a callable
        browser.get("/workflows/")


def test_the_filter_lives_in_the_address_and_answers_rows_alone_to_htmx(browser: Client, ann: User) -> None:
    _stored(ann, "Honey")
    _stored(ann, "Wax")

    whole = browser.get("/workflows/?q=hon").content.decode()
    rows = browser.get("/workflows/?q=hon", headers={"HX-Target": "workflow-rows"}).content.decode()

    for html in (whole, rows):
        assert "Honey" in html
        assert "Wax" not in html
    assert "<html" in whole
    assert "<html" not in rows
    assert "No workflow is called that" in browser.get("/workflows/?q=zzz").content.decode()


def test_the_list_is_paged_by_cursor(browser: Client, ann: User) -> None:
    for index in range(PAGE_SIZE + 1):
        _stored(ann, f"Workflow {index:02}")

    first = browser.get("/workflows/")
    second = browser.get("/workflows/", {"after": first.context["next"]})

    assert len(first.context["rows"]) == PAGE_SIZE
    assert [row.workflow.name for row in second.context["rows"]] == ["Workflow 00"]
    assert "First page" in second.content.decode()
    assert browser.get("/workflows/", {"after": "nonsense!"}).status_code == 404


def test_a_workflow_page_shows_graph_form_and_versions(browser: Client, ann: User) -> None:
    version = _stored(ann)

    html = browser.get(f"/workflows/{version.workflow_id}/").content.decode()

    assert html.count('data-node="') == 2
    assert 'name="input.topic"' in html
    assert 'name="input.count" type="number" step="1"' in html
    assert 'name="input.ratio" type="number" step="any"' in html
    assert 'value="30"' in html
    assert f'hx-get="/workflows/versions/{version.pk}/plans/"' in html


def test_an_older_version_stays_reachable(browser: Client, ann: User) -> None:
    old = _stored(ann)
    _stored(ann, description="changed")

    html = browser.get(f"/workflows/versions/{old.pk}/").content.decode()

    assert "Version 1" in html
    assert "(newer exists)" in html


def test_an_inline_version_has_a_page_of_its_own(browser: Client, ann: User) -> None:
    version = inline_version(owner=ann, data=native().encode())

    assert "inline: brought along by a run" in browser.get(f"/workflows/versions/{version.pk}/").content.decode()


def test_documents_are_downloads_that_cannot_name_a_path(browser: Client, ann: User) -> None:
    data = native().encode()
    version = store_workflow(owner=ann, data=data, filename='../"x.json').version

    canonical = browser.get(f"/workflows/versions/{version.pk}/document/")
    source = browser.get(f"/workflows/versions/{version.pk}/document/?source=1")

    assert json.loads(canonical.content)["dyserve"] == 1
    assert canonical.headers["Content-Disposition"] == 'attachment; filename="two-steps-v1.json"'
    assert source.content == data
    assert source.headers["Content-Disposition"] == 'attachment; filename="x.json"'


@pytest.mark.parametrize("path", ["", "document/", "plans/"])
def test_somebody_elses_version_does_not_exist(stranger: Client, ann: User, path: str) -> None:
    version = _stored(ann)

    assert stranger.get(f"/workflows/versions/{version.pk}/{path}").status_code == 404
    assert stranger.get(f"/workflows/{version.workflow_id}/").status_code == 404
    assert "Two steps" not in stranger.get("/workflows/").content.decode()


@pytest.mark.parametrize("path", ["/workflows/", "/workflows/1/", "/workflows/versions/1/plans/", "/profiles/"])
def test_pages_are_for_signed_in_people(client: Client, path: str) -> None:
    assert client.get(path).headers["Location"].startswith("/login/")


def test_pages_run_no_inline_script(browser: Client, ann: User) -> None:
    version = _stored(ann, HOSTILE)
    for path in ("/workflows/", "/workflows/upload/", f"/workflows/versions/{version.pk}/", "/profiles/"):
        response = browser.get(path)
        assert "script-src 'self'" in response.headers["Content-Security-Policy"]
        html = response.content.decode()
        inline = [tag.split(">")[0] for tag in html.split("<script")[1:] if "src=" not in tag.split(">")[0]]
        assert all('type="application/json"' in tag for tag in inline)
        for forbidden in (" onclick=", " onerror=", " onload=", "hx-on", "javascript:", "hx-vals='js:"):
            assert forbidden not in html.replace("onerror=alert(1)&gt;", "")
