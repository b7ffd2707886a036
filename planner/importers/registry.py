"""The formats that dyserve reads, how one is recognised, and the one function that imports any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.compiler.workflow import LlmNode, Node, Workflow
from planner.importers import flow, native
from planner.importers.document import Document, document_of, read_document
from planner.importers.native_checks import unknown_name
from planner.importers.notes import Note
from planner.importers.problems import Problem, WorkflowRejected
from planner.importers.schema_check import is_skill
from planner.importers.values import describe

Parsed = tuple[Workflow, tuple[Note, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One file format: how it is recognised and read. `parse` takes the document and the file's name."""

    name: str
    title: str
    recognises: Callable[[Any], bool]
    parse: Callable[[Document, str], Parsed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A workflow with the name of the format it came from and the choices made on the way."""

    workflow: Workflow
    format: str
    notes: tuple[Note, ...] = ()


def _parse_native(document: Document, filename: str) -> Parsed:
    workflow = native.parse_native(document)
    return workflow, tuple(_idle_notes(workflow))


def _idle_notes(workflow: Workflow) -> Iterator[Note]:
    for node in workflow.nodes:
        if not workflow.reaches_output(node.id):
            message = (
                f"no path leads from here to the output node {workflow.output}: it runs, but cannot affect the result"
            )
            yield Note(code="idle", message=message, node=node.id)


FORMATS: tuple[Format, ...] = (
    Format(
        name="native",
        title="dyserve workflow (an object with `dyserve: 1`)",
        recognises=native.recognises,
        parse=_parse_native,
    ),
    Format(
        name="flow",
        title="Flow (an object with `subtasks`, or `workflow` tasks with `objective`, or a list of such tasks)",
        recognises=flow.recognises,
        parse=flow.parse_flow,
    ),
)


def detect(document: Document) -> str:
    """The name of the document's format. Raises WorkflowRejected when it is none of them."""
    for candidate in FORMATS:
        if candidate.recognises(document.value):
            return candidate.name
    document.refuse([_unknown_format(document.value)])
    raise AssertionError("refuse raises on a problem")


def import_workflow(
    data: bytes, *, filename: str = "", format: str | None = None, skills: Mapping[str, str] | None = None
) -> Imported:
    """Read a workflow in any format; `format` skips the detection, `skills` overrules skills by node id.

    Raises WorkflowRejected, and nothing else, whatever the bytes.
    """
    return import_document(read_document(data, filename=filename), filename=filename, format=format, skills=skills)


def import_value(
    value: Any, *, filename: str = "", format: str | None = None, skills: Mapping[str, str] | None = None
) -> Imported:
    """Like `import_workflow` for a value that is parsed already, as in an API request: problems have no lines."""
    return import_document(document_of(value), filename=filename, format=format, skills=skills)


def import_document(
    document: Document, *, filename: str = "", format: str | None = None, skills: Mapping[str, str] | None = None
) -> Imported:
    chosen = _format(format or detect(document))
    workflow, notes = chosen.parse(document, filename)
    if skills:
        document.refuse(_override_problems(workflow, skills))
        workflow = replace(workflow, nodes=tuple(_with_skill(node, skills) for node in workflow.nodes))
        notes = (*_without_skill_notes(notes, skills), *_override_notes(skills))
    return Imported(workflow=workflow, format=chosen.name, notes=notes)


def _format(name: str) -> Format:
    for candidate in FORMATS:
        if candidate.name == name:
            return candidate
    problem = unknown_name("format", name, "", [candidate.name for candidate in FORMATS], "unknown_format")
    raise WorkflowRejected([problem])


def _unknown_format(value: Any) -> Problem:
    supported = "; ".join(candidate.title for candidate in FORMATS)
    looks_native = isinstance(value, Mapping) and "nodes" in value and "name" in value
    hint = " If it is meant to be a dyserve workflow, add `dyserve: 1`." if looks_native else ""
    return Problem(
        code="unknown_format",
        message=f"The format is not known: the document is {_seen(value)}.",
        remedy=f"Supported: {supported}.{hint}",
    )


def _seen(value: Any) -> str:
    if isinstance(value, Mapping):
        keys = ", ".join(repr(key[:40]) for key in list(value)[:10]) or "none"
        return f"an object with the keys {keys}" + (", ..." if len(value) > 10 else "")
    if isinstance(value, list):
        return f"a list of {len(value)}" + (f", starting with {describe(value[0])}" if value else "")
    return describe(value)


# --- Overruled skills ------------------------------------------------------------------------------------------------


def _override_problems(workflow: Workflow, skills: Mapping[str, str]) -> Iterator[Problem]:
    llm = [node.id for node in workflow.llm_nodes]
    for node_id, skill in skills.items():
        if node_id not in llm:
            yield unknown_name("LLM node", node_id, "", llm, "unknown_node")
        if not is_skill(skill):
            message = f"{skill[:80]!r}, given for node {node_id[:80]!r}, is no skill tag."
            yield Problem(code="bad_name", message=message, remedy="Use lower-case letters, digits, - and _.")


def _with_skill(node: Node, skills: Mapping[str, str]) -> Node:
    return replace(node, skill=skills[node.id]) if isinstance(node, LlmNode) and node.id in skills else node


def _without_skill_notes(notes: tuple[Note, ...], skills: Mapping[str, str]) -> Iterator[Note]:
    return (note for note in notes if not (note.code == "skill" and note.node in skills))


def _override_notes(skills: Mapping[str, str]) -> Iterator[Note]:
    return (
        Note(code="skill", message=f"skill {skill}: given by the user", node=node) for node, skill in skills.items()
    )
