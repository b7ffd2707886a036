"""The words of a run's event log. Every step of a run is one append-only event `(run, seq, kind, data)`.

Payloads (JSON, schema version `EVENT_SCHEMA`), times in epoch seconds:

    run_accepted     workflow, version, deadline_s, effort, bundle, limits, controller
    run_claimed      worker, epoch            (epoch > 1: another worker took the run over)
    plan_ready       variant, level, plan (digest), makespan_s, estimated_quality, dominant_model, solve_s, solver, gap
    bundle_ready     variants: [{index, level, dominant_model, estimated_quality, makespan_s}]
    node_dispatched  node, kind, attempt, variant, binding (Implementation as JSON, LLM nodes), predicted_s
    node_committed   node, attempt, duration_s, calls, prompt_tokens, output_tokens, head (first 200 characters)
    node_failed      node, attempt, error: {code, message, ...}, calls
    switched         decision (its seq: the id in the ledger), from_variant, to_variant, reason, text,
                     changed: [node], kept: [node]
    switch_refused   decision, active_variant, reason, text      (coalesced: one event while nothing changes; none
                     while nothing is wanted, that is with calm loads on variant 0)
    cancel_requested by
    run_succeeded    duration_s, late
    run_failed       node, error
    run_cancelled    duration_s
"""

from __future__ import annotations

from enum import StrEnum

EVENT_SCHEMA = 1


class EventKind(StrEnum):
    RUN_ACCEPTED = "run_accepted"
    RUN_CLAIMED = "run_claimed"
    PLAN_READY = "plan_ready"
    BUNDLE_READY = "bundle_ready"
    NODE_DISPATCHED = "node_dispatched"
    NODE_COMMITTED = "node_committed"
    NODE_FAILED = "node_failed"
    SWITCHED = "switched"
    SWITCH_REFUSED = "switch_refused"
    CANCEL_REQUESTED = "cancel_requested"
    RUN_SUCCEEDED = "run_succeeded"
    RUN_FAILED = "run_failed"
    RUN_CANCELLED = "run_cancelled"


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)


class NodeState(StrEnum):
    """`ready` is derived (all predecessors committed), so the log never needs to say it."""

    WAITING = "waiting"
    READY = "ready"
    DISPATCHED = "dispatched"
    COMMITTED = "committed"
    FAILED = "failed"
    CANCELLED = "cancelled"
