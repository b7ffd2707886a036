"""Generates the shipped illustrative profiles (profiles.json): run `python -m planner.data.make_profiles`.

Nothing here was measured on a model. The numbers are invented so that their aggregates resemble what the paper
publishes: three classes a few points apart per skill, verification that removes a tenth to a third of the errors,
vulnerability 0.39 for intermediate reasoning nodes with fan-in 1-2 against 0.18 for tool use (paper 2.2). Every number
follows from the tables below by the stated rules; a profiling campaign on a real fleet replaces the whole file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.compiler.policies import ALL_POLICIES, Policy
from planner.compiler.profile import CallDemand, PairProfile, ProfileSet
from planner.compiler.profile_json import profiles_to_json
from planner.compiler.vulnerability import FanIn, VulnerabilityCell, VulnerabilityTable, wilson_interval
from planner.compiler.workflow import Role

VERSION = "illustrative-1"
DESCRIPTION = (
    "Illustrative profiles, invented by planner/data/make_profiles.py to resemble the paper's published aggregates. "
    "Not measured on any model or fleet: run a profiling campaign to replace them."
)
SAMPLES = 240
THINKING_SAMPLES = 120
MODELS = ("qwen3.5-4b", "qwen3.5-9b", "qwen3.5-27b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """Mean prompt and output tokens of a node, correctness without verification per class (4B, 9B, 27B)."""

    name: str
    prompt_tokens: int
    output_tokens: int
    quality: tuple[float, float, float]
    sampling: float
    """How well votes and selections work, against critique: high where answers are short and comparable."""


SKILLS = (
    Skill(name="plan", prompt_tokens=350, output_tokens=450, quality=(0.68, 0.8, 0.89), sampling=0.9),
    Skill(name="code", prompt_tokens=500, output_tokens=900, quality=(0.47, 0.65, 0.77), sampling=0.7),
    Skill(name="test", prompt_tokens=550, output_tokens=600, quality=(0.57, 0.72, 0.82), sampling=0.7),
    Skill(name="tool", prompt_tokens=400, output_tokens=120, quality=(0.77, 0.86, 0.93), sampling=1.5),
    Skill(name="extract", prompt_tokens=900, output_tokens=220, quality=(0.74, 0.83, 0.9), sampling=1.5),
    Skill(name="answer", prompt_tokens=800, output_tokens=350, quality=(0.68, 0.79, 0.875), sampling=1.3),
    Skill(name="reasoning", prompt_tokens=500, output_tokens=800, quality=(0.51, 0.68, 0.79), sampling=1.2),
    Skill(name="writing", prompt_tokens=700, output_tokens=700, quality=(0.7, 0.8, 0.87), sampling=0.7),
)

ERROR_REDUCTION = {
    "none": (0.0, 0.0, 0.0),
    "self_check": (0.06, 0.15, 0.32),
    "self_refine": (0.05, 0.15, 0.32),
    "multi_critique": (0.08, 0.2, 0.38),
    "self_consistency": (0.1, 0.14, 0.18),
    "best_of_n": (0.1, 0.18, 0.3),
    "debate": (0.1, 0.23, 0.41),
}
"""Share of its own errors that a policy removes on each class: larger models judge themselves better."""

CROSS_CHECK_REDUCTION = {
    ("qwen3.5-4b", "qwen3.5-9b"): 0.12,
    ("qwen3.5-4b", "qwen3.5-27b"): 0.24,
    ("qwen3.5-9b", "qwen3.5-27b"): 0.24,
}
"""The same for a verdict by a larger class."""

SAMPLING_POLICIES = ("self_consistency", "best_of_n")
REJECTS = (0.31, 0.27, 0.22)
"""Probability that a verdict on this class's output rejects; a larger class as judge rejects a little more often."""
CROSS_CHECK_REJECTS_MORE = 1.15

STRUCTURED_TOKENS = 4
"""Verdicts and selections are structured choices of a word or a number, without thinking."""
VERBOSITY = (1.05, 1.0, 0.95)
THINKING_TOKENS = 1.8
"""Reasoning tokens of a thinking call, as a multiple of its answer."""
THINKING_REMOVES = 0.25
"""Share of the errors that thinking removes."""

VULNERABILITY: dict[str, tuple[float, float, float]] = {
    "plan": (0.37, 0.31, 0.45),
    "code": (0.38, 0.34, 0.46),
    "test": (0.24, 0.21, 0.38),
    "tool": (0.21, 0.18, 0.34),
    "extract": (0.31, 0.26, 0.41),
    "answer": (0.33, 0.3, 0.43),
    "reasoning": (0.42, 0.39, 0.47),
    "writing": (0.25, 0.21, 0.38),
}
"""Per skill: source, intermediate and terminal nodes with fan-in 0 or 1-2."""
MANY_PREDECESSORS = 0.85
"""Nodes that join three or more branches see an error of one of them corrected more often."""
PAIRS = {"0": 120, "1-2": 160, "3+": 60}
PSEUDO_PAIRS = 20.0


