"""Everything that reads runs: for pages, the API, sockets and streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import QuerySet

from planner.compiler.workflow import LlmNode
from planner.selectors import workflow_value
from runtime.engine.events import NodeState
from runtime.errors import RunNotFound
from runtime.models import Call, Invocation, LedgerEntry, Run, RunEvent


def runs_for(user: AbstractBaseUser) -> QuerySet[Run]:
    """A user's own runs, newest first."""
    return Run.objects.filter(owner_id=user.pk)


def run_for(user: AbstractBaseUser, run_id: str) -> Run:
    """One of the user's own runs, with its version, fleet and bundle. Raises RunNotFound."""
    run = runs_for(user).select_related("version__workflow", "fleet", "bundle").filter(pk=run_id).first()
    if run is None:
        raise RunNotFound(run_id)
    return run


def events_after(run_id: str, seq: int, limit: int = 500) -> list[dict[str, Any]]:
    """The run's events after `seq`, in order: `{seq, kind, at, data}`."""
    rows = RunEvent.objects.filter(run_id=run_id, seq__gt=seq).order_by("seq")
    return [dict(row) for row in rows.values("seq", "kind", "at", "data")[:limit]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node of a run as it stands: its last invocation, or that there is none. Times in epoch seconds."""

    node: str
    title: str
    kind: str
    state: NodeState
    attempt: int = 0
    binding: dict[str, Any] | None = None
    variant: int | None = None
    predicted_s: float | None = None
    dispatched_at: float | None = None
    finished_at: float | None = None
    calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: dict[str, Any] | None = None


def node_rows(run: Run) -> list[NodeRow]:
    """All nodes in file order, without their outputs; `ready` is derived, and nothing is ready in a run that ended."""
    workflow = workflow_value(run.version)
    last: dict[str, Invocation] = {
        row.node: row for row in Invocation.objects.filter(run=run).defer("output", "arguments").order_by("attempt")
    }
    committed = {node for node, row in last.items() if row.state == NodeState.COMMITTED}
    rows = []
    for node in workflow.nodes:
        kind = "llm" if isinstance(node, LlmNode) else "tool"
        row = last.get(node.id)
        if row is not None:
            rows.append(_invoked(row, node.title, kind))
            continue
        ready = run.finished_at is None and committed.issuperset(workflow.predecessors[node.id])
        state = NodeState.READY if ready else NodeState.WAITING
        rows.append(NodeRow(node=node.id, title=node.title, kind=kind, state=state))
    return rows


def _invoked(row: Invocation, title: str, kind: str) -> NodeRow:
    return NodeRow(
        node=row.node,
        title=title,
        kind=kind,
        state=NodeState(row.state),
        attempt=row.attempt,
        binding=row.binding,
        variant=row.variant,
        predicted_s=row.predicted_s,
        dispatched_at=row.dispatched_at,
        finished_at=row.finished_at,
        calls=row.calls,
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        error=row.error,
    )


def invocations_of(run: Run, node: str) -> QuerySet[Invocation]:
    """Every attempt at one node, with its output, oldest first."""
    return Invocation.objects.filter(run=run, node=node).order_by("attempt")


def calls_of(run: Run, node: str, attempt: int | None = None) -> QuerySet[Call]:
    """The HTTP calls of one invocation (of all attempts without a number), in the order of the policy's stages."""
    calls = Call.objects.filter(run=run, node=node)
    if attempt is not None:
        calls = calls.filter(attempt=attempt)
    return calls.order_by("attempt", "stage", "role", "copy")


def ledger_of(run: Run, *, switches_only: bool = False) -> QuerySet[LedgerEntry]:
    """Switches and refusals in order."""
    entries = LedgerEntry.objects.filter(run=run).order_by("seq")
    return entries.filter(to_variant__isnull=False) if switches_only else entries
