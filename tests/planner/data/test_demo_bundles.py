"""Demo switches follow from load under default thresholds: the bundles must offer them (DESIGN.md, Fidelity)."""

from __future__ import annotations

import pytest

from fleet.demo import demo_catalog
from planner.compiler.bundle import compile_bundle
from planner.compiler.certificate import verify_plan
from planner.compiler.plan import Bundle
from planner.compiler.problem import PlanningProblem
from planner.compiler.weights import PRESETS, Weights
from planner.compiler.workflow import LlmNode, Workflow
from planner.data import load_profiles
from planner.data.demo import demo_workflows
from planner.data.sweep import choose_presets, sweep
from runtime.engine.ports import ClassLoad, SwitchSettings
from runtime.engine.switching import decide

CONGESTED = {"qwen3.5-27b": 0.95, "qwen3.5-9b": 0.3, "qwen3.5-4b": 0.1}


def problem(workflow: Workflow, time_scale: float = 1.0) -> PlanningProblem:
    return PlanningProblem(workflow=workflow, catalog=demo_catalog(time_scale), profiles=load_profiles())


def bundle(planning: PlanningProblem) -> Bundle:
    compiled = compile_bundle(planning)
    assert isinstance(compiled, Bundle)
    return compiled


def switches_when_27b_is_congested(offered: Bundle) -> bool:
    """Whether the switching rule itself, with default thresholds, leaves variant 0 for another one."""
    loads = {name: ClassLoad(model=name, load=load, state="ok") for name, load in CONGESTED.items()}
    decision = decide(
        active=0,
        bundle=offered,
        loads=loads,
        settings=SwitchSettings(),
        now=0.0,
        last_switch_at=None,
        undispatched=tuple(offered.variants[0].assignment),
    )
    return decision.to_variant is not None


@pytest.fixture(scope="module")
def workflows() -> dict[str, Workflow]:
    return demo_workflows()


@pytest.mark.parametrize("time_scale", [1.0, 6.0])
def test_demo_bundles_offer_switches_under_default_thresholds(
    workflows: dict[str, Workflow], time_scale: float
) -> None:
    bundles = [bundle(problem(workflow, time_scale)) for workflow in workflows.values()]
    on_27b = [b for b in bundles if b.variants[0].dominant_model == "qwen3.5-27b"]
    switchable = [b for b in bundles if switches_when_27b_is_congested(b)]
    assert len(on_27b) >= 0.7 * len(bundles)
    assert len(switchable) > len(bundles) / 2


def test_demo_bundles_are_what_they_say(workflows: dict[str, Workflow]) -> None:
    for workflow in workflows.values():
        planning = problem(workflow)
        for plan in bundle(planning).variants:
            assert plan.gap == 0.0
            assert verify_plan(planning, plan) == ()


def test_the_demo_shows_the_variety_of_the_format(workflows: dict[str, Workflow]) -> None:
    nodes = [node for workflow in workflows.values() for node in workflow.nodes]
    assert {node.skill for node in nodes if isinstance(node, LlmNode)} == set(load_profiles().skills)
    assert {node.tool for node in nodes if not isinstance(node, LlmNode)} == {"template", "json_select"}
    assert any(isinstance(node, LlmNode) and node.output.comparable for node in nodes)
    assert max(len(workflow.nodes) for workflow in workflows.values()) == 11
    assert all(spec.default is not None for workflow in workflows.values() for spec in workflow.inputs)


def test_verification_is_planned_somewhere(workflows: dict[str, Workflow]) -> None:
    plans = [bundle(problem(workflow)).variants[0] for workflow in workflows.values()]
    assert any(impl.policy != "none" for plan in plans for impl in plan.assignment.values())


def test_the_presets_are_those_that_the_sweep_chooses(workflows: dict[str, Workflow]) -> None:
    chosen = choose_presets(sweep(workflows.values()))
    assert {name: Weights(lambda_l=value) for name, value in chosen.items()} == dict(PRESETS)
