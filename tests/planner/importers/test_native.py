from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.policies import policy_names
from planner.compiler.workflow import InputSpec, LlmNode, ToolNode, Workflow
from planner.importers.document import document_of, read_document
from planner.importers.fleet_check import check_against
from planner.importers.native import content_digest, dump_native, parse_native
from planner.importers.registry import Imported, import_workflow
from tests.planner.importers.helpers import attempted, fixture, found, import_problems, native_problems
from tests.planner.importers.strategies import mutated, workflows
from tests.sampling import sampled

RELEASE_NOTES: dict[str, Any] = read_document(fixture("release_notes.yaml")).value


# Whole workflows are slow to draw, and how slow depends on the machine.
few = sampled(40)


def _llm(name: str, prompt: str = "x", **more: Any) -> dict[str, Any]:
    return {"id": name, "kind": "llm", "skill": "plan", "prompt": prompt, **more}


def _tool(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "kind": "tool", "tool": "template", **more}


def _workflow(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"dyserve": 1, "name": "w", "nodes": list(nodes), **more}


def _codes(*nodes: dict[str, Any], **more: Any) -> list[tuple[str, str, int | None]]:
    return found(native_problems(document_of(_workflow(*nodes, **more))))


# --- What is read ----------------------------------------------------------------------------------------------------


def test_a_document_becomes_a_workflow_with_every_value() -> None:
    workflow = parse_native(read_document(fixture("release_notes.yaml")))
    assert workflow.name == "Release notes"
    assert workflow.inputs[1] == InputSpec(name="audience", required=False, default="developers")
    assert workflow.inputs[2] == InputSpec(name="limits", type="json", required=False)
    sort, contents, write = (workflow.by_id[name] for name in ("sort", "contents", "write"))
    assert isinstance(sort, LlmNode)
    assert isinstance(contents, ToolNode)
    assert isinstance(write, LlmNode)
    assert (sort.max_tokens, sort.temperature, sort.output.format) == (600, 0.0, "json")
    assert sort.output.schema is not None
    assert sort.output.schema["$defs"] == {"change": {"type": "string", "maxLength": 200}}
    assert (contents.tool, contents.timeout_s, contents.expected_s, contents.anchor) == (
        "json_select",
        5.0,
        0.01,
        "sort",
    )
    assert contents.effect == "pure"
    assert write.models == ("qwen3.5-27b", "qwen3.5-9b")
    assert write.policies == ("none", "self_check", "debate")
    assert (write.reexecute, write.title, write.thinking) == ("never", "Write the notes", False)
    assert workflow.deadline_s == 60.0


def test_edges_are_explicit_ones_and_references_merged_and_the_only_sink_is_the_output() -> None:
    workflow = parse_native(read_document(fixture("release_notes.yaml")))
    assert workflow.edges == (
        ("sort", "contents"),
        ("sort", "write"),
        ("contents", "write"),
        ("contents", "page"),
        ("write", "page"),
    )
    assert workflow.output == "page"


def test_a_named_output_may_have_successors() -> None:
    data = _workflow(_llm("a"), _llm("b", "{{ nodes.a.output }}"), output="a")
    assert parse_native(document_of(data)).output == "a"


# --- Canonical form --------------------------------------------------------------------------------------------------


@few
@given(workflows())
def test_the_canonical_document_makes_the_same_workflow(workflow: Workflow) -> None:
    text = json.dumps(dump_native(workflow))
    again = parse_native(read_document(text.encode()))
    assert again == workflow
    assert content_digest(again) == content_digest(workflow)


