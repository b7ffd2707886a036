"""The workflow templates of the simulation study (shared/data/study) as planning problems.

Lengths belong to single nodes there, so every node gets a skill of its own; its vulnerability is given as well. Every
call reads the node's own prompt here, which the study counts for the first call alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.serving.catalog import Backend, Catalog, ModelClass
from fleet.serving.rates import ServiceRates
from planner.compiler.policies import POLICIES, Policy
from planner.compiler.pricing import fleet_pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import CallDemand, PairProfile, ProfileSet
from planner.compiler.vulnerability import VulnerabilityCell, VulnerabilityTable, fan_in
from planner.compiler.workflow import LlmNode, OutputSpec, ToolNode, Workflow

Qualities = Mapping[str, Mapping[str, float]]
"""By skill, then by model/policy."""

LARGE = "27b"
REJECTED = {"9b": 0.27, "27b": 0.22}
PAIRS = 10**7
"""So many that shrinkage moves no vulnerability."""


def read_study(shared_data: Path) -> dict[str, Any]:
    study: dict[str, Any] = json.loads((shared_data / "study" / "study.json").read_text(encoding="utf-8"))
    return study


def priced_problems(study: Mapping[str, Any]) -> dict[str, PlanningProblem]:
    """By template; the default prices of the study's fleet."""
    catalog = _catalog(study["hardware"])
    return {template["id"]: _problem(template, study["quality"], catalog) for template in study["templates"]}


def _catalog(hardware: Mapping[str, Any]) -> Catalog:
    classes = ("9b", LARGE)
    return Catalog(
        models=tuple(
            ModelClass(
                name=name,
                size_rank=rank,
                parameters_b=float(name[:-1]),
                context_tokens=10**6,
                price_in=float(name[:-1]),
                price_out=float(name[:-1]),
            )
            for rank, name in enumerate(classes)
        ),
        backends=tuple(
            Backend(name=f"h200-{name}", model=name, hardware="h200", rates=_rates(hardware[name], hardware))
            for name in classes
        ),
        version="study",
    )


def _rates(given: Mapping[str, float], hardware: Mapping[str, Any]) -> ServiceRates:
    base_s, per_sequence_s, batch = given["step_base_s"], given["step_per_sequence_s"], hardware["nominal_batch"]
    return ServiceRates(
        decode_tokens_per_s=1 / (base_s + per_sequence_s * batch),
        prefill_base_s=given["call_base_s"],
        prefill_per_token_s=1 / given["prefill_tokens_per_s"],
        concurrency=batch,
        capacity=int(base_s / per_sequence_s) + 2,
        source="illustrative",
        step_base_s=base_s,
        step_per_sequence_s=per_sequence_s,
    )


def _problem(template: Mapping[str, Any], quality: Qualities, catalog: Catalog) -> PlanningProblem:
    llm = [node for node in template["nodes"] if node["kind"] == "llm"]
    pairs = [pair for node in llm for pair in _pairs(node, quality[node["skill"]])]
    cells = tuple(
        VulnerabilityCell(
            role=node["role"],
            skill=node["id"],
            fan_in=fan_in(len(node["after"])),
            pairs=PAIRS,
            flips=round(PAIRS * node["vulnerability"]),
        )
        for node in llm
    )
    return PlanningProblem(
        workflow=_workflow(template),
        catalog=catalog,
        profiles=ProfileSet(version=template["id"], pairs=tuple(pairs), vulnerability=VulnerabilityTable(cells=cells)),
        pricing=fleet_pricing(catalog),
    )


def _workflow(template: Mapping[str, Any]) -> Workflow:
    """The study puts every output to a vote."""
    nodes = tuple(
        LlmNode(id=node["id"], skill=node["id"], prompt="...", max_tokens=10**5, output=OutputSpec(format="json"))
        if node["kind"] == "llm"
        else ToolNode(id=node["id"], tool="template", expected_s=node["expected_s"])
        for node in template["nodes"]
    )
    edges = tuple((before, node["id"]) for node in template["nodes"] for before in node["after"])
    return Workflow(name=template["id"], nodes=nodes, edges=edges, output=nodes[-1].id)


def _pairs(node: Mapping[str, Any], quality: Mapping[str, float]) -> list[PairProfile]:
    found = []
    for key, value in quality.items():
        model, policy = key.split("/")
        demands = _demands(model, POLICIES[policy], float(node["output_tokens"]))
        found.append(
            PairProfile(
                skill=node["id"],
                model=model,
                policy=policy,
                quality=value,
                samples=1000,
                interval=(0.0, 1.0),
                prompt_tokens=node["prompt_tokens"],
                verifier_model=LARGE if policy == "cross_check" else None,
                thinking=False,
                calls=demands,
            )
        )
    return found


def _demands(model: str, policy: Policy, output: float) -> tuple[CallDemand, ...]:
    verdict, feedback, half = 70 + 0.05 * output, 60 + 0.30 * output, output / 2 + 50
    by_role = {
        "generate": (0.0, output),
        "sample": (0.0, output),
        "solution": (0.0, output),
        "verdict": (half, verdict),
        "feedback": (half, feedback),
        "critique": (half, feedback),
        "cross_critique": (half, feedback),
        "select": (2 * output + 50, verdict),
        "revise": ((3 if policy.name == "multi_critique" else 1) * feedback, 0.9 * output),
        "synthesis": (2 * feedback, 0.9 * output),
    }
    return tuple(
        CallDemand(
            role=call.role,
            prompt_tokens=by_role[call.role][0],
            output_tokens=by_role[call.role][1],
            probability=_probability(model, policy) if stage.when == "rejected" else 1.0,
        )
        for stage in policy.stages
        for call in stage.calls
    )


def _probability(model: str, policy: Policy) -> float:
    return REJECTED[LARGE] if policy.name == "self_check" and model == LARGE else REJECTED["9b"]
