"""What a native document of the right shape must also mean: names that exist, no cycle, one output, legal values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from planner.compiler.policies import POLICIES, policy_names
from planner.compiler.references import REMEDY, Reference, find_references, malformed
from planner.compiler.workflow import LlmNode, Node, ToolNode
from planner.importers.graph import Edge, ancestors, cycle_text, find_cycles, sinks
from planner.importers.inputs import has_type
from planner.importers.nearest import nearest
from planner.importers.output_schema import schema_problems
from planner.importers.problems import Problem, pointer
from planner.importers.salvage import UNREAD
from planner.importers.schema_check import MAX_EDGES
from planner.importers.values import describe

MAX_SCHEMA_PARTS = 2_500


def meaning_problems(
    data: Mapping[str, Any], nodes: tuple[Node, ...], explicit: Mapping[int, Edge], *, complete: bool = True
) -> Iterator[Problem]:
    """Every problem of `data`, which has the published schema's shape and was read into `nodes` and `explicit`.

    `explicit` holds edges by their position in the document. Not `complete`: parts of the document were unreadable, so
    nothing is said that they could change.
    """
    edges = _edges(nodes, explicit)
    yield from _repeated_ids(nodes)
    yield from _input_problems(data.get("inputs", {}))
    yield from _edge_problems(nodes, explicit, edges)
    yield from _template_problems(data.get("inputs", {}), nodes)
    yield from _cycle_problems(nodes, edges)
    if complete or "output" in data:
        yield from _output_problems(data, nodes, tuple(edges))
    for index, node in enumerate(nodes):
        if isinstance(node, LlmNode):
            yield from _policy_problems(node, pointer("nodes", index, "policies"))
        elif complete:
            yield from _anchor_problems(node, nodes, tuple(edges), pointer("nodes", index, "anchor"))
    yield from _schema_problems(nodes)


# --- Names -----------------------------------------------------------------------------------------------------------


def _repeated_ids(nodes: tuple[Node, ...]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, node in enumerate(nodes):
        if node.id in first:
            yield Problem(
                code="duplicate_id",
                pointer=pointer("nodes", index, "id"),
                message=f"The id {node.id!r} is taken by node {first[node.id]} of the list.",
                remedy="Give every node an id of its own.",
            )
        first.setdefault(node.id, index)


def unknown_name(what: str, name: str, at: str, known: Iterable[str], code: str) -> Problem:
    """A name that does not exist, with the nearest one that does."""
    names = sorted(name for name in known if not name.startswith(UNREAD))
    close = nearest(name, names)
    listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    remedy = f"Did you mean {close!r}?" if close else f"Known: {listed or 'none'}."
    return Problem(code=code, pointer=at, message=f"There is no {what} {name[:80]!r}.", remedy=remedy)


def _input_problems(inputs: Mapping[str, Any]) -> Iterator[Problem]:
    for name, spec in inputs.items():
        default, wanted = spec.get("default"), spec.get("type", "string")
        if default is None:
            continue
        if not has_type(default, wanted):
            yield Problem(
                code="wrong_type",
                pointer=pointer("inputs", name, "default"),
                message=f"The default of {name!r} is {describe(default)}, not of type {wanted}.",
                remedy=f"Write a {wanted} value, or change the type.",
            )
        if spec.get("required"):
            yield Problem(
                code="contradiction",
                pointer=pointer("inputs", name, "required"),
                message=f"The input {name!r} is required, so its default is never used.",
                remedy="Remove one of the two.",
            )


# --- References and edges --------------------------------------------------------------------------------------------


def _templates(node: Node) -> Iterator[tuple[str, str]]:
    """(pointer inside the node, text) of each template of a node."""
    if isinstance(node, LlmNode):
        yield "/prompt", node.prompt
        yield "/system", node.system
    else:
        yield from _texts(node.arguments, "/arguments")


def _texts(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, Mapping | list):
        for key, member in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _texts(member, at + pointer(key))


def _keys(value: Any, at: str) -> Iterator[tuple[str, str]]:
    """(pointer, key) of every object key in a tool's arguments."""
    if isinstance(value, Mapping | list):
        for key, member in value.items() if isinstance(value, Mapping) else enumerate(value):
            if isinstance(key, str):
                yield at + pointer(key), key
            yield from _keys(member, at + pointer(key))


def _key_problems(node: ToolNode, at: str) -> Iterator[Problem]:
    for place, key in _keys(node.arguments, at):
        if "{{" in key:
            message = f"The key {key[:80]!r} looks like a reference, but keys are taken as they are."
            yield Problem(code="bad_reference", pointer=place, message=message, remedy="Put references into values.")


def _template_problems(inputs: Mapping[str, Any], nodes: tuple[Node, ...]) -> Iterator[Problem]:
    by_id = {node.id: node for node in nodes}
    for index, node in enumerate(nodes):
        if isinstance(node, ToolNode):
            yield from _key_problems(node, pointer("nodes", index, "arguments"))
        for inside, text in _templates(node):
            at = pointer("nodes", index) + inside
            bad = malformed(text)
            if bad is not None:
                yield Problem(code="bad_reference", pointer=at, message=f"{bad!r} is no reference.", remedy=REMEDY)
            for reference in dict.fromkeys(find_references(text)):
                if reference.kind == "input":
                    yield from _input_reference_problems(reference, at, inputs)
                else:
                    yield from _node_reference_problems(reference, at, by_id)


def _input_reference_problems(reference: Reference, at: str, inputs: Mapping[str, Any]) -> Iterator[Problem]:
    if reference.name not in inputs:
        yield unknown_name("input", reference.name, at, inputs, "unknown_input")
    elif reference.path and inputs[reference.name].get("type", "string") != "json":
        yield Problem(
            code="no_fields",
            pointer=at,
            message=f"{{{{ {reference} }}}} goes into the input {reference.name!r}, which is not of type json.",
            remedy="Reference the input as a whole, or declare it with type: json.",
        )


