"""Workflows and plans that the page tests start from; the hostile ones try to break out of every context."""

from __future__ import annotations

import json

from fleet.demo import demo_catalog
from planner.compiler.bundle import compile_bundle
from planner.compiler.plan import Bundle
from planner.compiler.problem import PlanningProblem
from planner.compiler.workflow import LlmNode, ToolNode, Workflow
from planner.data import load_profiles

HOSTILE = "</script><img src=x onerror=alert(1)>"
FLOW = {
    "workflow": {
        "task0": {"objective": "Plan the architecture.", "agent_id": 0, "next": ["task1", "task2"], "prev": []},
        "task1": {"objective": "Implement the module.", "agent_id": 1, "next": ["task3"], "prev": ["task0"]},
        "task2": {"objective": "Write the text.", "agent_id": 1, "next": ["task3"], "prev": ["task0"]},
        "task3": {"objective": "Test all of it.", "agent_id": 0, "next": [], "prev": ["task1", "task2"]},
    },
    "agents": [{"id": "Agent 0", "role": "Lead"}, {"id": "Agent 1", "role": "Developer"}],
}
BROKEN = """\
dyserve: 1
name: broken
nodes:
  - id: a
    kind: llm
    skill: plan
    prompt: "{{ nodes.missing.output }}"
  - id: a
    kind: llm
    skill: code
    prompt: hello
    max_tokens: many
"""


def chain(count: int = 3) -> Workflow:
    return Workflow(
        name="Chain",
        nodes=tuple(LlmNode(id=f"n{i}", skill="code", prompt="p", title=f"Step {i}") for i in range(count)),
        edges=tuple((f"n{i}", f"n{i + 1}") for i in range(count - 1)),
        output=f"n{count - 1}",
    )


def fork_join() -> Workflow:
    """source -> two branches and a tool -> end; the end is the output."""
    nodes = (
        LlmNode(id="source", skill="plan", prompt="p"),
        LlmNode(id="left", skill="code", prompt="p"),
        ToolNode(id="right", tool="template"),
        LlmNode(id="end", skill="answer", prompt="p"),
    )
    edges = (("source", "left"), ("source", "right"), ("left", "end"), ("right", "end"))
    return Workflow(name="Fork", nodes=nodes, edges=edges, output="end")


def problem(workflow: Workflow) -> PlanningProblem:
    return PlanningProblem(workflow=workflow, catalog=demo_catalog(10.0), profiles=load_profiles())


def bundle(workflow: Workflow) -> Bundle:
    found = compile_bundle(problem(workflow))
    assert isinstance(found, Bundle)
    return found


def native(name: str = "Two steps", *, title: str = "First", description: str = "", skill: str = "plan") -> str:
    """A native document with an input of every type."""
    return json.dumps(
        {
            "dyserve": 1,
            "name": name,
            "description": description,
            "deadline_s": 30,
            "inputs": {
                "topic": {"type": "string", "default": "bees"},
                "count": {"type": "integer", "required": True},
                "ratio": {"type": "number", "required": False},
                "loud": {"type": "boolean", "required": False},
                "extra": {"type": "json", "required": False},
            },
            "nodes": [
                {"id": "first", "kind": "llm", "skill": skill, "title": title, "prompt": "On {{ inputs.topic }}"},
                {"id": "second", "kind": "llm", "skill": "writing", "prompt": "Write {{ nodes.first.output }}"},
            ],
        }
    )