@few
@given(workflows(), st.randoms(use_true_random=False))
def test_the_digest_ignores_key_order(workflow: Workflow, random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            keys = list(value)
            random.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return [shuffled(member) for member in value] if isinstance(value, list) else value

    again = parse_native(document_of(shuffled(dump_native(workflow))))
    assert content_digest(again) == content_digest(workflow)


def test_yaml_and_json_of_the_same_content_have_one_digest() -> None:
    documents = [read_document(fixture(f"release_notes.{syntax}")) for syntax in ("yaml", "json")]
    assert [document.syntax for document in documents] == ["yaml", "json"]
    assert len({content_digest(parse_native(document)) for document in documents}) == 1


def test_an_edge_that_a_reference_implies_changes_no_digest() -> None:
    nodes = (_llm("a"), _llm("b", "{{ nodes.a.output }}"))
    digests = {
        content_digest(parse_native(document_of(_workflow(*nodes, edges=edges))))
        for edges in ([], [{"from": "a", "to": "b"}])
    }
    assert len(digests) == 1


def test_whole_numbers_written_as_decimals_change_no_digest() -> None:
    digests = {
        content_digest(parse_native(document_of(_workflow(_llm("a", max_tokens=tokens, temperature=heat)))))
        for tokens, heat in ((10, 1), (10.0, 1.0))
    }
    assert len(digests) == 1


@few
@given(workflows())
def test_every_change_of_content_changes_the_digest(workflow: Workflow) -> None:
    changed = replace(workflow, description=workflow.description + "x")
    assert content_digest(changed) != content_digest(workflow)


# --- Errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"dyserve": 2}, ("bad_value", "/dyserve")),
        ({"name": ""}, ("empty", "/name")),
        ({"name": "x" * 201}, ("too_long", "/name")),
        ({"name": 3}, ("wrong_type", "/name")),
        ({"description": []}, ("wrong_type", "/description")),
        ({"deadline_s": 0}, ("out_of_range", "/deadline_s")),
        ({"outputs": "a"}, ("unknown_key", "/outputs")),
        ({"inputs": []}, ("wrong_type", "/inputs")),
        ({"inputs": {"a b": {}}}, ("bad_name", "/inputs/a b")),
        ({"inputs": {"a\n": {}}}, ("bad_name", "/inputs/a\n")),
        ({"inputs": {"x": {"type": "text"}}}, ("bad_value", "/inputs/x/type")),
        ({"inputs": {"x": {"default": 3}}}, ("wrong_type", "/inputs/x/default")),
        ({"inputs": {"x": {"type": "integer", "default": 1.5}}}, ("wrong_type", "/inputs/x/default")),
        ({"inputs": {"x": {"default": "a", "required": True}}}, ("contradiction", "/inputs/x/required")),
        ({"inputs": {f"x{n}": {} for n in range(101)}}, ("too_many_inputs", "/inputs")),
        ({"edges": [{"from": "a"}]}, ("missing_key", "/edges/0")),
        ({"edges": [["a", "a"]]}, ("wrong_type", "/edges/0")),
        ({"edges": [{"from": "a", "to": "zz"}]}, ("unknown_node", "/edges/0/to")),
        ({"edges": [{"from": "a", "to": "a"}]}, ("cycle", "/edges/0")),
        ({"edges": [{"from": "a", "to": "a"}] * 10_001}, ("too_many_edges", "/edges")),
        ({"output": "zz"}, ("unknown_node", "/output")),
        ({"nodes": []}, ("empty", "/nodes")),
        ({"nodes": {}}, ("wrong_type", "/nodes")),
        ({"nodes": [7]}, ("wrong_type", "/nodes/0")),
        ({"nodes": [{"id": "a"}]}, ("missing_key", "/nodes/0")),
        ({"nodes": [_llm("a") | {"kind": "lm"}]}, ("bad_value", "/nodes/0/kind")),
        ({"nodes": [_llm("a b")]}, ("bad_name", "/nodes/0/id")),
        ({"nodes": [_llm("a\n")]}, ("bad_name", "/nodes/0/id")),
        ({"nodes": [_llm("a", "")]}, ("empty", "/nodes/0/prompt")),
        ({"nodes": [_llm("a", promt="x")]}, ("unknown_key", "/nodes/0/promt")),
        ({"nodes": [_llm("a", max_tokens=0)]}, ("out_of_range", "/nodes/0/max_tokens")),
        ({"nodes": [_llm("a", max_tokens=True)]}, ("wrong_type", "/nodes/0/max_tokens")),
        ({"nodes": [_llm("a", temperature=2.1)]}, ("out_of_range", "/nodes/0/temperature")),
        ({"nodes": [_llm("a", thinking="yes")]}, ("wrong_type", "/nodes/0/thinking")),
        ({"nodes": [_llm("a", models=[])]}, ("empty", "/nodes/0/models")),
        ({"nodes": [_llm("a", models=["m", "m"])]}, ("repeated", "/nodes/0/models")),
        ({"nodes": [_llm("a", models=list(range(101)))]}, ("too_many_models", "/nodes/0/models")),
        ({"nodes": [_llm("a", policies=["nne"])]}, ("unknown_policy", "/nodes/0/policies/0")),
        ({"nodes": [_llm("a", policies=["self_consistency"])]}, ("no_legal_policy", "/nodes/0/policies")),
        ({"nodes": [_llm("a", skill="Plan it")]}, ("bad_name", "/nodes/0/skill")),
        ({"nodes": [_llm("a", reexecute="maybe")]}, ("bad_value", "/nodes/0/reexecute")),
        ({"nodes": [_llm("a", output={"format": "xml"})]}, ("bad_value", "/nodes/0/output/format")),
        ({"nodes": [_llm("a", output={"schema": {}})]}, ("contradiction", "/nodes/0/output/schema")),
        ({"nodes": [_tool("a", timeout_s=0)]}, ("out_of_range", "/nodes/0/timeout_s")),
        ({"nodes": [_tool("a", expected_s=-1)]}, ("out_of_range", "/nodes/0/expected_s")),
        ({"nodes": [_tool("a", effect="none")]}, ("bad_value", "/nodes/0/effect")),
        ({"nodes": [_tool("a", arguments=[1])]}, ("wrong_type", "/nodes/0/arguments")),
        ({"nodes": [_tool("a", anchor="a")]}, ("unknown_node", "/nodes/0/anchor")),
        ({"nodes": [_tool("a", anchor="b"), _llm("b")], "output": "a"}, ("anchor_not_upstream", "/nodes/0/anchor")),
        ({"nodes": [_llm("a"), _llm("b")]}, ("no_output", "")),
        ({"nodes": [_llm("a"), _tool("a")]}, ("duplicate_id", "/nodes/1/id")),
        ({"nodes": [_llm("a", "{{ inputs.x }}")]}, ("unknown_input", "/nodes/0/prompt")),
        ({"nodes": [_llm("a", system="{{ nodes.b.output }}")]}, ("unknown_node", "/nodes/0/system")),
        ({"nodes": [_llm("a", "{{ a }}")]}, ("bad_reference", "/nodes/0/prompt")),
        ({"nodes": [_llm("a", "{% if x %}{{")]}, ("bad_reference", "/nodes/0/prompt")),
        (
            {"nodes": [_tool("a", arguments={"x": [{"y": "{{ inputs.q }}"}]})]},
            ("unknown_input", "/nodes/0/arguments/x/0/y"),
        ),
        (
            {"nodes": [_tool("a", arguments={"{{ inputs.q }}": 1})]},
            ("bad_reference", "/nodes/0/arguments/{{ inputs.q }}"),
        ),
        ({"inputs": {"x": {}}, "nodes": [_llm("a", "{{ inputs.x.y }}")]}, ("no_fields", "/nodes/0/prompt")),
        ({"nodes": [_llm("a"), _llm("b", "{{ nodes.a.output.y }}")]}, ("no_fields", "/nodes/1/prompt")),
    ],
)
def test_each_error_has_its_code_and_pointer(more: dict[str, Any], expected: tuple[str, str]) -> None:
    problems = native_problems(document_of({"dyserve": 1, "name": "w", "nodes": [_llm("a")]} | more))
    assert [(problem.code, problem.pointer) for problem in problems] == [expected]
    assert problems[0].remedy