def _node_reference_problems(reference: Reference, at: str, by_id: Mapping[str, Node]) -> Iterator[Problem]:
    node = by_id.get(reference.name)
    if node is None:
        yield unknown_name("node", reference.name, at, by_id, "unknown_node")
    elif reference.path and isinstance(node, LlmNode) and node.output.format == "text":
        yield Problem(
            code="no_fields",
            pointer=at,
            message=f"{{{{ {reference} }}}} goes into the output of {node.id!r}, which is text.",
            remedy=f"Reference the output as a whole, or give {node.id!r} an output with format: json.",
        )


def _edges(nodes: tuple[Node, ...], explicit: Mapping[int, Edge]) -> dict[Edge, str]:
    """Every edge whose ends exist, explicit or implied by a reference, with the pointer that makes it."""
    ids = {node.id for node in nodes}
    found: dict[Edge, str] = {}
    for index, edge in explicit.items():
        if ids.issuperset(edge):
            found.setdefault(edge, pointer("edges", index))
    for index, node in enumerate(nodes):
        for inside, text in _templates(node):
            for reference in find_references(text):
                if reference.kind == "node" and reference.name in ids:
                    found.setdefault((reference.name, node.id), pointer("nodes", index) + inside)
    return found


def _edge_problems(
    nodes: tuple[Node, ...], explicit: Mapping[int, Edge], edges: Mapping[Edge, str]
) -> Iterator[Problem]:
    ids = {node.id for node in nodes}
    for index, edge in explicit.items():
        for end, name in zip(("from", "to"), edge, strict=True):
            if name not in ids:
                yield unknown_name("node", name, pointer("edges", index, end), ids, "unknown_node")
    if len(edges) > MAX_EDGES:
        message = f"References and edges together make {len(edges):,} edges; the limit is {MAX_EDGES:,}."
        yield Problem(code="too_many_edges", pointer="/nodes", message=message, remedy="Split the workflow.")


def _cycle_problems(nodes: tuple[Node, ...], edges: Mapping[Edge, str]) -> Iterator[Problem]:
    for cycle in find_cycles(list(dict.fromkeys(node.id for node in nodes)), edges):
        yield Problem(
            code="cycle",
            pointer=edges[cycle[-2], cycle[-1]],
            message=f"These nodes wait for each other: {cycle_text(cycle)}.",
            remedy="Remove an edge or a reference of the cycle; repeated work belongs in nodes of their own.",
        )


# --- The output node, policies, anchors, schemas ---------------------------------------------------------------------


def _output_problems(data: Mapping[str, Any], nodes: tuple[Node, ...], edges: tuple[Edge, ...]) -> Iterator[Problem]:
    ids = list(dict.fromkeys(node.id for node in nodes))
    if "output" in data:
        if data["output"] not in ids:
            yield unknown_name("node", data["output"], "/output", ids, "unknown_node")
        return
    last = sinks(ids, edges)
    if len(last) > 1:
        shown = ", ".join(last[:20]) + (", ..." if len(last) > 20 else "")
        yield Problem(
            code="no_output",
            message=f"The output node is not named, and several nodes have no successor: {shown}.",
            remedy=f"Add `output: {last[-1]}`, or a node that brings them together.",
        )


def _policy_problems(node: LlmNode, at: str) -> Iterator[Problem]:
    named = node.policies or ()
    for index, name in enumerate(named):
        if name not in POLICIES:
            yield unknown_name("policy", name, at + pointer(index), policy_names(), "unknown_policy")
    comparing = [name for name in named if name in POLICIES and "comparable" in POLICIES[name].requires]
    if named and comparing == list(named) and node.output.format == "text":
        yield Problem(
            code="no_legal_policy",
            pointer=at,
            message=f"{', '.join(named)} compares outputs, but the output of {node.id!r} is free text.",
            remedy="Give the node an output with format: json, or allow another policy.",
        )


def _anchor_problems(node: ToolNode, nodes: tuple[Node, ...], edges: tuple[Edge, ...], at: str) -> Iterator[Problem]:
    if node.anchor is None:
        return
    llm = [other.id for other in nodes if isinstance(other, LlmNode)]
    if node.anchor not in llm:
        yield unknown_name("LLM node", node.anchor, at, llm, "unknown_node")
    elif node.anchor not in ancestors(node.id, edges):
        yield Problem(
            code="anchor_not_upstream",
            pointer=at,
            message=f"The anchor {node.anchor!r} does not come before {node.id!r}.",
            remedy="Name an LLM node whose output reaches this tool, or leave the anchor out.",
        )


def _schema_problems(nodes: tuple[Node, ...]) -> Iterator[Problem]:
    parts = 0
    for index, node in enumerate(nodes):
        if not isinstance(node, LlmNode) or node.output.schema is None:
            continue
        at = pointer("nodes", index, "output", "schema")
        if node.output.format == "text":
            yield Problem(
                code="contradiction",
                pointer=at,
                message="A text output has no schema.",
                remedy="Add `format: json`, or remove the schema.",
            )
        parts += _count(node.output.schema)
        if parts > MAX_SCHEMA_PARTS:
            message = f"The schemas of all nodes together have more than {MAX_SCHEMA_PARTS:,} parts."
            yield Problem(code="schema_too_large", pointer=at, message=message, remedy="Simplify them.")
            return
        yield from schema_problems(node.output.schema, at)


def _count(value: Any) -> int:
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return 1 + sum(_count(member) for member in members)
