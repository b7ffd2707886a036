from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.references import render_text
from planner.compiler.workflow import LlmNode, ToolNode, Workflow
from planner.importers.document import document_of, read_document
from planner.importers.native import content_digest, dump_native, parse_native
from planner.importers.problems import WorkflowRejected
from planner.importers.registry import Imported, import_value, import_workflow
from tests.planner.importers.helpers import attempted, fixture, found, import_problems
from tests.planner.importers.strategies import mutated, texts

SUBTASKS: dict[str, Any] = read_document(fixture("flow_subtasks.json")).value
TASKS: dict[str, Any] = read_document(fixture("flow_tasks.json")).value


def _imported(name: str) -> Imported:
    imported = import_workflow(fixture(name), filename=name)
    assert imported.format == "flow"
    return imported


def _skills(workflow: Workflow) -> dict[str, str]:
    return {node.id: node.skill for node in workflow.llm_nodes}


def _notes(imported: Imported, code: str) -> list[str]:
    return [f"{note.node}: {note.message}" for note in imported.notes if note.code == code]


def test_the_first_schema_becomes_a_workflow_and_no_work_is_dropped() -> None:
    imported = _imported("flow_subtasks.json")
    workflow = imported.workflow
    assert workflow.name == workflow.description == "Plan a small library's summer reading week"
    assert _skills(workflow) == {"task0": "plan", "task1": "writing", "task2": "code", "task3": "test"}
    assert workflow.edges == (
        ("task0", "task1"),
        ("task0", "task2"),
        ("task1", "result"),
        ("task2", "task3"),
        ("task3", "result"),
    )
    join = workflow.by_id["result"]
    assert isinstance(join, ToolNode)
    assert (join.tool, join.effect, workflow.output) == ("template", "pure", "result")
    assert join.arguments["template"].count("{{ nodes.") == 2
    assert all(workflow.reaches_output(node.id) for node in workflow.nodes)


def test_the_current_schema_becomes_a_workflow() -> None:
    imported = _imported("flow_tasks.json")
    workflow = imported.workflow
    assert workflow.name == "flow_tasks"
    assert _skills(workflow) == {"task0": "extract", "task1": "reasoning", "task2": "code", "task3": "writing"}
    assert workflow.output == "task3"
    last = workflow.by_id["task3"]
    assert last.title == "Data Analyst"
    assert workflow.predecessors["task3"] == ("task1", "task2")


def test_a_list_of_tasks_brings_its_roles_along() -> None:
    workflow = _imported("flow_task_list.json").workflow
    assert [node.title for node in workflow.nodes] == ["Speech Writer", "Researcher", "Editor"]
    assert workflow.edges == (("left", "both"), ("right", "both"))
    assert workflow.output == "both"


def test_prompts_hold_task_objective_role_form_and_the_outputs_before() -> None:
    subtasks = _imported("flow_subtasks.json").workflow.by_id["task3"]
    assert isinstance(subtasks, LlmNode)
    assert subtasks.system == "Your role: Web Developer."
    prompt = render_text(subtasks.prompt, {}, {"task2": "<form>"})
    for part in ("summer reading week", "Test the sign-up form", "Web Developer: Implement the sign-up", "<form>"):
        assert part in prompt
    tasks = _imported("flow_tasks.json").workflow.by_id["task2"]
    assert isinstance(tasks, LlmNode)
    assert "Form of the result: One Python file" in tasks.prompt


def test_every_choice_has_a_note() -> None:
    imported = _imported("flow_subtasks.json")
    assert _notes(imported, "skill")[2] == "task2: skill code: the word 'implement' in the objective"
    assert _notes(imported, "dropped") == [": the document: 'id' is not used"]
    assert _notes(imported, "id")[0] == "task0: the file calls it '0'"
    assert _notes(imported, "name") == [f": the name {imported.workflow.name!r} comes from the task"]
    assert "(task1, task3)" in _notes(imported, "output")[0]
    assert "state of an earlier run" in _notes(_imported("flow_tasks.json"), "dropped")[0]


def test_skills_can_be_overruled() -> None:
    imported = import_value(SUBTASKS, skills={"task3": "tool"})
    assert _skills(imported.workflow)["task3"] == "tool"
    assert [note.message for note in imported.notes if (note.code, note.node) == ("skill", "task3")] == [
        "skill tool: given by the user"
    ]


