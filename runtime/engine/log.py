"""From a commit to the events of a run's log: the one translation that every run store uses (ours).

How a store uses this module, inside the transaction that makes a commit durable, with the run's row locked:

1. `commit.epoch` is not the run's epoch, or the run has ended: raise `LeaseLost`, change nothing.
2. A cancel is recorded and the commit holds intents: `commit = barred(commit)` and answer `Committed(barred="cancel")`.
3. Append `events_of(commit, facts)` at the run's next sequence numbers. Sequence numbers start at 1 and have no gap;
   `run_accepted`, `run_claimed` and `cancel_requested` belong to the services that accept, claim and cancel a run.
4. Write one ledger row per decision; its id in the ledger is the sequence number of its event (`decision_seqs`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from planner.compiler.plan import Bundle, Plan
from runtime.engine.events import EventKind, RunState
from runtime.engine.ports import Commit, Decision, Intent, Outcome, RunEnd

HEAD_CHARACTERS = 200
_DECISION_KINDS = (EventKind.SWITCHED, EventKind.SWITCH_REFUSED)
_ENCODER = json.JSONEncoder(ensure_ascii=False)

Event = tuple[EventKind, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What the translation needs to know of a run beyond the commit.

    `plan_recorded` / `bundle_recorded`: the log holds `plan_ready` / `bundle_ready` already, so that a bundle that is
    committed again (after a takeover) adds no second event. `last_seq`: the log's last sequence number.
    """

    accepted_at: float
    last_seq: int
    deadline_s: float | None = None
    plan_recorded: bool = False
    bundle_recorded: bool = False


def barred(commit: Commit) -> Commit:
    """What is left of a commit after a cancel: outcomes, bundle and end; nothing new is decided or dispatched."""
    return replace(commit, decisions=(), intents=())


def events_of(commit: Commit, facts: RunFacts) -> list[Event]:
    """The commit's events in log order: outcomes, bundle, decisions, intents, end."""
    events = [_outcome_event(outcome) for outcome in commit.outcomes]
    if commit.bundle is not None:
        events += _bundle_events(commit.bundle, facts)
    for decision in commit.decisions:
        events.append(_decision_event(decision, facts.last_seq + len(events) + 1))
    events += map(_intent_event, commit.intents)
    if commit.end is not None:
        events.append(_end_event(commit.end, facts))
    return events


def decision_seqs(events: Iterable[Event]) -> list[int]:
    """The ledger ids of the commit's decisions, in their order, read from its events."""
    return [data["decision"] for kind, data in events if kind in _DECISION_KINDS]


def head_of(output: Any) -> str:
    """The first characters of an output as a person reads it: text as it is, anything else as JSON."""
    return _text(output)[:HEAD_CHARACTERS]


def is_late(end: RunEnd, accepted_at: float, deadline_s: float | None) -> bool:
    """Whether a run ended after its deadline; a run without one is never late."""
    return deadline_s is not None and end.at - accepted_at > deadline_s


def _text(output: Any) -> str:
    if isinstance(output, str):
        return output
    # json.JSONEncoder.iterencode stops early, so that a large output is not written out for its head.
    return "".join(_first_pieces(_ENCODER.iterencode(output)))


def _first_pieces(pieces: Iterable[str]) -> Iterable[str]:
    length = 0
    for piece in pieces:
        yield piece
        length += len(piece)
        if length >= HEAD_CHARACTERS:
            return


def _outcome_event(outcome: Outcome) -> Event:
    if outcome.error is not None:
        return EventKind.NODE_FAILED, {
            "node": outcome.node,
            "attempt": outcome.attempt,
            "error": dict(outcome.error),
            "calls": len(outcome.calls),
        }
    return EventKind.NODE_COMMITTED, {
        "node": outcome.node,
        "attempt": outcome.attempt,
        "duration_s": outcome.finished_at - outcome.started_at,
        "calls": len(outcome.calls),
        "prompt_tokens": sum(call.prompt_tokens for call in outcome.calls),
        "output_tokens": sum(call.output_tokens for call in outcome.calls),
        "head": head_of(outcome.output),
    }


def _bundle_events(bundle: Bundle, facts: RunFacts) -> list[Event]:
    events: list[Event] = []
    if not facts.plan_recorded:
        events.append((EventKind.PLAN_READY, _plan_data(bundle.variants[0])))
    if bundle.complete and not facts.bundle_recorded:
        variants = [_variant_data(index, plan) for index, plan in enumerate(bundle.variants)]
        events.append((EventKind.BUNDLE_READY, {"variants": variants}))
    return events


def _plan_data(plan: Plan) -> dict[str, Any]:
    return {
        "variant": 0,
        "level": plan.level,
        "plan": plan.digest,
        "makespan_s": plan.makespan_s,
        "estimated_quality": plan.estimated_quality,
        "dominant_model": plan.dominant_model,
        "solve_s": plan.solve_s,
        "solver": plan.solver,
        "gap": plan.gap,
    }


def _variant_data(index: int, plan: Plan) -> dict[str, Any]:
    return {
        "index": index,
        "level": plan.level,
        "dominant_model": plan.dominant_model,
        "estimated_quality": plan.estimated_quality,
        "makespan_s": plan.makespan_s,
    }


def _decision_event(decision: Decision, seq: int) -> Event:
    if decision.to_variant is None:
        return EventKind.SWITCH_REFUSED, {
            "decision": seq,
            "active_variant": decision.active_variant,
            "reason": decision.reason,
            "text": decision.text,
        }
    return EventKind.SWITCHED, {
        "decision": seq,
        "from_variant": decision.active_variant,
        "to_variant": decision.to_variant,
        "reason": decision.reason,
        "text": decision.text,
        "changed": list(decision.changed),
        "kept": list(decision.kept),
    }


def _intent_event(intent: Intent) -> Event:
    return EventKind.NODE_DISPATCHED, {
        "node": intent.node,
        "kind": intent.kind,
        "attempt": intent.attempt,
        "variant": intent.variant,
        "binding": intent.binding.to_json() if intent.binding is not None else None,
        "predicted_s": intent.predicted_s,
    }


def _end_event(end: RunEnd, facts: RunFacts) -> Event:
    duration_s = end.at - facts.accepted_at
    if end.state is RunState.SUCCEEDED:
        late = is_late(end, facts.accepted_at, facts.deadline_s)
        return EventKind.RUN_SUCCEEDED, {"duration_s": duration_s, "late": late}
    if end.state is RunState.CANCELLED:
        return EventKind.RUN_CANCELLED, {"duration_s": duration_s}
    if end.state is RunState.FAILED:
        error = dict(end.error or {})
        return EventKind.RUN_FAILED, {"node": error.get("node"), "error": error}
    raise ValueError(f"a run does not end in state {end.state}")
