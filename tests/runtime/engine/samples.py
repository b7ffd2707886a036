"""Small values that the engine's tests share: workflows, plans and bundles with numbers that are easy to follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.compiler.plan import Bundle, Implementation, Plan
from planner.compiler.policies import POLICIES
from planner.compiler.workflow import LlmNode, Node, OutputSpec, ToolNode, Workflow
from runtime.engine.ports import RunSnapshot, SwitchSettings

BIG, SMALL, TINY = "qwen3.5-27b", "qwen3.5-9b", "qwen3.5-4b"
START = 1_700_000_000.0


def impl(model: str = SMALL, policy: str = "none", verifier: str | None = None) -> Implementation:
    return Implementation(
        model=model,
        backend=f"{model}@h200",
        policy=policy,
        verifier_model=verifier,
        verifier_backend=f"{verifier}@h200" if verifier else None,
    )


def plan(
    assignment: Mapping[str, Implementation],
    *,
    level: float = 0.0,
    dominant: str | None = None,
    quality: float = 0.9,
    durations_s: Mapping[str, float] | None = None,
) -> Plan:
    """A plan that names `dominant` its dominant model (default: the first node's)."""
    models = [implementation.model for implementation in assignment.values()]
    dominant = dominant or (models[0] if models else None)
    return Plan(
        level=level,
        assignment=assignment,
        objective=1.0,
        terms={},
        estimated_quality=quality,
        makespan_s=10.0,
        cost=1.0,
        demand={dominant: 10.0} if dominant else {},
        dominant_model=dominant,
        solver="exact",
        solve_s=0.002,
        gap=0.0,
        durations_s=durations_s or {},
        digest=f"plan-{level}",
    )


def bundle(*variants: Plan, complete: bool = True) -> Bundle:
    return Bundle(key="key", variants=variants, complete=complete)


def llm(node_id: str, prompt: str = "Do it.", **more: object) -> LlmNode:
    return replace(LlmNode(id=node_id, skill="reasoning", prompt=prompt), **more)  # type: ignore[arg-type]  # test helper


def json_llm(node_id: str, prompt: str = "Do it.", **more: object) -> LlmNode:
    return llm(node_id, prompt, output=OutputSpec(format="json"), **more)


def tool(node_id: str, template: str = "made", **more: object) -> ToolNode:
    made = ToolNode(id=node_id, tool="template", arguments={"template": template}, expected_s=1.0)
    return replace(made, **more)  # type: ignore[arg-type]  # test helper


def workflow(nodes: Sequence[Node], edges: Sequence[tuple[str, str]] = (), output: str | None = None) -> Workflow:
    return Workflow(name="sample", nodes=tuple(nodes), edges=tuple(edges), output=output or nodes[-1].id)


def snapshot(
    flow: Workflow,
    plans: Bundle | None = None,
    *,
    run_id: str = "run_1",
    settings: SwitchSettings | None = None,
    deadline_s: float | None = None,
    inputs: Mapping[str, object] | None = None,
) -> RunSnapshot:
    """A run as it is accepted; without `plans` every LLM node is on the 9B class without verification."""
    default = bundle(plan({node.id: impl() for node in flow.llm_nodes}))
    return RunSnapshot(
        run_id=run_id,
        epoch=1,
        workflow=flow,
        inputs=inputs or {},
        bundle=plans or default,
        policies=POLICIES,
        settings=settings or SwitchSettings(),
        accepted_at=START,
        deadline_s=deadline_s,
        seed=7,
    )


def walkthrough() -> Workflow:
    """The paper's walk-through (6): P -> C, D -> R (a tool) -> A."""
    return workflow(
        [
            llm("P", "Plan it."),
            llm("C", "Write code for {{ nodes.P.output }}."),
            llm("D", "Write tests for {{ nodes.P.output }}."),
            tool("R", "{{ nodes.C.output }} against {{ nodes.D.output }}"),
            llm("A", "Answer from {{ nodes.R.output }}."),
        ],
        [("P", "C"), ("P", "D"), ("C", "R"), ("D", "R"), ("R", "A")],
    )


def walkthrough_bundle() -> Bundle:
    """The walk-through's two variants with its durations: 27B plain + 9B verified, then both 9B plain."""
    small = impl()
    seconds = {"P": 1.0, "A": 1.0}
    first = plan(
        {"P": small, "C": impl(BIG), "D": impl(SMALL, "self_check"), "A": small},
        dominant=BIG,
        quality=0.89,
        durations_s={**seconds, "C": 10.0, "D": 7.0},
    )
    second = plan(
        {"P": small, "C": small, "D": small, "A": small},
        level=3.0,
        dominant=SMALL,
        quality=0.81,
        durations_s={**seconds, "C": 6.0, "D": 4.0},
    )
    return bundle(first, second)
