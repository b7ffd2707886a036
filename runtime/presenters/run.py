"""One run as its page shows it: head, DAG, badges, and what the page's script starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.common.presentation import compact, model_token, percent, seconds
from planner.compiler.plan import Bundle, Implementation, Plan
from planner.compiler.workflow import Workflow
from planner.presenters.dag import DagView, dag_view
from planner.presenters.plans import badges, variant_name
from planner.selectors import bundle_value, workflow_value
from runtime.engine.events import NodeState, RunState
from runtime.models import Run
from runtime.presenters.words import Text, text_of
from runtime.selectors import NodeRow, node_rows

LOCKED = (NodeState.DISPATCHED, NodeState.COMMITTED, NodeState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """A run with its workflow, its nodes as they stand, and its bundle once it has one."""

    run: Run
    workflow: Workflow
    nodes: Mapping[str, NodeRow]
    bundle: Bundle | None = None
    _bindings: dict[str, Implementation] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bound = {row.node: row.binding for row in self.nodes.values() if row.binding is not None}
        self._bindings.update({node: Implementation.from_json(binding) for node, binding in bound.items()})

    @property
    def origin(self) -> float:
        """When the run was accepted: time 0 of all its pictures."""
        return self.run.accepted_at.timestamp()

    @property
    def ended(self) -> bool:
        return RunState(self.run.state).ended

    @property
    def plan(self) -> Plan | None:
        """The active variant."""
        variants = self.bundle.variants if self.bundle else ()
        return variants[self.run.active_variant] if self.run.active_variant < len(variants) else None

    def implementation(self, node: str) -> Implementation | None:
        """What a node is bound to, or would be if it were dispatched now."""
        if node in self._bindings:
            return self._bindings[node]
        return self.plan.assignment.get(node) if self.plan else None

    def reassigned(self, node: str) -> bool:
        """Whether a switch gave the node another implementation than pi(0) has for it."""
        if self.bundle is None:
            return False
        first = self.bundle.variants[0].assignment.get(node)
        return first is not None and self.implementation(node) != first


def run_context(run: Run) -> RunContext:
    """Two queries: the last attempts, and the variants."""
    workflow = workflow_value(run.version)
    bundle = bundle_value(run.bundle, workflow) if run.bundle is not None else None
    return RunContext(
        run=run,
        workflow=workflow,
        nodes={row.node: row for row in node_rows(run)},
        bundle=bundle if bundle is not None and bundle.variants else None,
    )


def run_dag(context: RunContext) -> DagView:
    names = [node.id for node in context.workflow.nodes]
    implementations = {name: context.implementation(name) for name in names}
    return dag_view(
        context.workflow,
        assignment={name: one for name, one in implementations.items() if one is not None},
        states={name: context.nodes[name].state.value for name in names},
        locked=[name for name in names if context.nodes[name].state in LOCKED],
        reassigned=[name for name in names if context.reassigned(name)],
    )


def run_badges(context: RunContext) -> dict[str, object]:
    """Per variant every LLM node's badge; empty while there is no plan."""
    return badges(context.bundle, context.workflow) if context.bundle else {"variants": []}


# --- Head ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantView:
    name: str
    level: str
    model: str
    token: str
    quality: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """`deadline_at` is epoch seconds; `late` also of a run that goes on past its deadline."""

    state: str
    ended: bool
    cancelling: bool
    progress: str
    share: float
    latency: str
    deadline: str
    deadline_at: float | None
    late: bool
    variant: VariantView | None
    variants: int
    complete: bool
    switches: int
    calls: int
    tokens: str
    tokens_split: str


def run_head(context: RunContext, now: float) -> RunHead:
    run, plan = context.run, context.plan
    until = run.finished_at if run.finished_at is not None else now
    deadline_at = None if run.deadline_s is None else context.origin + run.deadline_s
    return RunHead(
        state=run.state,
        ended=context.ended,
        cancelling=not context.ended and run.cancel_requested_at is not None,
        progress=f"{run.nodes_done} of {run.nodes_total}",
        share=run.nodes_done / run.nodes_total if run.nodes_total else 0.0,
        latency=seconds(until - context.origin),
        deadline=seconds(run.deadline_s),
        deadline_at=deadline_at,
        late=bool(run.late) or (deadline_at is not None and until > deadline_at),
        variant=_variant(run.active_variant, plan) if plan else None,
        variants=len(context.bundle.variants) if context.bundle else 0,
        complete=context.bundle.complete if context.bundle else False,
        switches=run.switches,
        calls=run.calls,
        tokens=compact(run.prompt_tokens + run.output_tokens),
        tokens_split=f"{compact(run.prompt_tokens)} in, {compact(run.output_tokens)} out",
    )


def _variant(index: int, plan: Plan) -> VariantView:
    return VariantView(
        name=variant_name(index),
        level=f"{plan.level:g}",
        model=plan.dominant_model or "",
        token=model_token(plan.dominant_model),
        quality=percent(plan.estimated_quality),
    )


# --- Result ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """`node` is where the run failed, empty when it was no node's fault; `diagnostics` the rest, name and text."""

    node: str
    code: str
    message: str
    diagnostics: tuple[tuple[str, Text], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    output: Text | None
    error: RunError | None


def run_result(context: RunContext) -> RunResult:
    run = context.run
    output = text_of(run.output) if run.state == RunState.SUCCEEDED else None
    return RunResult(output=output, error=_error(run.error) if run.error else None)


def _error(error: Mapping[str, Any]) -> RunError:
    known = ("node", "code", "message")
    return RunError(
        node=str(error.get("node") or ""),
        code=str(error.get("code") or "failed"),
        message=str(error.get("message") or "The run failed."),
        diagnostics=tuple((name, text_of(value)) for name, value in error.items() if name not in known),
    )


def input_texts(run: Run) -> list[tuple[str, Text]]:
    return [(name, text_of(value)) for name, value in run.inputs.items()]


# --- The script's start ----------------------------------------------------------------------------------------------


def script_state(
    context: RunContext, events: Sequence[Mapping[str, Any]], now: float, *, parts_url: str
) -> dict[str, Any]:
    """What static/js/run.js starts from. `seq` is the last event that the page holds: the socket goes on after it."""
    run = context.run
    return {
        "run": run.pk,
        "seq": events[-1]["seq"] if events else run.last_seq,
        "first_seq": events[0]["seq"] if events else 1,
        "state": run.state,
        "ended": context.ended,
        "accepted_at": context.origin,
        "finished_at": run.finished_at,
        "deadline_s": run.deadline_s,
        "active_variant": run.active_variant,
        "server_time": now,
        "parts_url": parts_url,
        "nodes": {
            row.node: {"state": row.state.value, "attempt": row.attempt, "variant": row.variant}
            for row in context.nodes.values()
        },
        "events": list(events),
    }