def build_profiles() -> ProfileSet:
    return ProfileSet(
        version=VERSION,
        illustrative=True,
        description=DESCRIPTION,
        pairs=tuple(pair for skill in SKILLS for thinking in (False, True) for pair in _pairs(skill, thinking)),
        vulnerability=VulnerabilityTable(cells=tuple(_cells()), pseudo_pairs=PSEUDO_PAIRS),
    )


def _pairs(skill: Skill, thinking: bool) -> Iterator[PairProfile]:
    for size, model in enumerate(MODELS):
        for policy in ALL_POLICIES:
            for judge in range(size + 1, len(MODELS)) if policy.uses_verifier else (None,):
                yield _pair(skill, model, size, policy, judge, thinking)


def _pair(skill: Skill, model: str, size: int, policy: Policy, judge: int | None, thinking: bool) -> PairProfile:
    samples = THINKING_SAMPLES if thinking else SAMPLES
    error = (1 - skill.quality[size]) * (1 - (THINKING_REMOVES if thinking else 0.0))
    right = round(samples * (1 - error * (1 - _error_reduction(skill, policy, size, judge))))
    low, high = wilson_interval(right, samples)
    return PairProfile(
        skill=skill.name,
        model=model,
        policy=policy.name,
        verifier_model=None if judge is None else MODELS[judge],
        thinking=thinking,
        quality=round(right / samples, 4),
        samples=samples,
        interval=(round(low, 4), round(high, 4)),
        prompt_tokens=skill.prompt_tokens,
        calls=_calls(policy, skill.output_tokens * VERBOSITY[size], REJECTS[size], judge is not None, thinking),
    )


def _error_reduction(skill: Skill, policy: Policy, size: int, judge: int | None) -> float:
    if judge is not None:
        return CROSS_CHECK_REDUCTION[MODELS[size], MODELS[judge]]
    share = ERROR_REDUCTION[policy.name][size]
    return share * (skill.sampling if policy.name in SAMPLING_POLICIES else 1.0)


def _calls(policy: Policy, output: float, rejects: float, crossed: bool, thinking: bool) -> tuple[CallDemand, ...]:
    """Tokens of every role from the mean answer length `output`; earlier answers are read without their reasoning."""
    feedback, revised = 60 + 0.3 * output, 0.9 * output
    tokens = {
        "generate": (0.0, output),
        "sample": (0.0, output),
        "solution": (0.0, output),
        "verdict": (output + 50, STRUCTURED_TOKENS),
        "feedback": (output + 50, feedback),
        "critique": (output + 50, feedback),
        "cross_critique": (output + 50, feedback),
        "select": (4 * output + 60, STRUCTURED_TOKENS),
        "synthesis": (2 * output + 2 * feedback + 60, revised),
        "revise": (output + 60, revised),
    }
    if policy.name == "self_refine":
        tokens["revise"] = (output + feedback + 60, revised)
    if policy.name == "multi_critique":
        tokens["revise"] = (output + 3 * feedback + 60, revised)
    rejection = min(0.95, rejects * (CROSS_CHECK_REJECTS_MORE if crossed else 1.0))
    return tuple(
        CallDemand(
            role=call.role,
            prompt_tokens=round(tokens[call.role][0]),
            output_tokens=round(
                tokens[call.role][1] * (1 + (THINKING_TOKENS if thinking and call.thinking == "node" else 0))
            ),
            probability=round(rejection, 4) if stage.when == "rejected" else 1.0,
        )
        for stage in policy.stages
        for call in stage.calls
    )


def _cells() -> Iterator[VulnerabilityCell]:
    """A source has no predecessor, the other roles have some: five cells a skill."""
    for skill, (source, intermediate, terminal) in VULNERABILITY.items():
        yield _cell("source", skill, "0", source)
        yield _cell("intermediate", skill, "1-2", intermediate)
        yield _cell("intermediate", skill, "3+", intermediate * MANY_PREDECESSORS)
        yield _cell("terminal", skill, "1-2", terminal)
        yield _cell("terminal", skill, "3+", terminal * MANY_PREDECESSORS)


def _cell(role: Role, skill: str, bucket: FanIn, value: float) -> VulnerabilityCell:
    pairs = PAIRS[bucket]
    return VulnerabilityCell(role=role, skill=skill, fan_in=bucket, pairs=pairs, flips=round(pairs * value))


def to_text(profiles: ProfileSet) -> str:
    """JSON with one pair or cell per line, so that differences of versions read well."""
    document = profiles_to_json(profiles)
    head = {key: document[key] for key in ("dyserve_profiles", "version", "illustrative", "description")}
    cells = ",\n".join(f"   {json.dumps(cell)}" for cell in document["vulnerability"]["cells"])
    pairs = ",\n".join(f"  {json.dumps(pair)}" for pair in document["pairs"])
    table = (
        f' "vulnerability": {{"pseudo_pairs": {document["vulnerability"]["pseudo_pairs"]}, "cells": [\n{cells}\n  ]}}'
    )
    return json.dumps(head, indent=1)[:-2] + f',\n{table},\n "pairs": [\n{pairs}\n ]\n}}\n'


def main() -> None:
    Path(__file__).with_name("profiles.json").write_text(to_text(build_profiles()), encoding="utf-8")


if __name__ == "__main__":
    main()
