"""Importer of Flow files (tmllab/2025_ICLR_FLOW), both schemas: a plan of tasks becomes LLM nodes.

Flow says what is to be done, by whom and after what; skills come from the rule of skills.py, prompts are composed of
the task, the objective, the role and the predecessors' outputs. No work is dropped: several last tasks are brought
together by a `template` tool node, because a workflow has one output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from planner.compiler.references import escape
from planner.compiler.workflow import LlmNode, Node, ToolNode, Workflow
from planner.importers.document import Document
from planner.importers.flow_plan import FlowPlan, FlowTask, Reader
from planner.importers.flow_subtasks import read_subtasks
from planner.importers.flow_tasks import read_tasks
from planner.importers.graph import cycle_text, find_cycles, sinks
from planner.importers.notes import Note
from planner.importers.problems import Problem
from planner.importers.schema_check import MAX_EDGES, MAX_NODES
from planner.importers.skills import choose_skill

_JOIN_S = 0.01


def recognises(value: Any) -> bool:
    return _is_subtasks(value) or _is_tasks(value)


def parse_flow(document: Document, filename: str = "") -> tuple[Workflow, tuple[Note, ...]]:
    """The workflow of a Flow file and the choices made. Raises WorkflowRejected with every problem."""
    document.refuse(_oversized(document.value))
    reader = Reader()
    read = read_subtasks if _is_subtasks(document.value) else read_tasks
    plan = read(document.value, reader)
    document.refuse((*reader.problems, *_plan_problems(plan, bool(reader.problems))))
    nodes, output = _nodes(plan, reader)
    workflow = Workflow(
        name=_name(plan, filename, reader),
        description=plan.task,
        nodes=nodes,
        edges=_edges(plan, nodes),
        output=output,
    )
    return workflow, tuple(reader.notes)


def _is_subtasks(value: Any) -> bool:
    return isinstance(value, Mapping) and "subtasks" in value


def _is_tasks(value: Any) -> bool:
    tasks = value.get("workflow") if isinstance(value, Mapping) else value
    if isinstance(tasks, Mapping):
        return any(isinstance(task, Mapping) and "objective" in task for task in tasks.values())
    return isinstance(tasks, list) and any(isinstance(task, Mapping) and "objective" in task for task in tasks)


def _oversized(value: Any) -> Iterator[Problem]:
    """Lists beyond every limit are refused before they are read."""
    parent, at = (value, "/") if isinstance(value, Mapping) else ({"workflow": value}, "")
    limits = (
        ("subtasks", MAX_NODES),
        ("workflow", MAX_NODES),
        ("agents", MAX_NODES),
        ("subtask_dependencies", MAX_EDGES),
    )
    for key, limit in limits:
        members = parent.get(key)
        if isinstance(members, list | dict) and len(members) > limit:
            message = f"{key!r} has {len(members):,} entries; the limit is {limit:,}."
            code = "too_many_edges" if limit == MAX_EDGES else "too_many_nodes"
            yield Problem(code=code, pointer=at and at + key, message=message, remedy="Split the workflow.")


def _plan_problems(plan: FlowPlan, incomplete: bool) -> Iterator[Problem]:
    ids = [task.id for task in plan.tasks]
    joined = len(sinks(ids, plan.edges)) > 1
    if not ids and not incomplete:
        yield Problem(code="empty", message="The file has no tasks.", remedy="Add at least one task.")
    if len(ids) + joined > MAX_NODES:
        message = (
            f"There are {len(ids) + joined:,} nodes, one that joins the results included; the limit is {MAX_NODES:,}."
        )
        yield Problem(code="too_many_nodes", message=message, remedy="Split the workflow.")
        return
    if len(plan.edges) > MAX_EDGES:
        message = f"There are {len(plan.edges):,} edges; the limit is {MAX_EDGES:,}."
        yield Problem(code="too_many_edges", message=message, remedy="Split the workflow.")
        return
    keys = {task.id: task.key for task in plan.tasks}
    for cycle in find_cycles(ids, plan.edges):
        yield Problem(
            code="cycle",
            pointer=plan.edges[cycle[-2], cycle[-1]],
            message=f"These tasks wait for each other: {cycle_text([keys[node] for node in cycle])}.",
            remedy="Remove one of these dependencies.",
        )


def _name(plan: FlowPlan, filename: str, reader: Reader) -> str:
    stem = PurePath(filename).stem if filename else ""
    source, text = ("task", plan.task) if plan.task else ("file name", stem) if stem else ("format", "Flow workflow")
    name = shortened(text, 120)
    reader.note("name", f"the name {name!r} comes from the {source}")
    return name


def shortened(text: str, size: int) -> str:
    """`text` on one line, cut at a word to at most `size` characters."""
    line = " ".join(text.split())
    if len(line) <= size:
        return line
    return line[: size - 3].rsplit(" ", 1)[0][: size - 3] + "..."


# --- Nodes -----------------------------------------------------------------------------------------------------------


def _nodes(plan: FlowPlan, reader: Reader) -> tuple[tuple[Node, ...], str]:
    nodes: list[Node] = [_node(task, plan, reader) for task in plan.tasks]
    last = sinks([task.id for task in plan.tasks], plan.edges)
    if len(last) == 1:
        reader.note("output", f"the output node is {last[0]}, the only task without a successor", last[0])
        return tuple(nodes), last[0]
    join = _join(plan, last)
    reader.note(
        "output",
        f"{len(last)} tasks have no successor ({', '.join(last)}): the added tool node {join.id} joins their outputs",
        join.id,
    )
    return (*nodes, join), join.id


def _node(task: FlowTask, plan: FlowPlan, reader: Reader) -> LlmNode:
    choice = choose_skill(task.objective, task.role)
    reader.note("skill", choice.reason, task.id)
    if task.id != task.key:
        reader.note("id", f"the file calls it {task.key!r}", task.id)
    if not task.role:
        reader.note("role", "the file names no role for this task", task.id)
    return LlmNode(
        id=task.id,
        title=_title(task),
        skill=choice.skill,
        system=f"Your role: {escape(task.role)}." if task.role else "",
        prompt=compose_prompt(task, plan),
    )


def _title(task: FlowTask) -> str:
    return shortened(task.role or task.objective, 60)


def compose_prompt(task: FlowTask, plan: FlowPlan) -> str:
    """The prompt of one task: overall task, objective, output format, and the outputs of its predecessors."""
    parts = [f"Overall task: {escape(plan.task)}" if plan.task else "", "You work on one step of a larger workflow."]
    parts.append(f"Your step: {escape(task.objective)}")
    if task.output_format:
        parts.append(f"Form of the result: {escape(task.output_format)}")
    before = [other for other in plan.tasks if (other.id, task.id) in plan.edges]
    if before:
        parts.append("Results of the steps before yours:")
        parts += [_section(other) for other in before]
    parts.append("Do this step only, and answer with its complete result.")
    return "\n\n".join(part for part in parts if part)


def _section(task: FlowTask) -> str:
    heading = f"{task.role}: {task.objective}" if task.role else task.objective
    return f"## {escape(shortened(heading, 160))}\n\n{{{{ nodes.{task.id}.output }}}}"


def _join(plan: FlowPlan, last: tuple[str, ...]) -> ToolNode:
    taken = {task.id for task in plan.tasks}
    node_id = next(name for name in ("result", *(f"result_{n}" for n in range(2, MAX_NODES + 2))) if name not in taken)
    sections = [_section(task) for task in plan.tasks if task.id in last]
    return ToolNode(
        id=node_id,
        tool="template",
        title="Result",
        arguments={"template": "\n\n".join(sections)},
        expected_s=_JOIN_S,
    )


def _edges(plan: FlowPlan, nodes: tuple[Node, ...]) -> tuple[tuple[str, str], ...]:
    position = {node.id: index for index, node in enumerate(nodes)}
    edges = set(plan.edges)
    if len(nodes) > len(plan.tasks):
        edges |= {(sink, nodes[-1].id) for sink in sinks([task.id for task in plan.tasks], plan.edges)}
    return tuple(sorted(edges, key=lambda edge: (position[edge[0]], position[edge[1]])))