@pytest.mark.parametrize("skills", [{"nobody": "code"}, {"result": "code"}, {"task0": "Not a tag"}])
def test_an_overruled_skill_must_fit(skills: dict[str, str]) -> None:
    with pytest.raises(WorkflowRejected):
        import_value(SUBTASKS, skills=skills)


# --- Errors ----------------------------------------------------------------------------------------------------------


def test_next_and_prev_that_disagree_are_an_error_each() -> None:
    text = json.dumps(TASKS).replace('"next": ["task3"], "prev": ["task0"]', '"next": [], "prev": ["task0"]')
    text = text.replace('"next": ["task1", "task2"]', '"next": ["task1", "task2", "task3"]')
    problems = import_problems(json.dumps(json.loads(text), indent=1))
    assert [(problem.code, problem.pointer) for problem in problems] == [
        ("next_prev_disagree", "/workflow/task0/next/2"),
        ("next_prev_disagree", "/workflow/task3/prev/0"),
        ("next_prev_disagree", "/workflow/task3/prev/1"),
    ]
    assert problems[0].message == "task0 has task3 in 'next', but task3 does not have task0 in 'prev'."
    assert problems[1].remedy == "Add 'task3' to the 'next' of task1, or remove 'task1' here."
    assert [problem.line for problem in problems] == sorted(problem.line or 0 for problem in problems)


def test_a_side_that_no_task_has_is_no_disagreement() -> None:
    stripped = json.loads(json.dumps(TASKS))
    for task in stripped["workflow"].values():
        del task["next"]
    imported = import_value(stripped)
    assert imported.workflow.edges == import_value(TASKS).workflow.edges
    assert _notes(imported, "edges") == [": no task has 'next': the edges come from 'prev' alone"]


def _subtasks(**more: Any) -> str:
    plain = {"task": "t", "subtasks": [{"id": 0, "objective": "a"}, {"id": 1, "objective": "b"}]}
    return json.dumps(plain | more)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_subtasks(subtasks=[{"id": n, "objective": "a"} for n in range(501)]), [("too_many_nodes", "/subtasks")]),
        (_subtasks(subtask_dependencies=[{}] * 10_001), [("too_many_edges", "/subtask_dependencies")]),
        (json.dumps([{"id": n, "objective": "a"} for n in range(501)]), [("too_many_nodes", "")]),
        (_subtasks(subtasks=[]), [("empty", "")]),
        (_subtasks(subtasks={}), [("wrong_type", "/subtasks")]),
        (_subtasks(subtasks=[3]), [("wrong_type", "/subtasks/0")]),
        (_subtasks(subtasks=[{"objective": "a"}]), [("wrong_type", "/subtasks/0/id")]),
        (_subtasks(subtasks=[{"id": 0}]), [("missing_key", "/subtasks/0")]),
        (_subtasks(subtasks=[{"id": 0, "objective": " "}]), [("wrong_type", "/subtasks/0/objective")]),
        (
            _subtasks(subtasks=[{"id": 0, "objective": "a"}, {"id": "0", "objective": "b"}]),
            [("duplicate_id", "/subtasks/1/id")],
        ),
        (_subtasks(task=3), [("wrong_type", "/task")]),
        (
            _subtasks(subtask_dependencies=[{"parent": 0, "child": 9}]),
            [("unknown_node", "/subtask_dependencies/0/child")],
        ),
        (_subtasks(subtask_dependencies=[{"parent": 0}]), [("wrong_type", "/subtask_dependencies/0/child")]),
        (_subtasks(subtask_dependencies=[{"parent": 1, "child": 1}]), [("cycle", "/subtask_dependencies/0")]),
        (_subtasks(agents=[{"id": "A", "subtasks": [0]}]), [("missing_key", "/agents/0")]),
        (_subtasks(agents=[{"id": "A", "role": "r", "subtasks": [7]}]), [("unknown_node", "/agents/0/subtasks/0")]),
        (_subtasks(subtasks=[{"id": n, "objective": "a"} for n in range(500)]), [("too_many_nodes", "")]),
        ('{"workflow": {"a": {"objective": "x", "next": ["q"]}}}', [("unknown_node", "/workflow/a/next/0")]),
        ('{"workflow": {"a": {"objective": "x"}, "b": 3}}', [("wrong_type", "/workflow/b")]),
        (
            '{"workflow": {"a": {"objective": "x", "agent_id": 1}}, "agents": [{"id": "Agent 0", "role": "r"}]}',
            [("unknown_agent", "/workflow/a/agent_id")],
        ),
        (
            '{"workflow":{"a":{"objective":"x"}},"agents":[{"id":"agent 0","role":"r"},{"id":0,"role":"q"}]}',
            [("duplicate_id", "/agents/1/id")],
        ),
        (
            '[{"id": "a", "objective": "x"}, {"id": "a", "objective": "y"}, {"objective": "z"}]',
            [("duplicate_id", "/1/id"), ("wrong_type", "/2/id")],
        ),
    ],
)
def test_bad_files_name_the_place(text: str, expected: list[tuple[str, str]]) -> None:
    problems = import_problems(text)
    assert [(problem.code, problem.pointer) for problem in problems] == expected
    assert all(problem.line == 1 and problem.remedy for problem in problems)


