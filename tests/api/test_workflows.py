from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from planner.models import Workflow, WorkflowVersion
from tests.api.conftest import Person
from tests.api.samples import BROKEN_YAML, DOCUMENT, YAML, problem


def test_a_document_is_stored_once_and_other_content_is_the_next_version(ann: Person) -> None:
    first = ann.api.post("/workflows", {"document": DOCUMENT})
    assert first.status_code == 201
    assert first.json()["workflow"]["name"] == "Two steps"
    assert first.json()["version"]["number"] == 1
    again = ann.api.post("/workflows", {"document": DOCUMENT})
    assert (again.status_code, again.json()["created"]) == (200, False)
    other = ann.api.post("/workflows", {"document": DOCUMENT | {"description": "More."}})
    assert (other.status_code, other.json()["version"]["number"]) == (201, 2)
    assert other.json()["workflow"]["versions"] == 2


def test_a_text_is_stored_under_the_callers_name(ann: Person) -> None:
    stored = ann.api.post("/workflows", {"document": YAML, "filename": "x.yaml", "name": "Mine"}).json()
    assert (stored["workflow"]["name"], stored["version"]["filename"]) == ("Mine", "x.yaml")


def test_skills_are_overridden(ann: Person) -> None:
    stored = ann.api.post("/workflows", {"document": YAML, "skills": {"only": "code"}}).json()
    version = ann.api.get(f"/workflows/{stored['workflow']['id']}/versions/1").json()
    assert version["document"]["nodes"][0]["skill"] == "code"


def test_a_file_is_stored(ann: Person) -> None:
    client = Client(headers={"Authorization": f"Bearer {ann.token}"})
    upload = SimpleUploadedFile("flow.yaml", YAML.encode())
    response = client.post("/api/v1/workflows:upload", {"file": upload, "name": "From a file"})
    assert response.status_code == 201
    assert response.json()["workflow"]["name"] == "From a file"
    assert response.json()["version"]["filename"] == "flow.yaml"


def test_validation_tells_what_a_document_means_and_stores_nothing(ann: Person) -> None:
    found = ann.api.post("/workflows:validate", {"document": DOCUMENT}).json()
    assert [(node["id"], node["kind"], node["predecessors"]) for node in found["nodes"]] == [
        ("draft", "llm", []),
        ("answer", "llm", ["draft"]),
    ]
    assert (found["output"], found["format"]) == ("answer", "native")
    assert found["inputs"][0]["name"] == "topic"
    assert not WorkflowVersion.objects.exists()


@pytest.mark.parametrize("path", ["/workflows", "/workflows:validate"])
def test_problems_of_a_text_have_lines_and_pointers_into_the_text(ann: Person, path: str) -> None:
    body = problem(ann.api.post(path, {"document": BROKEN_YAML}), 422)
    assert body["code"] == "workflow_rejected"
    assert (body["errors"][0]["line"], body["errors"][0]["pointer"]) == (4, "/nodes/0/prompt")
    assert not Workflow.objects.exists()


@pytest.mark.parametrize("path", ["/workflows", "/workflows:validate", "/plans", "/runs"])
def test_problems_of_an_object_point_into_the_body(ann: Person, path: str) -> None:
    nodes: list[Any] = [{"id": "a", "kind": "llm", "skill": "writing"}, {"id": "a", "kind": "moon"}]
    body = problem(ann.api.post(path, {"document": {"dyserve": 1, "name": "x", "nodes": nodes}}), 422)
    assert len(body["errors"]) >= 2
    assert all(error["pointer"].startswith("/document/nodes/") for error in body["errors"])
    assert all(error["line"] is None for error in body["errors"])
    assert not WorkflowVersion.objects.exists()


def test_a_workflow_is_found_by_id_and_by_slug(ann: Person) -> None:
    stored = ann.api.post("/workflows", {"document": DOCUMENT}).json()["workflow"]
    assert ann.api.get(f"/workflows/{stored['id']}").json() == ann.api.get("/workflows/two-steps").json() == stored
    for ref in ("nothing", "999999", "9" * 60, "0"):
        problem(ann.api.get(f"/workflows/{ref}"), 404)
    problem(ann.api.get("/workflows/%00"), 400)


def test_versions_are_listed_and_read(ann: Person) -> None:
    ann.api.post("/workflows", {"document": DOCUMENT})
    ann.api.post("/workflows", {"document": DOCUMENT | {"description": "More."}})
    listed = ann.api.get("/workflows/two-steps/versions").json()
    assert [item["number"] for item in listed["items"]] == [2, 1]
    assert ann.api.get("/workflows/two-steps/versions/1").json()["document"]["name"] == "Two steps"
    for number in ("3", "0", "-1", "9" * 30):
        problem(ann.api.get(f"/workflows/two-steps/versions/{number}"), 404)
    problem(ann.api.get("/workflows/two-steps/versions/one"), 422)


def test_lists_come_in_pages(ann: Person) -> None:
    names = [f"Number {number}" for number in range(5)]
    for name in names:
        ann.api.post("/workflows", {"document": DOCUMENT, "name": name})
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = ann.api.get(f"/workflows?limit=2&cursor={cursor}").json()
        seen += [item["name"] for item in page["items"]]
        cursor = page["next"]
    assert seen == names[::-1]
    for query in ("limit=0", "limit=201", "limit=x", "cursor=!"):
        problem(ann.api.get(f"/workflows?{query}"), 422)
