"""A plan against the facts of its problem: legality, every number, every limit, its marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isclose, isfinite, log, prod

from planner.compiler.certificate.facts import Facts, Numbers, facts_of, longest_path
from planner.compiler.digest import content_digest
from planner.compiler.plan import Plan
from planner.compiler.pricing import Pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.workflow import Workflow

TOLERANCE = 1e-6
LIMIT_TOLERANCE = 1e-8
"""Of a limit: ten times what the planner allows for adding up floats in another order."""


def verify_plan(problem: PlanningProblem, plan: Plan) -> tuple[str, ...]:
    """Discrepancies between the plan and its problem, each a sentence; empty when the plan is what it says."""
    facts = facts_of(problem)
    illegal = tuple(_illegal(facts, plan))
    if illegal:
        return illegal
    derived = Derived(
        facts=facts,
        llm={node.id: facts.numbers(node, plan.assignment[node.id]) for node in facts.llm},
        fixed_s=facts.tools_s,
        graph=problem.workflow,
    )
    return (*wrong_numbers(problem, plan, derived), *broken_limits(problem, plan, derived))


def _illegal(facts: Facts, plan: Plan) -> Iterator[str]:
    expected = {node.id for node in facts.llm}
    for node_id in sorted(set(plan.assignment) - expected):
        yield f"{node_id} is assigned but is no LLM node of the workflow"
    for node_id in sorted(expected - set(plan.assignment)):
        yield f"LLM node {node_id} has no implementation"
    for node in facts.llm:
        if node.id in plan.assignment:
            reason = facts.why_illegal(node, plan.assignment[node.id])
            if reason:
                yield f"node {node.id}: {plan.assignment[node.id].label} is not legal: {reason}"


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A legal plan's numbers by LLM node, and the seconds of all other nodes; T is the longest path of `graph`.

    A residual plan has fewer LLM nodes than its workflow; the others give `settled_quality`, and `taken` is what they
    and others took of the limits, by name.
    """

    facts: Facts
    llm: Mapping[str, Numbers]
    fixed_s: Mapping[str, float]
    graph: Workflow
    settled_quality: float = 1.0
    taken: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def durations_s(self) -> dict[str, float]:
        return {node_id: value.tau for node_id, value in self.llm.items()} | dict(self.fixed_s)

    @cached_property
    def makespan_s(self) -> float:
        return longest_path(self.graph, self.durations_s)

    @cached_property
    def risk(self) -> dict[str, float]:
        """v r by node."""
        return {n: self.facts.vulnerability[n] * (1 - value.quality) for n, value in self.llm.items()}

    @cached_property
    def estimated_quality(self) -> float:
        return self.settled_quality * prod(1 - risk for risk in self.risk.values())

    @cached_property
    def cost(self) -> float:
        return sum(value.cost for value in self.llm.values())

    @cached_property
    def demand(self) -> dict[str, float]:
        """Slot-seconds per model class."""
        return _added(value.work for value in self.llm.values())


