"""Whether the names in a workflow exist where it is to be compiled: skills, model classes, policies, tools."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from planner.compiler.workflow import LlmNode, Workflow
from planner.importers.native_checks import unknown_name
from planner.importers.problems import Problem, pointer


def check_against(
    workflow: Workflow,
    skills: Collection[str],
    models: Collection[str],
    policies: Collection[str],
    tools: Collection[str],
) -> tuple[Problem, ...]:
    """Names of `workflow` that are in none of the four collections; pointers are those of its canonical document."""
    return tuple(_unknown(workflow, skills, models, policies, tools))


def _unknown(
    workflow: Workflow,
    skills: Collection[str],
    models: Collection[str],
    policies: Collection[str],
    tools: Collection[str],
) -> Iterator[Problem]:
    for index, node in enumerate(workflow.nodes):
        at = pointer("nodes", index)
        if not isinstance(node, LlmNode):
            if node.tool not in tools:
                yield unknown_name("tool", node.tool, f"{at}/tool", tools, "unknown_tool")
            continue
        if node.skill not in skills:
            yield unknown_name("skill", node.skill, f"{at}/skill", skills, "unknown_skill")
        for position, model in enumerate(node.models or ()):
            if model not in models:
                yield unknown_name("model class", model, f"{at}/models/{position}", models, "unknown_model")
        for position, policy in enumerate(node.policies or ()):
            if policy not in policies:
                yield unknown_name("policy", policy, f"{at}/policies/{position}", policies, "unknown_policy")
