"""Bundles as the pages show them: rows, shares, comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fleet.common.presentation import DASH, compact, model_size, model_token, percent, quality, seconds, signed
from planner.compiler.plan import Bundle, Implementation, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.workflow import Workflow
from planner.presenters.dag import badge_text

Write = Callable[[float | None], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One model class's part of a plan's demand; `share` in [0, 1], `slot_s` slot-seconds."""

    model: str
    size: str
    token: str
    share: float
    slot_s: float

    @property
    def text(self) -> str:
        return f"{self.size} {percent(self.share)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplementationView:
    model: str
    size: str
    token: str
    policy: str
    backend: str
    full: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRow:
    """`quality` is the product surrogate; `drop` its distance from pi(0); `gap` says `optimal` where it is proven."""

    index: int
    name: str
    level: str
    dominant_model: str
    quality: str
    drop: str
    makespan: str
    cost: str
    demand: str
    shares: tuple[Share, ...]
    solver: str
    solve: str
    gap: str
    digest: str


def variant_name(index: int) -> str:
    return f"π({index})"


def level_word(bundle: Bundle) -> str:
    """What tells the variants of its kind apart."""
    return "Price" if bundle.kind == "priced" else "Level"


def implementation_view(implementation: Implementation) -> ImplementationView:
    return ImplementationView(
        model=implementation.model,
        size=model_size(implementation.model),
        token=model_token(implementation.model),
        policy=badge_text(implementation).split(" · ", 1)[1],
        backend=implementation.backend,
        full=f"{implementation.label} on {implementation.backend}",
    )


def shares(plan: Plan) -> tuple[Share, ...]:
    """Demand per model class, largest first."""
    total = plan.total_demand
    ordered = sorted(plan.demand.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Share(
            model=name,
            size=model_size(name),
            token=model_token(name),
            share=slot_s / total if total else 0.0,
            slot_s=slot_s,
        )
        for name, slot_s in ordered
    )


def gap_text(plan: Plan) -> str:
    return "optimal" if plan.gap == 0 else f"≤ {plan.gap:.2%}"


def variant_rows(bundle: Bundle) -> tuple[VariantRow, ...]:
    first = bundle.variants[0]
    return tuple(
        VariantRow(
            index=index,
            name=variant_name(index),
            level=f"{plan.level:g}",
            dominant_model=plan.dominant_model or "",
            quality=quality(plan.estimated_quality),
            drop=change(plan.estimated_quality - first.estimated_quality, quality) if index else "",
            makespan=seconds(plan.makespan_s),
            cost=compact(plan.cost),
            demand=f"{compact(plan.total_demand)} slot-s",
            shares=shares(plan),
            solver=plan.solver,
            solve=seconds(plan.solve_s),
            gap=gap_text(plan),
            digest=plan.digest[:10],
        )
        for index, plan in enumerate(bundle.variants)
    )


def badges(bundle: Bundle, workflow: Workflow) -> dict[str, object]:
    """What js/plans.js writes into the DAG per variant: each LLM node's badge and colour, and whether pi(0) differs."""
    first = bundle.variants[0]
    return {
        "variants": [
            {
                node.id: {
                    "badge": badge_text(plan.assignment[node.id]),
                    "model": model_token(plan.assignment[node.id].model),
                    "changed": plan.assignment[node.id] != first.assignment[node.id],
                }
                for node in workflow.llm_nodes
            }
            for plan in bundle.variants
        ]
    }


def change(value: float, write: Write) -> str:
    """A signed difference in the words of `write`; `±0` for nothing, `≈ 0` for what rounds to nothing."""
    text = write(abs(value))
    if text.startswith("<"):
        return "≈ 0"
    return "±0" if text in (write(0.0), "0 s") else signed(text, value)


# --- Comparison ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareCell:
    """`delta` against pi(0); `tone` is good, bad or empty."""

    text: str
    delta: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRow:
    name: str
    cells: tuple[CompareCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCell:
    implementation: ImplementationView
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    node: str
    title: str
    cells: tuple[NodeCell, ...]

    @property
    def changed(self) -> bool:
        return any(cell.changed for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All variants of a bundle side by side, each against pi(0)."""

    variants: tuple[VariantRow, ...]
    facts: tuple[CompareRow, ...]
    nodes: tuple[NodeRow, ...]

    @property
    def changed_nodes(self) -> int:
        return sum(row.changed for row in self.nodes)


def comparison(bundle: Bundle, workflow: Workflow) -> Comparison:
    plans = bundle.variants
    return Comparison(
        variants=variant_rows(bundle),
        facts=(
            _row(plans, "Estimated quality", "estimated_quality", quality, better_up=True),
            _row(plans, "Makespan", "makespan_s", seconds, better_up=False),
            _row(plans, "Cost (relative)", "cost", compact, better_up=False),
            _row(plans, "Demand (slot-seconds)", "total_demand", compact, better_up=False),
            CompareRow(
                name="Nodes changed",
                cells=tuple(CompareCell(text=str(len(changed_nodes(plans[0], plan)))) for plan in plans),
            ),
            CompareRow(
                name="Solver",
                cells=tuple(CompareCell(text=f"{plan.solver}, {seconds(plan.solve_s)}") for plan in plans),
            ),
            CompareRow(name="Gap", cells=tuple(CompareCell(text=gap_text(plan)) for plan in plans)),
        ),
        nodes=tuple(
            NodeRow(
                node=node.id,
                title=node.title or node.id,
                cells=tuple(
                    NodeCell(
                        implementation=implementation_view(plan.assignment[node.id]),
                        changed=plan.assignment[node.id] != plans[0].assignment[node.id],
                    )
                    for plan in plans
                ),
            )
            for node in workflow.llm_nodes
        ),
    )


def changed_nodes(first: Plan, other: Plan) -> tuple[str, ...]:
    """Nodes whose implementation differs."""
    return tuple(node for node, chosen in first.assignment.items() if other.assignment[node] != chosen)


def _row(plans: Sequence[Plan], name: str, field: str, write: Write, *, better_up: bool) -> CompareRow:
    base = getattr(plans[0], field)
    cells = []
    for index, plan in enumerate(plans):
        value = getattr(plan, field)
        delta = change(value - base, write) if index else ""
        tone = "" if delta in ("", "±0") else "good" if (value > base) == better_up else "bad"
        cells.append(CompareCell(text=write(value), delta=delta, tone=tone))
    return CompareRow(name=name, cells=tuple(cells))


def origin_notes(problem: PlanningProblem) -> Mapping[str, object]:
    """What the figures of a plan rest on: profiles' version and mark, rates' sources, time scale."""
    sources = sorted({backend.rates.source for backend in problem.catalog.backends})
    scales = sorted({backend.rates.time_scale for backend in problem.catalog.backends if backend.emulated})
    return {
        "profiles": problem.profiles.version,
        "illustrative": problem.profiles.illustrative,
        "sources": ", ".join(sources) or DASH,
        "emulated": bool(scales),
        "time_scale": ", ".join(f"{scale:g}" for scale in scales),
    }
