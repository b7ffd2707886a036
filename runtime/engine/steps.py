"""What one engine step makes durable, as pure functions of the run's progress and of what has come in (paper 5, 5.1).

A step is a safe point: it decides which variant is active, binds all ready nodes under that ONE variant, and becomes
one commit, before the first call of any of them leaves.
"""

from __future__ import annotations

from typing import Any

from planner.compiler.plan import Bundle
from runtime.engine.binding import bind
from runtime.engine.events import NodeState, RunState
from runtime.engine.ports import Commit, Decision, Intent, NodeSnapshot, PressureSource, RunEnd, RunSnapshot
from runtime.engine.state import RunProgress, ready_nodes, undispatched
from runtime.engine.switching import decide

_NEW = NodeSnapshot()


def safe_point(
    run: RunSnapshot, bundle: Bundle, progress: RunProgress, pressure: PressureSource, now: float
) -> Decision | None:
    """The step's decision; None on the decision-free path: controller off, or no LLM node left that could change."""
    if run.settings.controller == "off":
        return None
    free = undispatched(progress)
    if not free:
        return None
    return decide(
        active=progress.active_variant,
        bundle=bundle,
        loads=pressure.loads(),
        settings=run.settings,
        now=now,
        last_switch_at=progress.last_switch_at,
        undispatched=frozenset(free),
    )


def intents_of(run: RunSnapshot, bundle: Bundle, progress: RunProgress, now: float) -> tuple[Intent, ...]:
    """The intents of all ready nodes, bound under the active variant."""
    variant = progress.active_variant
    return tuple(
        bind(
            node,
            bundle.variants[variant],
            variant,
            attempt=progress.nodes.get(node.id, _NEW).attempt + 1,
            at=now,
            inputs=run.inputs,
            outputs=progress.outputs,
        )
        for node in ready_nodes(progress)
    )


def intents_in_flight(progress: RunProgress) -> tuple[Intent, ...]:
    """The intents of a claimed run that are to be issued again, whole, with the SAME bindings; in file order."""
    in_flight = [
        (node, progress.nodes[node.id])
        for node in progress.workflow.nodes
        if progress.nodes.get(node.id, _NEW).state is NodeState.DISPATCHED
    ]
    return tuple(
        Intent(
            node=node.id,
            attempt=known.attempt,
            kind="llm" if known.binding is not None else "tool",
            at=known.dispatched_at or 0.0,
            binding=known.binding,
            variant=known.variant,
        )
        for node, known in in_flight
    )


def end_of(progress: RunProgress, at: float, *, cancelled: bool) -> RunEnd | None:
    """How the run ends when nothing is in flight any more; None while there is something left to do.

    A run that has done everything succeeds even if a cancel came: there is nothing left to bar.
    """
    if progress.complete:
        return RunEnd(state=RunState.SUCCEEDED, at=at, output=progress.outputs[progress.workflow.output])
    if cancelled:
        return RunEnd(state=RunState.CANCELLED, at=at)
    if progress.failed:
        return RunEnd(state=RunState.FAILED, at=at, error=_run_error(progress))
    return None


def is_empty(commit: Commit) -> bool:
    return not (commit.outcomes or commit.bundle or commit.decisions or commit.intents or commit.end)


def _run_error(progress: RunProgress) -> dict[str, Any]:
    node = progress.failed[0]
    known = progress.nodes[node]
    return {"node": node, "attempt": known.attempt, **dict(known.error or {})}