def test_every_error_is_reported_at_once_with_its_line_also_beside_errors_of_shape() -> None:
    text = """dyserve: 1
name: x
nodes:
  - {id: a, kind: llm, skill: plan, prompt: "{{ nodes.b.output }} {{ inputs.topic }}", temperature: 9}
  - {id: b, kind: llm, skill: plan, prompt: "{{ nodes.a.output }}", promt: x}
  - {id: b, kind: tool, tool: template, timeout_s: "1"}
  - 12
  - {id: d, kind: llm, skill: plan, prompt: x, policies: [none, 3]}
edges:
  - {from: a}
  - {from: a, to: q}
output: z
"""
    assert found(import_problems(text)) == [
        ("unknown_input", "/nodes/0/prompt", 4),
        ("cycle", "/nodes/0/prompt", 4),
        ("out_of_range", "/nodes/0/temperature", 4),
        ("unknown_key", "/nodes/1/promt", 5),
        ("duplicate_id", "/nodes/2/id", 6),
        ("wrong_type", "/nodes/2/timeout_s", 6),
        ("wrong_type", "/nodes/3", 7),
        ("wrong_type", "/nodes/4/policies/1", 8),
        ("missing_key", "/edges/0", 10),
        ("unknown_node", "/edges/1/to", 11),
        ("unknown_node", "/output", 12),
    ]


