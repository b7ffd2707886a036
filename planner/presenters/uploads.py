"""What the upload page says about a document: its problems with their lines, or what would be stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from planner.compiler.workflow import LlmNode, Workflow
from planner.importers import Imported
from planner.importers.notes import Note
from planner.importers.problems import Problem
from planner.presenters.dag import DagView, dag_view

EXCERPT_CHARACTERS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRow:
    """A problem with the line of the document that it is about (empty when unknown)."""

    message: str
    remedy: str
    pointer: str
    line: int | None
    column: int | None
    excerpt: str

    @property
    def place(self) -> str:
        if self.line is None:
            return ""
        return f"line {self.line}" + (f", column {self.column}" if self.column else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRow:
    """The skill of one LLM node, why, and what else can be chosen. `field` is the control's name once it is chosen."""

    node: str
    title: str
    field: str
    skill: str
    reason: str
    choices: tuple[str, ...]
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    workflow: Workflow
    format: str
    dag: DagView
    skills: tuple[SkillRow, ...]
    notes: tuple[Note, ...]

    @property
    def counts(self) -> str:
        llm, tools = len(self.workflow.llm_nodes), len(self.workflow.tool_nodes)
        parts = [
            f"{llm} LLM node{'s' * (llm != 1)}" if llm else "",
            f"{tools} tool{'s' * (tools != 1)}" if tools else "",
        ]
        edges = len(self.workflow.edges)
        return ", ".join([*filter(None, parts), f"{edges} edge{'s' * (edges != 1)}"])


def problem_rows(problems: Iterable[Problem], data: bytes) -> tuple[ProblemRow, ...]:
    lines = data.decode("utf-8", errors="replace").split("\n")
    return tuple(
        ProblemRow(
            message=problem.message,
            remedy=problem.remedy,
            pointer=problem.pointer,
            line=problem.line,
            column=problem.column,
            excerpt=_excerpt(lines, problem),
        )
        for problem in problems
    )


def _excerpt(lines: list[str], problem: Problem) -> str:
    """The line, cut around the column where it is long."""
    if problem.line is None or not 0 < problem.line <= len(lines):
        return ""
    text = lines[problem.line - 1].rstrip("\r")
    start = max(0, (problem.column or 1) - EXCERPT_CHARACTERS // 2) if len(text) > EXCERPT_CHARACTERS else 0
    cut = text[start : start + EXCERPT_CHARACTERS]
    return ("…" if start else "") + cut.replace("\t", "  ") + ("…" if start + EXCERPT_CHARACTERS < len(text) else "")


def preview_of(imported: Imported, skills: Iterable[str], chosen: Collection[str] = ()) -> Preview:
    """`skills` are those with profiles (a node's own can always be kept), `chosen` the nodes a person overruled."""
    known = tuple(dict.fromkeys(skills))
    return Preview(
        workflow=imported.workflow,
        format=imported.format,
        dag=dag_view(imported.workflow, clickable=False),
        skills=tuple(_skill_rows(imported, known, chosen)),
        notes=tuple(note for note in imported.notes if note.code != "skill"),
    )


def _skill_rows(imported: Imported, known: tuple[str, ...], chosen: Collection[str]) -> Iterable[SkillRow]:
    """One row for every node whose skill was derived or given, in file order."""
    reasons = {note.node: note.message for note in imported.notes if note.code == "skill"}
    for node in imported.workflow.nodes:
        if isinstance(node, LlmNode) and node.id in reasons:
            yield SkillRow(
                node=node.id,
                title=node.title or node.id,
                field=f"skill.{node.id}",
                skill=node.skill,
                reason=reasons[node.id],
                choices=tuple(dict.fromkeys((*known, node.skill))),
                chosen=node.id in chosen,
            )
