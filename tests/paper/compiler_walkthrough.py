"""The paper's walkthrough (section 6) with MATH.md's numbers as a planning problem.

P -> C, D -> R (a tool) -> A. One decode token takes one second and a prompt token costs the price unit, so that a
profile's output tokens are its seconds and its prompt tokens times the model's price its cost.
"""

from __future__ import annotations

from fleet.serving.catalog import Backend, Catalog, ModelClass
from fleet.serving.rates import ServiceRates
from planner.compiler.policies import NONE, Policy, PolicyCall, PolicyStage
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import CallDemand, PairProfile, ProfileSet
from planner.compiler.vulnerability import FanIn, VulnerabilityCell, VulnerabilityTable
from planner.compiler.workflow import LlmNode, Role, ToolNode, Workflow

B27, B9 = "27b", "9b"
PRICE = {B27: 27.0, B9: 9.0}

VERIFIED = Policy(
    name="verified",
    title="Serial verification",
    stages=(
        PolicyStage(calls=(PolicyCall(role="generate", answers="output"),)),
        PolicyStage(calls=(PolicyCall(role="verify", answers="output", reads=("generate",)),)),
    ),
)
"""A generation and one more call in series."""


def _catalog() -> Catalog:
    unit = ServiceRates(
        decode_tokens_per_s=1.0,
        prefill_base_s=0.0,
        prefill_per_token_s=0.0,
        concurrency=1,
        capacity=1,
        source="illustrative",
    )
    return Catalog(
        models=tuple(
            ModelClass(
                name=name,
                size_rank=rank,
                parameters_b=PRICE[name],
                context_tokens=32768,
                price_in=PRICE[name],
                price_out=0.0,
            )
            for rank, name in enumerate((B9, B27))
        ),
        backends=tuple(Backend(name=f"pool-{name}", model=name, hardware="any", rates=unit) for name in (B9, B27)),
        version="walkthrough",
    )


def _calls(model: str, steps: tuple[tuple[str, float, float], ...]) -> tuple[CallDemand, ...]:
    """Calls from (role, seconds, cost)."""
    return tuple(
        CallDemand(role=role, prompt_tokens=price / PRICE[model], output_tokens=seconds)
        for role, seconds, price in steps
    )


def _pair(skill: str, model: str, quality: float, *steps: tuple[str, float, float]) -> PairProfile:
    return PairProfile(
        skill=skill,
        model=model,
        policy="none" if len(steps) == 1 else "verified",
        quality=quality,
        samples=100,
        interval=(quality, quality),
        prompt_tokens=0,
        calls=_calls(model, steps),
    )


SHARED_QUALITY = 1 - (1 - 0.99**0.5) / 0.1
"""P and A have v = 0.1 each; this quality makes their product of (1 - v r) 0.99."""

PAIRS = (
    _pair("plan", B9, SHARED_QUALITY, ("generate", 1, 2.7)),
    _pair("answer", B9, SHARED_QUALITY, ("generate", 1, 2.7)),
    _pair("code", B27, 0.94, ("generate", 10, 27)),
    _pair("code", B27, 0.94, ("generate", 10, 27), ("verify", 4, 10.8)),
    _pair("code", B9, 0.74, ("generate", 6, 9)),
    _pair("code", B9, 0.77, ("generate", 6, 9), ("verify", 3, 4.5)),
    _pair("test", B9, 0.71, ("generate", 4, 5.4)),
    _pair("test", B9, 0.79, ("generate", 4, 5.4), ("verify", 3, 4.05)),
    _pair("test", B27, 0.74, ("generate", 6.67, 16.2)),
)


def _cell(role: Role, skill: str, fan_in: FanIn, percent: int) -> VulnerabilityCell:
    return VulnerabilityCell(role=role, skill=skill, fan_in=fan_in, pairs=100, flips=percent)


def walkthrough_workflow() -> Workflow:
    return Workflow(
        name="walkthrough",
        nodes=(
            LlmNode(id="P", skill="plan", prompt="", models=(B9,)),
            LlmNode(id="C", skill="code", prompt=""),
            LlmNode(id="D", skill="test", prompt=""),
            ToolNode(id="R", tool="template", expected_s=1.0),
            LlmNode(id="A", skill="answer", prompt="", models=(B9,)),
        ),
        edges=(("P", "C"), ("P", "D"), ("C", "R"), ("D", "R"), ("R", "A")),
        output="A",
    )


def walkthrough_problem() -> PlanningProblem:
    """The fixture with the default weights."""
    return PlanningProblem(
        workflow=walkthrough_workflow(),
        catalog=_catalog(),
        profiles=ProfileSet(
            version="walkthrough",
            illustrative=True,
            pairs=PAIRS,
            vulnerability=VulnerabilityTable(
                cells=(
                    _cell("source", "plan", "0", 10),
                    _cell("intermediate", "code", "1-2", 28),
                    _cell("intermediate", "test", "1-2", 41),
                    _cell("terminal", "answer", "1-2", 10),
                ),
                pseudo_pairs=0,
            ),
        ),
        policies={"none": NONE, "verified": VERIFIED},
    )
