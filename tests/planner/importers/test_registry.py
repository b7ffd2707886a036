from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.importers.document import document_of
from planner.importers.problems import WorkflowRejected
from planner.importers.registry import FORMATS, detect, import_value, import_workflow
from tests.planner.importers.helpers import fixture, import_problems
from tests.planner.importers.strategies import json_values


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        ("release_notes.yaml", "native"),
        ("release_notes.json", "native"),
        ("flow_subtasks.json", "flow"),
        ("flow_tasks.json", "flow"),
        ("flow_task_list.json", "flow"),
    ],
)
def test_formats_are_recognised_by_content(name: str, format_name: str) -> None:
    assert import_workflow(fixture(name)).format == format_name
    assert import_workflow(fixture(name), format=format_name).format == format_name


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ({"nodes": [], "connections": {}}, "an object with the keys 'nodes', 'connections'"),
        ({str(n): n for n in range(20)}, "'9', ..."),
        ([], "a list of 0"),
        ([1, 2], "a list of 2, starting with the number 1"),
        ("hello", "a text"),
        (None, "null"),
        ({}, "an object with the keys none"),
        ({"workflow": {}}, "an object with the keys 'workflow'"),
    ],
)
def test_an_unknown_format_says_what_was_seen_and_what_is_supported(value: Any, seen: str) -> None:
    with pytest.raises(WorkflowRejected) as caught:
        detect(document_of(value))
    (problem,) = caught.value.problems
    assert problem.code == "unknown_format"
    assert seen in problem.message
    assert all(candidate.title in problem.remedy for candidate in FORMATS)


def test_a_native_document_without_its_version_gets_a_hint() -> None:
    (problem,) = import_problems("name: x\nnodes: []\n")
    assert "add `dyserve: 1`" in problem.remedy


def test_an_unknown_format_name_lists_the_known_ones() -> None:
    with pytest.raises(WorkflowRejected) as caught:
        import_value({}, format="flows")
    assert caught.value.problems[0].remedy == "Did you mean 'flow'?"


@pytest.mark.parametrize("format_name", [candidate.name for candidate in FORMATS])
@given(value=json_values)
def test_a_forced_format_rejects_any_other_value(format_name: str, value: Any) -> None:
    with pytest.raises(WorkflowRejected):
        import_value(value, format=format_name)


@given(st.binary(max_size=300))
def test_any_bytes_are_rejected_and_nothing_else(data: bytes) -> None:
    with pytest.raises(WorkflowRejected):
        import_workflow(data)


def test_a_node_that_cannot_affect_the_result_is_noted() -> None:
    nodes = [{"id": name, "kind": "llm", "skill": "plan", "prompt": "x"} for name in ("a", "b")]
    imported = import_value({"dyserve": 1, "name": "w", "nodes": nodes, "output": "a"})
    assert [(note.code, note.node) for note in imported.notes] == [("idle", "b")]
    assert imported.notes[0].to_json()["message"].endswith("cannot affect the result")
