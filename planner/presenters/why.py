"""Why a plan is as it is: its critical path, each node's best alternative with its price, what verification adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fleet.common.presentation import compact, quality, seconds, signed
from planner.compiler.explain import Alternative, Explanation, NodeExplanation, Verification
from planner.compiler.plan import Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.workflow import Workflow
from planner.presenters.plans import ImplementationView, change, implementation_view

PAGE_SIZE = 10
"""Alternatives of one node that are shown at once."""
_TIE = 1e-9
_TERM_WORDS = {"log_quality": "log quality", "gpu": "GPU"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One change of an objective's term, in thousandths; `tone` is good, bad or empty."""

    text: str
    tone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeRow:
    """One implementation against the planned one. `prices` in the order of the plan's terms; `breaks` names caps."""

    implementation: ImplementationView
    chosen: bool
    objective: Price
    prices: tuple[Price, ...]
    quality: str
    seconds: str
    cost: str
    demand: str
    node_quality: str
    breaks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationText:
    """What a node's verification adds: to the node itself, and how much of it reaches the makespan."""

    plain: str
    node: str
    makespan: str
    quality: str
    cost: str
    free: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyRow:
    """One LLM node; `others` is how many other implementations are legal, `plain` whether it runs without a policy.

    No `verification` though it is not plain: no cheaper policy is legal there.
    """

    node: str
    title: str
    skill: str
    chosen: ImplementationView
    critical: bool
    slack: str
    best: AlternativeRow | None
    others: int
    plain: bool
    verification: VerificationText | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    node: str
    title: str
    seconds: str
    is_llm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerificationText:
    """What all verification of a plan adds; `together` sums the nodes' seconds, `makespans` names both makespans."""

    nodes: int
    together: str
    makespan: str
    makespans: str
    quality: str
    cost: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyView:
    """`marks` is what js/insights.js writes into the graph: the nodes without slack and the edges of the path.

    Of the best alternatives with a better objective, `ruled_out` break a cap; `better` do not: the plan is not optimal.
    """

    rows: tuple[WhyRow, ...]
    terms: tuple[str, ...]
    path: tuple[PathStep, ...]
    critical: int
    makespan: str
    verification: PlanVerificationText | None
    ruled_out: int
    better: int
    marks: Mapping[str, object]


def why_view(explanation: Explanation, plan: Plan, workflow: Workflow) -> WhyView:
    path = explanation.critical_path
    rows = tuple(_row(node, workflow, tuple(explanation.terms)) for node in explanation.nodes)
    leading = [node.best for node in explanation.nodes if node.best is not None and node.best.objective > _TIE]
    return WhyView(
        rows=rows,
        terms=term_words(explanation),
        path=tuple(_step(node_id, workflow, plan) for node_id in path),
        critical=len(explanation.critical),
        makespan=seconds(explanation.makespan_s),
        verification=_plan_verification(explanation),
        ruled_out=sum(bool(best.breaks) for best in leading),
        better=sum(not best.breaks for best in leading),
        marks={"nodes": list(explanation.critical), "edges": [list(edge) for edge in pairwise(path)]},
    )


def term_words(explanation: Explanation) -> tuple[str, ...]:
    return tuple(_TERM_WORDS.get(name, name) for name in explanation.terms)


def _row(node: NodeExplanation, workflow: Workflow, terms: Sequence[str]) -> WhyRow:
    found = workflow.by_id[node.node]
    return WhyRow(
        node=node.node,
        title=found.title or node.node,
        skill=getattr(found, "skill", ""),
        chosen=implementation_view(node.chosen),
        critical=node.critical,
        slack=seconds(node.slack_s),
        best=alternative_row(node.best, terms) if node.best else None,
        others=len(node.alternatives) - 1,
        plain=node.chosen.policy == "none",
        verification=_verification(node.verification) if node.verification else None,
    )


def _step(node_id: str, workflow: Workflow, plan: Plan) -> PathStep:
    node = workflow.by_id[node_id]
    return PathStep(
        node=node_id,
        title=node.title or node_id,
        seconds=seconds(plan.durations_s.get(node_id)),
        is_llm=node_id in plan.assignment,
    )