def _added(parts: Iterator[dict[str, float]] | Iterator[dict[str, int]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for model, amount in part.items():
            total[model] = total.get(model, 0) + amount
    return total


# --- Numbers ---------------------------------------------------------------------------------------------------------


def wrong_numbers(problem: PlanningProblem, plan: Plan, derived: Derived) -> Iterator[str]:
    terms = _terms(problem, plan, derived)
    single = {
        "objective": (plan.objective, sum(terms.values())),
        "makespan_s": (plan.makespan_s, derived.makespan_s),
        "estimated_quality": (plan.estimated_quality, derived.estimated_quality),
        "cost": (plan.cost, derived.cost),
    }
    for name, (said, right) in single.items():
        yield from _differences(name, {"": said}, {"": right})
    yield from _differences("term", plan.terms, terms)
    yield from _differences("demand", plan.demand, derived.demand)
    yield from _differences("duration", plan.durations_s, derived.durations_s)
    yield from _wrong_marks(problem, plan, derived.demand)


def _terms(problem: PlanningProblem, plan: Plan, derived: Derived) -> dict[str, float]:
    """The objective's summands, signs included."""
    if problem.pricing is not None:
        return _priced_terms(problem.pricing, plan, derived)
    weights, facts = problem.weights, derived.facts
    count, reference = max(1, len(facts.llm)), facts.reference
    tau = problem.demand == "tau"
    amount = sum(value.tau for value in derived.llm.values()) if tau else sum(derived.demand.values())
    return {
        "quality": sum(facts.reach[n] * value.quality for n, value in derived.llm.items()) / count,
        "risk": -weights.lambda_r * sum(derived.risk.values()) / count,
        "latency": _penalty(weights.lambda_l, derived.makespan_s, reference.t),
        "cost": _penalty(weights.lambda_c, derived.cost, reference.k),
        "demand": _penalty(plan.level * weights.lambda_d, amount, reference.d),
    }


def _priced_terms(pricing: Pricing, plan: Plan, derived: Derived) -> dict[str, float]:
    used = [item for value in derived.llm.values() for item in value.gpu_s.items()]
    return {
        "log_quality": sum(log(max(1 - risk, 1e-6)) for risk in derived.risk.values()),
        "gpu": -plan.level * sum(pricing.prices[model] * seconds for model, seconds in used),
        "latency": -pricing.epsilon * derived.makespan_s,
    }


def _penalty(weight: float, value: float, reference: float) -> float:
    return -weight * value / reference if reference > 0 else 0.0


def _wrong_marks(problem: PlanningProblem, plan: Plan, demand: Mapping[str, float]) -> Iterator[str]:
    for name in ("level", "gap", "solve_s"):
        if not 0 <= getattr(plan, name) < inf:
            yield f"{name} is {getattr(plan, name)}, no number from 0"
    largest = max(demand, key=lambda name: demand[name], default=None)
    share = demand.get(plan.dominant_model or "", -inf)
    if plan.dominant_model != largest and not isclose(share, max(demand.values(), default=0.0), rel_tol=TOLERANCE):
        yield f"dominant_model is {plan.dominant_model}, the largest share of work is {largest}"
    if dict(plan.versions) != dict(problem.versions):
        yield f"versions are {dict(plan.versions)}, the problem's are {dict(problem.versions)}"
    if isfinite(plan.level) and plan.digest != content_digest((plan.level, plan.assignment, plan.versions)):
        yield f"digest {plan.digest} does not belong to the plan's level, assignment and versions"


def _differences(what: str, said: Mapping[str, float], derived: Mapping[str, float]) -> Iterator[str]:
    for name in sorted(set(said) | set(derived)):
        ours, theirs = derived.get(name), said.get(name)
        if ours is None or theirs is None or not isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=1e-9):
            yield f"{what} {name}".rstrip() + f" is {theirs}, the inputs give {ours}"


# --- Limits ----------------------------------------------------------------------------------------------------------


def broken_limits(problem: PlanningProblem, plan: Plan, derived: Derived) -> Iterator[str]:
    if problem.limits.is_empty:
        return
    yield from _ruled_out(problem, plan)
    amounts, limits = _amounts(derived), problem.limits.values()
    for name in sorted(set(amounts) | set(derived.taken)):
        asked, used = limits.get(name), amounts.get(name, 0) + derived.taken.get(name, 0)
        if asked is not None and used > asked * (1 + LIMIT_TOLERANCE):
            yield f"limit {name}={asked:g} is broken: the plan takes {used:.10g}"
    least, quality = problem.limits.min_quality or 0.0, derived.estimated_quality
    if quality < least * (1 - LIMIT_TOLERANCE):
        yield f"limit min_quality={least:g} is broken: the plan's estimate is {quality:.10g}"


def _amounts(derived: Derived) -> dict[str, float]:
    """What the plan takes of every cap, by the limit's name; calls with every conditional stage."""
    calls = _added(value.calls for value in derived.llm.values())
    whole = {
        "max_cost": derived.cost,
        "max_calls": sum(calls.values()),
        "max_tokens": sum(value.tokens for value in derived.llm.values()),
        "max_makespan_s": derived.makespan_s,
    }
    work = {f"work_s.{model}": slot_s for model, slot_s in derived.demand.items()}
    return whole | work | {f"calls.{model}": count for model, count in calls.items()}


def _ruled_out(problem: PlanningProblem, plan: Plan) -> Iterator[str]:
    for kind, given in (("pin", problem.limits.pinned), ("forbid", problem.limits.forbidden)):
        for key, patterns in given.items():
            for node_id, impl in plan.assignment.items():
                parts = (impl.model, impl.policy, impl.backend)
                fits = any(
                    all(wanted in ("*", part) for wanted, part in zip(pattern.split("/"), parts, strict=False))
                    for pattern in patterns
                )
                if key in ("*", node_id) and fits != (kind == "pin"):
                    yield f"node {node_id}: {'/'.join(parts)} breaks limit {kind}.{key}={','.join(patterns)}"
