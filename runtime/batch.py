"""From the commits of one batch to the rows that make them durable, in memory and without a database (ours).

The runs' rows are locked while this happens, so what is read at the start holds until the transaction ends. A commit
is checked before it changes anything: one that fails leaves the others of its batch untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from runtime.database import clean_text, epoch_seconds, json_text, optional_json
from runtime.engine.events import EVENT_SCHEMA, EventKind, NodeState, RunState
from runtime.engine.log import Event, RunFacts, barred, decision_seqs, events_of, is_late
from runtime.engine.ports import (
    CallRecord,
    Commit,
    CommitRefused,
    Committed,
    Decision,
    Intent,
    LeaseLost,
    Outcome,
    RunEnd,
)

Row = tuple[Any, ...]
Attempt = tuple[int, str]
"""The last attempt at a node and its state."""


@dataclass(slots=True, kw_only=True)
class LockedRun:
    """A run as its locked row says, brought forward by every commit of the batch; times in epoch seconds."""

    id: str
    epoch: int
    state: str
    cancel_requested: bool
    last_seq: int
    accepted_at: datetime | str
    deadline_s: float | None
    active_variant: int
    last_switch_at: float | None
    nodes_done: int
    calls: int
    prompt_tokens: int
    output_tokens: int
    switches: int
    attempts: dict[str, Attempt] = field(default_factory=dict)
    announced: set[str] = field(default_factory=set)
    end: RunEnd | None = None
    late: bool | None = None
    changed: bool = False

    def counters(self) -> Row:
        """The parameters of `UPDATE_RUN`."""
        return (
            self.last_seq,
            self.nodes_done,
            self.calls,
            self.prompt_tokens,
            self.output_tokens,
            self.switches,
            self.active_variant,
            self.last_switch_at,
            self.id,
        )


@dataclass(slots=True, kw_only=True)
class Rows:
    """Parameters of the batch's statements, in the order of their columns (runtime/store.py)."""

    events: list[Row] = field(default_factory=list)
    outcomes: list[Row] = field(default_factory=list)
    intents: list[Row] = field(default_factory=list)
    calls: list[Row] = field(default_factory=list)
    ledger: list[Row] = field(default_factory=list)
    ends: list[Row] = field(default_factory=list)


def apply(commit: Commit, run: LockedRun | None, rows: Rows) -> tuple[Committed, Sequence[Event]]:
    """Add a commit's rows and bring its run forward. Raises LeaseLost or CommitRefused before anything has changed."""
    if run is None or run.epoch != commit.epoch or RunState(run.state).ended:
        raise LeaseLost(f"epoch {commit.epoch} of run {commit.run_id} is over")
    is_barred = run.cancel_requested and bool(commit.intents)
    kept = barred(commit) if is_barred else commit
    attempts = attempts_after(run.attempts, kept)
    events = events_of(kept, _facts(run, kept))
    made = _rows_of(kept, run, events)
    for name in ("events", "outcomes", "intents", "calls", "ledger", "ends"):
        getattr(rows, name).extend(getattr(made, name))
    _bring_forward(run, kept, events, attempts)
    return Committed(seq=run.last_seq, barred="cancel" if is_barred else None), events


def attempts_after(before: Mapping[str, Attempt], commit: Commit) -> dict[str, Attempt]:
    """The attempts once a commit is durable. Raises CommitRefused where it breaks a rule of the log."""
    after = dict(before)
    for outcome in commit.outcomes:
        if after.get(outcome.node) != (outcome.attempt, NodeState.DISPATCHED):
            raise CommitRefused(f"node {outcome.node} has no attempt {outcome.attempt} in flight")
        after[outcome.node] = (outcome.attempt, NodeState.COMMITTED if outcome.ok else NodeState.FAILED)
    for intent in commit.intents:
        last, state = after.get(intent.node, (0, NodeState.WAITING))
        if state == NodeState.DISPATCHED or intent.attempt != last + 1:
            raise CommitRefused(f"node {intent.node} cannot start attempt {intent.attempt}")
        after[intent.node] = (intent.attempt, NodeState.DISPATCHED)
    return after


def _facts(run: LockedRun, commit: Commit) -> RunFacts:
    return RunFacts(
        # Only an end reads it, and parsing a date is dear at thousands of commits a second.
        accepted_at=epoch_seconds(run.accepted_at) if commit.end is not None else 0.0,
        deadline_s=run.deadline_s,
        plan_recorded=EventKind.PLAN_READY in run.announced,
        bundle_recorded=EventKind.BUNDLE_READY in run.announced,
        last_seq=run.last_seq,
    )


