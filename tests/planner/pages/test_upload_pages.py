from __future__ import annotations

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from planner.models import Workflow, WorkflowVersion
from tests.planner.pages.samples import BROKEN, FLOW, HOSTILE, native

PREVIEW = "/workflows/preview/"
UPLOAD = "/workflows/upload/"


def _preview(browser: Client, text: str, **fields: str) -> str:
    response = browser.post(PREVIEW, {"text": text, **fields})
    assert response.status_code == 200
    return response.content.decode()


def test_a_preview_shows_the_graph_and_stores_nothing(browser: Client) -> None:
    html = _preview(browser, native())

    assert html.count('data-node="') == 2
    assert "Save version 1" in html
    assert not WorkflowVersion.objects.exists()


def test_problems_come_with_line_pointer_remedy_and_the_line_itself(browser: Client) -> None:
    html = _preview(browser, BROKEN)

    assert 'data-line="7"' in html
    assert "/nodes/0/prompt" in html
    assert "nodes.missing.output" in html
    assert 'data-line="8"' in html
    assert "Nothing was stored." in html
    assert "Save version" not in html


def test_saving_a_bad_document_keeps_the_text_and_stores_nothing(browser: Client) -> None:
    response = browser.post(UPLOAD, {"text": BROKEN, "filename": "broken.yaml"})

    assert response.status_code == 422
    html = response.content.decode()
    assert "max_tokens: many" in html
    assert 'data-line="8"' in html
    assert not Workflow.objects.exists()


def test_saving_stores_version_one_and_opens_it(browser: Client) -> None:
    response = browser.post(UPLOAD, {"text": native("Honey")})

    version = WorkflowVersion.objects.get()
    assert response.headers["Location"] == reverse("planner:version", args=[version.pk])
    assert (version.number, version.workflow and version.workflow.name) == (1, "Honey")


def test_a_file_keeps_its_name(browser: Client) -> None:
    browser.post(UPLOAD, {"file": SimpleUploadedFile("honey.json", native("Honey").encode())})

    assert WorkflowVersion.objects.get().source_name == "honey.json"


def test_the_browsers_line_ends_make_no_new_version(browser: Client) -> None:
    text = json.dumps(json.loads(native()), indent=1)
    browser.post(UPLOAD, {"text": text})
    browser.post(UPLOAD, {"text": text.replace("\n", "\r\n")})

    assert WorkflowVersion.objects.count() == 1
    assert WorkflowVersion.objects.get().source == text


def test_the_same_content_is_recognised_before_and_while_saving(browser: Client) -> None:
    browser.post(UPLOAD, {"text": native()})

    assert "already stored as version 1" in _preview(browser, native())
    response = browser.post(UPLOAD, {"text": native()}, follow=True)
    assert "already stored as Two steps, version 1" in response.content.decode()
    assert WorkflowVersion.objects.count() == 1


def test_other_content_of_the_same_name_is_the_next_version(browser: Client) -> None:
    browser.post(UPLOAD, {"text": native()})

    assert "Save version 2" in _preview(browser, native(description="changed"))


def test_skills_of_a_foreign_file_come_with_the_word_that_decided(browser: Client) -> None:
    html = _preview(browser, json.dumps(FLOW))

    assert "the word &#x27;implement&#x27; in the objective" in html
    assert html.count("data-skill=") == 4


def test_a_chosen_skill_overrules_the_rule_and_is_stored(browser: Client) -> None:
    fields = {"skill.task1": "test"}
    html = _preview(browser, json.dumps(FLOW), **fields)
    assert 'name="skill.task1"' in html
    assert "given by the user" in html

    browser.post(UPLOAD, {"text": json.dumps(FLOW), **fields})

    nodes = {node["id"]: node for node in WorkflowVersion.objects.get().document["nodes"]}
    assert nodes["task1"]["skill"] == "test"
    assert nodes["task0"]["skill"] == "plan"


def test_a_skill_of_a_node_that_is_gone_is_ignored(browser: Client) -> None:
    assert "Save version 1" in _preview(browser, native(), **{"skill.task1": "test"})


def test_a_chosen_skill_that_is_no_tag_is_a_problem(browser: Client) -> None:
    assert "is no skill tag" in _preview(browser, json.dumps(FLOW), **{"skill.task1": "<b>"})


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"\xff\xfe\x00", "UTF-8"), (b"x" * 1_000_001, "1,000,001 bytes"), (b'{"a": 1} {"b": 2}', "glued together")],
)
def test_files_that_no_editor_can_show_are_refused_with_the_reason(browser: Client, data: bytes, words: str) -> None:
    response = browser.post(PREVIEW, {"file": SimpleUploadedFile("w.json", data)})

    assert words in response.content.decode()


def test_an_empty_editor_is_no_problem(browser: Client) -> None:
    assert "Nothing to show yet" in _preview(browser, "  \n")


def test_what_people_wrote_is_escaped(browser: Client) -> None:
    html = _preview(browser, native(HOSTILE, title=HOSTILE, description=HOSTILE))
    assert "<img" not in html

    browser.post(UPLOAD, {"text": native(HOSTILE, title=HOSTILE, description=HOSTILE)})
    for page in ("/workflows/", f"/workflows/{Workflow.objects.get().pk}/", PREVIEW):
        response = browser.get(page) if page != PREVIEW else browser.post(page, {"text": f"{HOSTILE}: ["})
        assert "<img" not in response.content.decode()


def test_only_signed_in_people_may_preview_or_save() -> None:
    for address in (PREVIEW, UPLOAD):
        assert Client().post(address, {"text": native()}).headers["Location"].startswith("/login/")