def test_a_cycle_is_named_as_the_file_names_its_tasks() -> None:
    edges = [{"parent": 0, "child": 1}, {"parent": 1, "child": 0}]
    assert "wait for each other: 0 -> 1 -> 0." in import_problems(_subtasks(subtask_dependencies=edges))[0].message


# --- Odd names and texts ---------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(st.integers(-3, 99), texts.filter(str.strip)),
        min_size=1,
        max_size=6,
        unique_by=lambda v: str(v).strip(),
    )
)
def test_any_ids_become_legal_and_distinct(keys: list[int | str]) -> None:
    rows = [{"id": key, "objective": "o"} for key in keys]
    workflow = import_value({"subtasks": rows}).workflow
    assert len(workflow.llm_nodes) == len(keys)
    assert parse_native(document_of(dump_native(workflow))) == workflow


@given(texts.filter(str.strip), texts.filter(str.strip))
def test_texts_of_the_file_are_never_read_as_references(task: str, objective: str) -> None:
    braces = "{{ nodes.task0.output }} {{{{"
    data = {"task": task + braces, "subtasks": [{"id": 0, "objective": objective + braces}]}
    node = import_value(data).workflow.by_id["task0"]
    assert isinstance(node, LlmNode)
    prompt = render_text(node.prompt, {}, {})
    assert (task + braces).strip() in prompt
    assert (objective + braces).strip() in prompt


@given(st.sampled_from([SUBTASKS, TASKS, read_document(fixture("flow_task_list.json")).value]).flatmap(mutated))
def test_near_misses_are_read_or_rejected_and_nothing_else(value: Any) -> None:
    outcome = attempted(lambda: import_workflow(json.dumps(value).encode()))
    if isinstance(outcome, Imported):
        again = parse_native(document_of(dump_native(outcome.workflow)))
        assert content_digest(again) == content_digest(outcome.workflow)
    else:
        assert all(problem.remedy for problem in outcome)


# --- Real files ------------------------------------------------------------------------------------------------------

REAL_FILES = 10


def test_all_real_flow_files_are_imported_whole(shared_data: Path) -> None:
    files = sorted((shared_data / "workflows" / "flow").glob("*.json"))
    assert len(files) == REAL_FILES
    for path in files:
        value = json.loads(path.read_text(encoding="utf-8"))
        tasks = value if isinstance(value, list) else value.get("subtasks") or list(value["workflow"].values())
        imported = import_workflow(path.read_bytes(), filename=path.name)
        workflow = imported.workflow
        assert imported.format == "flow"
        assert len(workflow.llm_nodes) == len(tasks)
        assert all(workflow.reaches_output(node.id) for node in workflow.nodes)
        assert sum(note.code == "skill" for note in imported.notes) == len(tasks)
        assert parse_native(document_of(dump_native(workflow))) == workflow
        for node, task in zip(workflow.llm_nodes, tasks, strict=True):
            assert task["objective"] in node.prompt


def test_the_real_export_with_text_after_its_json_is_refused_at_its_line(shared_data: Path) -> None:
    (path,) = (shared_data / "workflows" / "n8n").glob("Automate_Competitor*.json")
    assert found(import_problems(path.read_bytes(), path.name)) == [("extra_text", "", 1359)]