def _bring_forward(run: LockedRun, commit: Commit, events: Sequence[Event], attempts: dict[str, Attempt]) -> None:
    run.changed = True
    run.attempts = attempts
    run.last_seq += len(events)
    run.announced.update(kind for kind, _ in events if kind in (EventKind.PLAN_READY, EventKind.BUNDLE_READY))
    run.nodes_done += sum(outcome.ok for outcome in commit.outcomes)
    calls = [call for outcome in commit.outcomes for call in outcome.calls]
    run.calls += len(calls)
    run.prompt_tokens += sum(call.prompt_tokens for call in calls)
    run.output_tokens += sum(call.output_tokens for call in calls)
    for decision in commit.decisions:
        if decision.to_variant is not None:
            run.active_variant, run.last_switch_at = decision.to_variant, decision.at
            run.switches += 1
    if commit.end is not None:
        run.end, run.state = commit.end, commit.end.state


# --- Rows ------------------------------------------------------------------------------------------------------------


def _rows_of(commit: Commit, run: LockedRun, events: Sequence[Event]) -> Rows:
    return Rows(
        events=event_rows(run.id, run.last_seq, commit.at, events),
        outcomes=[_outcome_row(run.id, outcome) for outcome in commit.outcomes],
        intents=[_intent_row(run.id, intent) for intent in commit.intents],
        calls=[_call_row(run.id, outcome, call) for outcome in commit.outcomes for call in outcome.calls],
        ledger=[
            _ledger_row(run.id, seq, decision)
            for seq, decision in zip(decision_seqs(events), commit.decisions, strict=True)
        ],
        ends=[_end_row(run, commit.end)] if commit.end is not None else [],
    )


def event_rows(run_id: str, last_seq: int, at: float, events: Iterable[Event]) -> list[Row]:
    """The rows of new events, numbered from `last_seq + 1`."""
    return [
        (run_id, last_seq + index, str(kind), EVENT_SCHEMA, at, json_text(data))
        for index, (kind, data) in enumerate(events, start=1)
    ]


def _outcome_row(run_id: str, outcome: Outcome) -> Row:
    return (
        NodeState.COMMITTED.value if outcome.ok else NodeState.FAILED.value,
        outcome.finished_at,
        optional_json(outcome.output),
        optional_json(dict(outcome.error)) if outcome.error is not None else None,
        len(outcome.calls),
        sum(call.prompt_tokens for call in outcome.calls),
        sum(call.output_tokens for call in outcome.calls),
        run_id,
        outcome.node,
        outcome.attempt,
    )


def _intent_row(run_id: str, intent: Intent) -> Row:
    return (
        run_id,
        intent.node,
        intent.attempt,
        intent.kind,
        NodeState.DISPATCHED.value,
        intent.variant,
        optional_json(intent.binding.to_json()) if intent.binding is not None else None,
        optional_json(intent.arguments),
        intent.predicted_s,
        intent.at,
    )


def _call_row(run_id: str, outcome: Outcome, call: CallRecord) -> Row:
    return (
        run_id,
        outcome.node,
        outcome.attempt,
        call.stage,
        call.role,
        call.copy,
        call.model,
        call.backend,
        call.replica,
        call.request_id,
        json_text([dict(message) for message in call.messages]),
        clean_text(call.text),
        clean_text(call.reasoning),
        clean_text(call.verdict)[:16],
        clean_text(call.error),
        clean_text(call.finish_reason)[:32],
        call.prompt_tokens,
        call.output_tokens,
        call.tries,
        call.started_at,
        call.finished_at,
        call.queue_s,
        call.ttft_s,
    )


def _ledger_row(run_id: str, seq: int, decision: Decision) -> Row:
    return (
        run_id,
        seq,
        decision.at,
        decision.active_variant,
        decision.to_variant,
        decision.reason[:40],
        decision.text,
        json_text({model: load.to_json() for model, load in decision.loads.items()}),
        json_text(dict(decision.thresholds)),
        json_text([candidate.to_json() for candidate in decision.candidates]),
        json_text(list(decision.changed)),
        json_text(list(decision.kept)),
    )


def _end_row(run: LockedRun, end: RunEnd) -> Row:
    late = is_late(end, epoch_seconds(run.accepted_at), run.deadline_s)
    return (
        end.state.value,
        optional_json(end.output),
        optional_json(dict(end.error)) if end.error is not None else None,
        end.at,
        late,
        run.id,
    )
