"""What pages and the API ask about one plan of a bundle: why it, how far it holds, what else there is, what to trust.

An answer depends on the plan and on what it was compiled from alone, so it is kept (planner.answers).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TypeVar

from planner.answers import Answers
from planner.compiler.explain import Explanation, explain_plan
from planner.compiler.pareto import Axis, Front, pareto_front
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.sensitivity import NotOptimal, Range, sensitivity
from planner.compiler.stability import Stability, stability
from planner.compiler.workflow import Workflow
from planner.errors import NoAnswer, Outdated
from planner.models import PlanBundle, WorkflowVersion
from planner.selectors import bundle_value, options_of_bundle, problem_for, workflow_of_document, workflow_value

TIME_LIMIT_S = 2.0
"""For each question; answers say where the time was not enough."""
DRAWS = 200
ROOM = 1_000_000
"""Of answers that are kept, in implementations by name (some 50 bytes); one with its figures counts as DETAILED."""
DETAILED = 20
VERSIONS: Mapping[str, str] = {"catalog": "fleet", "profiles": "profiles", "policies": "policies", "pricing": "prices"}
"""What a plan's versions are called in a sentence."""
QUICK = Answers(room=ROOM)
"""Explanations: they take milliseconds, and wait for no slow question."""
SLOW = Answers(room=ROOM)
Answer = TypeVar("Answer")


def planned(version: WorkflowVersion, bundle: PlanBundle, index: int = 0) -> tuple[PlanningProblem, Plan]:
    """The variant and its problem, with profiles and fleet as they are now.

    Raises Outdated, IndexError without such a variant, ValueError when the bundle belongs to another structure.
    """
    workflow = workflow_value(version)
    variants = bundle_value(bundle, workflow).variants
    if not 0 <= index < len(variants):
        raise IndexError(f"the bundle has {len(variants)} variants, none with index {index}")
    plan = variants[index]
    options = options_of_bundle(bundle, workflow)
    problem = problem_for(version, bundle.fleet, options, _known_prompts(bundle, workflow))
    changed = tuple(_changed(bundle, plan, problem))
    if changed:
        raise Outdated(changed)
    return problem, plan


def _changed(bundle: PlanBundle, plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """What is another now; one name of profiles may stand for different figures, which their digest tells apart."""
    then, now = plan.versions, problem.versions
    digest = bundle.request.get("profiles", {}).get("digest", problem.profiles.digest)
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name) or (name == "profiles" and digest != problem.profiles.digest):
            yield VERSIONS.get(name, name)


def _known_prompts(bundle: PlanBundle, workflow: Workflow) -> Mapping[str, int]:
    """The lengths that the bundle was compiled with, by the node ids of this workflow."""
    known: Mapping[str, int] = bundle.request.get("known_prompt_tokens") or {}
    if not known:
        return {}
    source = workflow_of_document(bundle.request["document"])
    names = {node.id: other.id for node, other in zip(source.nodes, workflow.nodes, strict=True)}
    return {names[node_id]: tokens for node_id, tokens in known.items()}


def explanation_of(version: WorkflowVersion, bundle: PlanBundle, index: int = 0) -> Explanation:
    """Raises what `planned` does, and Busy."""

    def size(found: Explanation) -> int:
        return DETAILED * sum(len(node.alternatives) for node in found.nodes)

    return _answered(QUICK, version, bundle, index, "explanation", explain_plan, size)


def ranges_of(version: WorkflowVersion, bundle: PlanBundle, index: int = 0) -> tuple[Range, ...]:
    """Raises what `planned` does, Busy, and NoAnswer for a plan that is not the best at its own weights."""

    def ranges(problem: PlanningProblem, plan: Plan) -> tuple[Range, ...]:
        try:
            return sensitivity(problem, plan, time_limit_s=TIME_LIMIT_S)
        except NotOptimal as error:
            raise NoAnswer(
                f"the plan was accepted with a proven gap of {plan.gap:.2g} and is not the best one, so no "
                "weights make it that: its explanation and its place among all plans hold"
            ) from error

    return _answered(SLOW, version, bundle, index, "ranges", ranges, lambda found: len(found) * version.node_count)


def front_of(version: WorkflowVersion, bundle: PlanBundle, axis: Axis, index: int = 0) -> Front:
    """Raises what `planned` does, and Busy."""

    def front(problem: PlanningProblem, plan: Plan) -> Front:
        found = pareto_front(problem, axis, plan=plan, time_limit_s=TIME_LIMIT_S)
        if isinstance(found, Infeasible):
            raise NoAnswer(found.text)
        return found

    def size(found: Front) -> int:
        return len(found.points) * version.node_count

    return _answered(SLOW, version, bundle, index, ("front", axis), front, size)


def stability_of(version: WorkflowVersion, bundle: PlanBundle, index: int = 0, draws: int = DRAWS) -> Stability:
    """Raises what `planned` does, Busy, and NoAnswer for a plan within caps on the whole plan."""

    def redrawn(problem: PlanningProblem, plan: Plan) -> Stability:
        try:
            return stability(problem, plan, draws=draws, time_limit_s=TIME_LIMIT_S)
        except ValueError as error:
            raise NoAnswer(str(error)) from error

    def size(found: Stability) -> int:
        return DETAILED * len(found.nodes)

    return _answered(SLOW, version, bundle, index, ("stability", draws), redrawn, size)


def _answered(
    answers: Answers,
    version: WorkflowVersion,
    bundle: PlanBundle,
    index: int,
    question: Hashable,
    answer: Callable[[PlanningProblem, Plan], Answer],
    size: Callable[[Answer], int],
) -> Answer:
    problem, plan = planned(version, bundle, index)
    # The bundle's key stands for everything that was planned with, the version's digest for the names of its nodes.
    key = (question, bundle.key, version.digest, index, plan.digest)
    return answers.get(key, lambda: answer(problem, plan), size)