def test_json_errors_carry_the_line_of_their_key() -> None:
    text = json.dumps(_workflow(_llm("a", temperature=9), output="b"), indent=2)
    lines = text.splitlines()
    for problem in import_problems(text):
        assert problem.line is not None
        assert lines[problem.line - 1].strip().startswith(f'"{problem.pointer.rsplit("/", 1)[1]}"')


def test_a_cycle_is_named_in_full() -> None:
    problems = native_problems(
        document_of(
            _workflow(
                _llm("a", "{{ nodes.c.output }}"),
                _llm("b", "{{ nodes.a.output }}"),
                _llm("c"),
                _llm("d"),
                edges=[{"from": "b", "to": "c"}, {"from": "c", "to": "d"}],
            )
        )
    )
    assert [problem.message for problem in problems] == ["These nodes wait for each other: a -> b -> c -> a."]


def test_names_that_do_not_exist_come_with_the_nearest_that_do() -> None:
    (problem,) = native_problems(document_of(_workflow(_llm("summary", "{{ nodes.sumary.output }}"))))
    assert problem.remedy == "Did you mean 'summary'?"
    (problem,) = native_problems(document_of(_workflow(_llm("a", temprature=1))))
    assert problem.remedy == "Did you mean 'temperature'?"


def test_several_sinks_are_named() -> None:
    (problem,) = native_problems(document_of(_workflow(_llm("a"), _llm("b"))))
    assert "a, b" in problem.message


@pytest.mark.parametrize("count", [500, 501])
def test_the_node_limit_is_exact(count: int) -> None:
    data = _workflow(*(_llm(f"n{n}") for n in range(count)), output="n0")
    if count == 500:
        assert len(parse_native(document_of(data)).nodes) == 500
    else:
        assert found(native_problems(document_of(data))) == [("too_many_nodes", "/nodes", None)]


def test_references_count_as_edges() -> None:
    everything = [" ".join(f"{{{{ nodes.n{m}.output }}}}" for m in range(n)) or "x" for n in range(150)]
    data = _workflow(*(_llm(f"n{n}", prompt) for n, prompt in enumerate(everything)))
    assert found(native_problems(document_of(data))) == [("too_many_edges", "/nodes", None)]


@few
@given(mutated(RELEASE_NOTES))
def test_near_misses_are_read_or_rejected_and_nothing_else(value: Any) -> None:
    outcome = attempted(lambda: import_workflow(json.dumps(value).encode()))
    if isinstance(outcome, Imported):
        assert parse_native(document_of(dump_native(outcome.workflow))) == outcome.workflow
    else:
        assert all(problem.line is not None for problem in outcome if problem.code != "more_problems")


# --- Against a fleet -------------------------------------------------------------------------------------------------


def test_names_are_checked_against_what_there_is() -> None:
    workflow = parse_native(
        document_of(_workflow(_llm("a", models=["m", "n"], policies=["none"]), _tool("t"), output="a"))
    )
    assert check_against(workflow, {"plan"}, {"m", "n"}, policy_names(), {"template"}) == ()
    problems = check_against(workflow, {"plant"}, {"m"}, (), {"json_select"})
    assert [(problem.code, problem.pointer) for problem in problems] == [
        ("unknown_skill", "/nodes/0/skill"),
        ("unknown_model", "/nodes/0/models/1"),
        ("unknown_policy", "/nodes/0/policies/0"),
        ("unknown_tool", "/nodes/1/tool"),
    ]
    assert problems[0].remedy == "Did you mean 'plant'?"
