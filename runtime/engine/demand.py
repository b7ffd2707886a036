"""Planned demand of a run that has switched (MATH.md, planned(k); ours): what it is about to send to its new class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from planner.compiler.plan import Implementation, Plan
from planner.compiler.policies import Policy
from planner.compiler.workflow import LlmNode

SHORTEST_PLAN_S = 5.0


def planned_calls(next_ready: Iterable[LlmNode], plan: Plan, policies: Mapping[str, Policy], model: str) -> int:
    """The largest number of parallel calls on `model` among the nodes that come next, each in its widest stage."""
    return max((_widest_stage(plan.assignment[node.id], policies, model) for node in next_ready), default=0)


def planned_until(now: float, dwell_s: float) -> float:
    """When the announcement lapses by itself: `dwell_s` after the switch, 5 s at least."""
    return now + max(dwell_s, SHORTEST_PLAN_S)


def uses(implementation: Implementation | None, model: str) -> bool:
    """Whether an implementation sends calls to a class, as its base or as its verifier."""
    return implementation is not None and model in (implementation.model, implementation.verifier_model)


def _widest_stage(implementation: Implementation, policies: Mapping[str, Policy], model: str) -> int:
    served_by = {"base": implementation.model, "verifier": implementation.verifier_model}
    stages = policies[implementation.policy].stages
    return max(sum(call.count for call in stage.calls if served_by[call.model] == model) for stage in stages)
