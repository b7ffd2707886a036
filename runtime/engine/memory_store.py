"""A run store in memory, for replays and tests: the rules of the database store without a database.

It enforces what DESIGN.md promises of every store: epoch fencing, the cancel barrier, one outcome per invocation,
a log without gaps, and commits that are durable whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runtime.engine.events import EventKind, NodeState, RunState
from runtime.engine.log import RunFacts, barred, decision_seqs, events_of
from runtime.engine.ports import (
    Clock,
    Commit,
    CommitRefused,
    Committed,
    Decision,
    Intent,
    LeaseLost,
    NodeSnapshot,
    Outcome,
    RunEnd,
    RunSnapshot,
)
from runtime.engine.state import after_intent, after_outcome

_WAITING = NodeSnapshot()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One line of a run's log."""

    seq: int
    kind: EventKind
    at: float
    data: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class StoredRun:
    """A run as the store holds it: the snapshot of the next claim, the log, the ledger and every outcome."""

    snapshot: RunSnapshot
    state: RunState = RunState.QUEUED
    cancel_requested: bool = False
    end: RunEnd | None = None
    events: list[StoredEvent] = field(default_factory=list)
    decisions: list[tuple[int, Decision]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def append(self, kind: EventKind, at: float, data: dict[str, Any]) -> None:
        self.events.append(StoredEvent(seq=len(self.events) + 1, kind=kind, at=at, data=data))

    def holds(self, kind: EventKind) -> bool:
        return any(event.kind is kind for event in self.events)


class MemoryStore:
    """`RunStore` of one process. Commits apply at once, in the order of the calls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: dict[str, StoredRun] = {}

    def accept(self, snapshot: RunSnapshot) -> None:
        """Take a run in. Its epoch starts at 0: nobody owns it yet. ValueError when the id is known."""
        if snapshot.run_id in self._runs:
            raise ValueError(f"run {snapshot.run_id} was accepted already")
        run = self._runs[snapshot.run_id] = StoredRun(snapshot=replace(snapshot, epoch=0))
        data = {
            "workflow": snapshot.workflow.name,
            "version": None,
            "deadline_s": snapshot.deadline_s,
            "effort": None,
            "controller": snapshot.settings.controller,
        }
        run.append(EventKind.RUN_ACCEPTED, snapshot.accepted_at, data)

    def claim(self, run_id: str, worker: str = "local") -> RunSnapshot:
        """Own the run under a new epoch and get what is needed to start or resume it. LeaseLost when it has ended."""
        run = self._runs[run_id]
        if run.state.ended:
            raise LeaseLost(f"run {run_id} has ended as {run.state}")
        run.snapshot = replace(run.snapshot, epoch=run.snapshot.epoch + 1)
        run.state = RunState.RUNNING
        run.append(EventKind.RUN_CLAIMED, self._clock.now(), {"worker": worker, "epoch": run.snapshot.epoch})
        return run.snapshot

    def request_cancel(self, run_id: str, by: str = "") -> bool:
        """Put the barrier up; False when the run has ended. The owner learns of it from its control or a commit."""
        run = self._runs[run_id]
        if run.state.ended:
            return False
        if not run.cancel_requested:
            run.cancel_requested = True
            run.append(EventKind.CANCEL_REQUESTED, self._clock.now(), {"by": by})
        return True

    def run(self, run_id: str) -> StoredRun:
        """Everything that is stored of a run, to read."""
        return self._runs[run_id]

    async def commit(self, commit: Commit) -> Committed:
        run = self._runs[commit.run_id]
        if run.state.ended or commit.epoch != run.snapshot.epoch:
            raise LeaseLost(f"epoch {commit.epoch} of run {commit.run_id} is over")
        is_barred = run.cancel_requested and bool(commit.intents)
        kept = barred(commit) if is_barred else commit
        nodes = _applied(run.snapshot.nodes, kept.outcomes, kept.intents)
        _apply(run, kept, nodes)
        return Committed(seq=len(run.events), barred="cancel" if is_barred else None)


def _applied(
    nodes: Mapping[str, NodeSnapshot], outcomes: Sequence[Outcome], intents: Sequence[Intent]
) -> dict[str, NodeSnapshot]:
    """The nodes after a commit. Raises CommitRefused before anything has changed."""
    after: dict[str, NodeSnapshot] = dict(nodes)
    for outcome in outcomes:
        node = after.get(outcome.node, _WAITING)
        if node.state is not NodeState.DISPATCHED or node.attempt != outcome.attempt:
            raise CommitRefused(f"node {outcome.node} has no attempt {outcome.attempt} in flight")
        after[outcome.node] = after_outcome(node, outcome)
    for intent in intents:
        node = after.get(intent.node, _WAITING)
        if node.state is NodeState.DISPATCHED or intent.attempt != node.attempt + 1:
            raise CommitRefused(f"node {intent.node} cannot start attempt {intent.attempt}")
        after[intent.node] = after_intent(intent)
    return after


def _apply(run: StoredRun, commit: Commit, nodes: dict[str, NodeSnapshot]) -> None:
    facts = RunFacts(
        accepted_at=run.snapshot.accepted_at,
        deadline_s=run.snapshot.deadline_s,
        plan_recorded=run.holds(EventKind.PLAN_READY),
        bundle_recorded=run.holds(EventKind.BUNDLE_READY),
        last_seq=len(run.events),
    )
    events = events_of(commit, facts)
    run.decisions += zip(decision_seqs(events), commit.decisions, strict=True)
    for kind, data in events:
        run.append(kind, commit.at, data)
    run.outcomes += commit.outcomes
    switches = [decision for decision in commit.decisions if decision.to_variant is not None]
    changes: dict[str, Any] = {"nodes": nodes}
    if commit.bundle is not None:
        changes["bundle"] = commit.bundle
    if switches:
        changes |= {"active_variant": switches[-1].to_variant, "last_switch_at": switches[-1].at}
    run.snapshot = replace(run.snapshot, **changes)
    if commit.end is not None:
        run.end, run.state = commit.end, commit.end.state
        nodes.update({node: replace(known, state=NodeState.CANCELLED) for node, known in _in_flight(nodes)})


def _in_flight(nodes: Mapping[str, NodeSnapshot]) -> list[tuple[str, NodeSnapshot]]:
    return [(node, known) for node, known in nodes.items() if known.state is NodeState.DISPATCHED]