# --- Alternatives ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativesPage:
    """Some of a node's implementations, best first. `page` counts from 1; `previous` and `next` are None at the ends.

    `profile_quality` and `vulnerability` are Q and v of the planned one.
    """

    node: str
    title: str
    terms: tuple[str, ...]
    rows: tuple[AlternativeRow, ...]
    total: int
    first: int
    last: int
    previous: int | None
    next: int | None
    profile_quality: str
    vulnerability: str


def alternatives_page(
    problem: PlanningProblem, explanation: Explanation, node_id: str, page: int
) -> AlternativesPage | None:
    """None where there is no such node or page."""
    node = next((found for found in explanation.nodes if found.node == node_id), None)
    start = (page - 1) * PAGE_SIZE
    if node is None or not 0 <= start < len(node.alternatives):
        return None
    shown, total = node.alternatives[start : start + PAGE_SIZE], len(node.alternatives)
    v, q = _surrogates(problem, node)
    return AlternativesPage(
        node=node_id,
        title=problem.workflow.by_id[node_id].title or node_id,
        terms=term_words(explanation),
        rows=tuple(alternative_row(found, tuple(explanation.terms)) for found in shown),
        total=total,
        first=start + 1,
        last=start + len(shown),
        previous=page - 1 if page > 1 else None,
        next=page + 1 if start + PAGE_SIZE < total else None,
        profile_quality=quality(q),
        vulnerability=quality(v),
    )


def alternative_row(found: Alternative, terms: Sequence[str]) -> AlternativeRow:
    return AlternativeRow(
        implementation=implementation_view(found.implementation),
        chosen=found.chosen,
        objective=_price(found.objective),
        prices=tuple(_price(found.terms[name]) for name in terms),
        quality=change(found.estimated_quality, quality),
        seconds=change(found.makespan_s, seconds),
        cost=change(found.cost, compact),
        demand=change(found.demand, compact),
        node_quality=change(found.node_quality, quality),
        breaks=", ".join(found.breaks),
    )


def _price(value: float) -> Price:
    """In thousandths: the objective is about 1, and one node of many changes little of it."""
    text = f"{1000 * abs(value):.2f}"
    if text == "0.00":
        return Price(text="±0" if abs(value) < 1e-12 else "≈ 0", tone="")
    return Price(text=signed(text, value), tone="good" if value > 0 else "bad")


def _surrogates(problem: PlanningProblem, node: NodeExplanation) -> tuple[float | None, float | None]:
    """v_n and Q of the planned implementation."""
    found = getattr(problem.coefficients, "nodes", {}).get(node.node)
    if found is None:
        return None, None
    column = found.column(node.chosen)
    return found.vulnerability, column.quality if column else None


# --- Verification ----------------------------------------------------------------------------------------------------


def _verification(added: Verification) -> VerificationText:
    node, makespan = added_seconds(added.node_s, added.makespan_s)
    return VerificationText(
        plain=implementation_view(added.plain).full,
        node=node,
        makespan=makespan,
        quality=change(added.estimated_quality, quality),
        cost=change(added.cost, compact),
        free=abs(added.makespan_s) < 1e-9 < added.node_s,
    )


def _plan_verification(explanation: Explanation) -> PlanVerificationText | None:
    """None where no node verifies."""
    whole = explanation.verification
    if not whole.nodes:
        return None
    node_s = sum(node.verification.node_s for node in explanation.nodes if node.verification)
    together, makespan = added_seconds(node_s, whole.makespan_s)
    return PlanVerificationText(
        nodes=len(whole.nodes),
        together=together,
        makespan=makespan,
        makespans=f"{seconds(whole.without_makespan_s)} without, {seconds(explanation.makespan_s)} with it",
        quality=change(whole.estimated_quality, quality),
        cost=change(whole.cost, compact),
    )


def added_seconds(node_s: float, makespan_s: float) -> tuple[str, str]:
    """`+3.0 s` and `+0.0 s`: both in the unit of the larger one, so that they compare."""
    size = max(abs(node_s), abs(makespan_s))
    unit, scale, digits = ("s", 1.0, 1) if size >= 0.9995 else ("ms", 1000.0, 0)

    def written(value: float) -> str:
        rounded = round(value * scale, digits)
        return f"{'−' if rounded < 0 else '+'}{abs(rounded):.{digits}f} {unit}"

    return written(node_s), written(makespan_s)
