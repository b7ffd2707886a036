"""Pressure-specialized plan bundles and the key under which requests of one shape share them (paper 4.4, Algorithm 1).

Across levels only L changes; in a priced bundle (ours) the level is the price m of GPU-seconds instead. Stored bundles
name nodes by position in file order, so that they can be bound to any workflow of the same structure, whatever its node
ids and prompts are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

from fleet.serving.catalog import Backend, Catalog
from planner.compiler.coefficients import planned_tool_s
from planner.compiler.digest import content_digest
from planner.compiler.legality import legal_models, legal_policies, planned_prompt_tokens
from planner.compiler.plan import Bundle, BundleKind, Infeasible, Plan
from planner.compiler.pricing import PRICE_LEVELS
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import DEFAULT_TIME_LIMIT_S, Timer, compile_plan, plan_digest
from planner.compiler.workflow import LlmNode, Node, Workflow

LEVELS: tuple[float, ...] = (0.0, 1.5, 3.0)
DEFAULT_LEVELS: Mapping[BundleKind, tuple[float, ...]] = MappingProxyType({"levels": LEVELS, "priced": PRICE_LEVELS})


def kind_of(problem: PlanningProblem) -> BundleKind:
    """The kind of a problem's bundle: whether it is priced."""
    return "levels" if problem.pricing is None else "priced"


def compile_bundle(
    problem: PlanningProblem,
    levels: Sequence[float] | None = None,
    *,
    first: Plan | None = None,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    timer: Timer = time.perf_counter,
) -> Bundle | Infeasible:
    """One solve per level, smallest first; `first` is pi(0) where it is known already, and is not solved again.

    `levels` are specialization levels L, prices m for a priced problem (None: the kind's defaults). `time_limit_s`
    holds per solve. Equal assignments are kept once, at their lowest level; a level without a plan in time is left out.
    """
    solve = partial(compile_plan, problem, time_limit_s=time_limit_s, timer=timer)
    variants = distinct_variants(solve, levels_of(problem, levels), first)
    if isinstance(variants, Infeasible):
        return variants
    return Bundle(key=structural_key(problem, levels), variants=variants, kind=kind_of(problem))


def distinct_variants(
    solve: Callable[[float], Plan | Infeasible], levels: Sequence[float], first: Plan | None
) -> tuple[Plan, ...] | Infeasible:
    """The plans of the levels in order, equal assignments once; `first` is known already.

    Raises ValueError without a level, and where `first` is not the plan at the smallest one.
    """
    ordered = sorted(set(levels))
    if not ordered:
        raise ValueError("a bundle needs at least one level")
    if first is not None and first.level != ordered[0]:
        raise ValueError(f"pi(0) is the plan at the smallest level {ordered[0]}, got one at {first.level}")
    variants: list[Plan] = [] if first is None else [first]
    for level in ordered[len(variants) :]:
        plan = solve(level)
        if isinstance(plan, Infeasible):
            if plan.proved or not variants:
                return plan
            continue  # none found in time: limits are those of every level, and the variants before keep them
        if all(plan.assignment != other.assignment for other in variants):
            variants.append(plan)
    return tuple(variants)


def initial_bundle(problem: PlanningProblem, first: Plan, levels: Sequence[float] | None = None) -> Bundle:
    """pi(0) alone: execution may start while the other variants are prepared (paper 4.4)."""
    key = structural_key(problem, levels)
    return Bundle(key=key, variants=(first,), complete=False, kind=kind_of(problem))


def levels_of(problem: PlanningProblem, levels: Sequence[float] | None) -> Sequence[float]:
    """The given levels, or those of the problem's kind of bundle."""
    return DEFAULT_LEVELS[kind_of(problem)] if levels is None else levels


def structural_key(problem: PlanningProblem, levels: Sequence[float] | None = None) -> str:
    """Digest of all that decides a bundle: structure by file order, what is planned with, objective, levels, limits.

    Never node ids, titles, prompts, tools' names or arguments: per-request DAGs of one shape share bundles.
    """
    workflow, index = problem.workflow, problem.workflow.index
    return content_digest(
        {
            "nodes": [_node_key(problem, node) for node in workflow.nodes],
            "edges": sorted({(index[source], index[target]) for source, target in workflow.edges}),
            "output": index[workflow.output],
            "profiles": (problem.profiles.version, problem.profiles.digest),
            "fleet": _fleet_digest(problem.catalog),
            "policies": problem.versions["policies"],
            "weights": problem.weights,
            "effort": problem.effort,
            "demand": problem.demand,
            "kind": kind_of(problem),
            "pricing": problem.pricing,
            "levels": sorted(set(map(float, levels_of(problem, levels)))),
            "limits": problem.limits.by_position(index),
        }
    )


@lru_cache(maxsize=32)
def _fleet_digest(catalog: Catalog) -> str:
    """Once per fleet and process: requests come far more often than fleets change."""
    return content_digest((catalog.version, catalog.models, [_unnumbered(backend) for backend in catalog.backends]))


def _unnumbered(backend: Backend) -> Backend:
    """Without what plans nothing: the same calibration recorded again shares the bundles of the first."""
    return replace(backend, emulated=False, rates=replace(backend.rates, version=1, source="calibrated"))


def _node_key(problem: PlanningProblem, node: Node) -> Mapping[str, Any]:
    if not isinstance(node, LlmNode):
        return {"kind": "tool", "expected_s": planned_tool_s(node)}
    return {
        "kind": "llm",
        "skill": node.skill,
        "thinking": node.thinking,
        "models": legal_models(problem, node),
        "policies": [policy.name for policy in legal_policies(problem, node)],
        "max_tokens": node.max_tokens,
        "prompt_tokens": planned_prompt_tokens(problem, node),
    }


def to_positions(plan: Plan, workflow: Workflow) -> Plan:
    """The plan with node ids replaced by positions in file order ("0", "1", ...): the form to store in a cache."""
    return _renamed(plan, {node_id: str(position) for node_id, position in workflow.index.items()})


def from_positions(plan: Plan, workflow: Workflow) -> Plan:
    """A stored plan bound to a workflow of the same structure. Raises ValueError when the positions do not fit."""
    names = {str(position): node_id for node_id, position in workflow.index.items()}
    llm = {str(workflow.index[node.id]) for node in workflow.llm_nodes}
    if set(plan.assignment) != llm or set(plan.durations_s) != set(names):
        raise ValueError(f"the stored plan does not fit the structure of workflow {workflow.name}")
    return _renamed(plan, names)


def _renamed(plan: Plan, names: Mapping[str, str]) -> Plan:
    renamed = replace(
        plan,
        assignment={names[node]: implementation for node, implementation in plan.assignment.items()},
        durations_s={names[node]: seconds for node, seconds in plan.durations_s.items()},
    )
    return replace(renamed, digest=plan_digest(renamed))
