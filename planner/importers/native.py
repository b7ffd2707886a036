"""The native workflow format, version 1: document to Workflow and back (docs/workflow-format.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from planner.compiler.references import node_references
from planner.compiler.workflow import InputSpec, LlmNode, Node, OutputSpec, ToolNode, Workflow
from planner.importers.document import Document
from planner.importers.graph import Edge, sinks
from planner.importers.native_checks import meaning_problems
from planner.importers.problems import Problem
from planner.importers.salvage import salvaged
from planner.importers.schema_check import shape_problems

FORMAT_VERSION = 1


def recognises(value: Any) -> bool:
    return isinstance(value, Mapping) and "dyserve" in value


def parse_native(document: Document) -> Workflow:
    """The workflow of a native document. Raises WorkflowRejected with every problem, its line and its pointer."""
    misshapen = shape_problems(document.value)
    document.refuse(chain(misshapen, _meaning_despite(document.value, misshapen)))
    data: Mapping[str, Any] = document.value
    nodes = tuple(_node(node) for node in data["nodes"])
    edges = merged_edges(nodes, _explicit(data).values())
    return Workflow(
        name=data["name"],
        description=data.get("description", ""),
        inputs=tuple(_input(name, spec) for name, spec in data.get("inputs", {}).items()),
        nodes=nodes,
        edges=edges,
        output=data["output"] if "output" in data else sinks([node.id for node in nodes], edges)[0],
        deadline_s=float(data["deadline_s"]) if "deadline_s" in data else None,
    )


def _meaning_despite(value: Any, misshapen: tuple[Problem, ...]) -> Iterable[Problem]:
    """The problems of meaning, also of what remains readable beside the problems of shape."""
    if not misshapen:
        return meaning_problems(value, tuple(map(_node, value["nodes"])), _explicit(value))
    rest = salvaged(value, misshapen)
    if rest is None:
        return ()
    explicit = dict(zip(rest.edge_positions, _explicit(rest.data).values(), strict=True))
    return meaning_problems(rest.data, tuple(map(_node, rest.data["nodes"])), explicit, complete=False)


def _explicit(data: Mapping[str, Any]) -> dict[int, Edge]:
    """The explicit edges by their position in the document."""
    return {index: (edge["from"], edge["to"]) for index, edge in enumerate(data.get("edges", ()))}


def merged_edges(nodes: tuple[Node, ...], explicit: Iterable[Edge]) -> tuple[Edge, ...]:
    """Explicit edges and those that references imply, once each, by the position of source and target."""
    position = {node.id: index for index, node in enumerate(nodes)}
    implied = {
        (reference.name, node.id) for node in nodes for reference in node_references(node) if reference.kind == "node"
    }
    return tuple(sorted({*explicit, *implied}, key=lambda edge: (position[edge[0]], position[edge[1]])))


def dump_native(workflow: Workflow) -> dict[str, Any]:
    """The canonical document: every edge and every default written out, only what is absent left out.

    `parse_native` makes an equal workflow of it. Stored versions are these documents, so that a later change of a
    default changes no stored workflow.
    """
    return {
        "dyserve": FORMAT_VERSION,
        "name": workflow.name,
        **_present(description=workflow.description),
        **_present(inputs={spec.name: _dump_input(spec) for spec in workflow.inputs}),
        "nodes": [_dump_node(node) for node in workflow.nodes],
        "edges": [{"from": source, "to": target} for source, target in workflow.edges],
        "output": workflow.output,
        **_present(deadline_s=workflow.deadline_s),
    }


def content_digest(workflow: Workflow) -> str:
    """SHA-256 of the canonical document: equal for equal content, whatever its syntax, key order or comments."""
    canonical = json.dumps(dump_native(workflow), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


# --- Reading ---------------------------------------------------------------------------------------------------------


def _input(name: str, spec: Mapping[str, Any]) -> InputSpec:
    default = spec.get("default")
    return InputSpec(
        name=name,
        type=spec.get("type", "string"),
        required=spec.get("required", default is None),
        default=int(default) if spec.get("type") == "integer" and default is not None else default,
        description=spec.get("description", ""),
    )


def _node(data: Mapping[str, Any]) -> Node:
    return _llm_node(data) if data["kind"] == "llm" else _tool_node(data)


def _llm_node(data: Mapping[str, Any]) -> LlmNode:
    given = {key: data[key] for key in ("title", "system", "thinking", "reexecute") if key in data}
    if "max_tokens" in data:
        given["max_tokens"] = int(data["max_tokens"])
    if "temperature" in data:
        given["temperature"] = float(data["temperature"])
    given |= {key: tuple(data[key]) for key in ("models", "policies") if key in data}
    return LlmNode(
        id=data["id"], skill=data["skill"], prompt=data["prompt"], output=_output(data.get("output", {})), **given
    )


def _output(data: Mapping[str, Any]) -> OutputSpec:
    return OutputSpec(format=data.get("format", "text"), schema=data.get("schema"))


def _tool_node(data: Mapping[str, Any]) -> ToolNode:
    given = {key: data[key] for key in ("title", "arguments", "effect", "anchor") if key in data}
    given |= {key: float(data[key]) for key in ("timeout_s", "expected_s") if key in data}
    return ToolNode(id=data["id"], tool=data["tool"], **given)


# --- Writing ---------------------------------------------------------------------------------------------------------


def _present(**values: Any) -> dict[str, Any]:
    """Without what is absent: None, and empty texts and collections."""
    return {key: value for key, value in values.items() if value not in (None, "", {}, [], ())}


def _dump_input(spec: InputSpec) -> dict[str, Any]:
    default = {} if spec.default is None else {"default": spec.default}
    return {"type": spec.type, "required": spec.required, **default, **_present(description=spec.description)}


def _dump_node(node: Node) -> dict[str, Any]:
    return _dump_llm(node) if isinstance(node, LlmNode) else _dump_tool(node)


def _dump_llm(node: LlmNode) -> dict[str, Any]:
    return {
        "id": node.id,
        "kind": "llm",
        **_present(title=node.title),
        "skill": node.skill,
        **_present(system=node.system),
        "prompt": node.prompt,
        "max_tokens": node.max_tokens,
        **({} if node.temperature is None else {"temperature": node.temperature}),
        "thinking": node.thinking,
        **_present(models=list(node.models or ()), policies=list(node.policies or ())),
        "output": _dump_output(node.output),
        "reexecute": node.reexecute,
    }


def _dump_output(output: OutputSpec) -> dict[str, Any]:
    schema = {} if output.schema is None else {"schema": plain(output.schema)}
    return {"format": output.format, **schema}


def _dump_tool(node: ToolNode) -> dict[str, Any]:
    return {
        "id": node.id,
        "kind": "tool",
        **_present(title=node.title),
        "tool": node.tool,
        **_present(arguments=plain(node.arguments)),
        "timeout_s": node.timeout_s,
        "expected_s": node.expected_s,
        "effect": node.effect,
        **_present(anchor=node.anchor),
    }


def plain(value: Any) -> Any:
    """A JSON value made of dicts and lists, whatever mappings and tuples it was made of."""
    if isinstance(value, Mapping):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    return value
