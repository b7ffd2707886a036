"""The state of one run as a value, and the pure functions that move it on (paper 5, 5.1).

A node is ready when all its predecessors are committed and it was not dispatched itself. Nothing here awaits: a state
is derived from a snapshot and then only from what has been committed, so memory and store never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.compiler.workflow import LlmNode, Node, Workflow
from runtime.engine.events import NodeState
from runtime.engine.ports import Decision, Intent, NodeSnapshot, Outcome, RunSnapshot

_WAITING = NodeSnapshot()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """What is committed of a run. `nodes` lacks waiting nodes; `waits_for` counts each node's uncommitted predecessors.

    `ready` holds the ids of ready nodes and `failed` those of failed ones, both in file order; `outputs` maps committed
    nodes to their outputs.
    """

    workflow: Workflow
    nodes: Mapping[str, NodeSnapshot]
    outputs: Mapping[str, Any]
    waits_for: Mapping[str, int]
    ready: tuple[str, ...]
    failed: tuple[str, ...]
    active_variant: int
    last_switch_at: float | None

    @property
    def complete(self) -> bool:
        """Whether every node is committed, also those that the output does not depend on."""
        return len(self.outputs) == len(self.workflow.nodes)


def progress_of(snapshot: RunSnapshot) -> RunProgress:
    """The state at a claim."""
    workflow, nodes = snapshot.workflow, dict(snapshot.nodes)
    outputs = {node: known.output for node, known in nodes.items() if known.state is NodeState.COMMITTED}
    waits_for = {
        node: sum(1 for before in predecessors if before not in outputs)
        for node, predecessors in workflow.predecessors.items()
    }
    ready = [node for node, open_ones in waits_for.items() if open_ones == 0 and _is_waiting(nodes, node)]
    failed = [node for node, known in nodes.items() if known.state is NodeState.FAILED]
    return RunProgress(
        workflow=workflow,
        nodes=nodes,
        outputs=outputs,
        waits_for=waits_for,
        ready=_in_file_order(workflow, ready),
        failed=_in_file_order(workflow, failed),
        active_variant=snapshot.active_variant,
        last_switch_at=snapshot.last_switch_at,
    )


def ready_nodes(progress: RunProgress) -> tuple[Node, ...]:
    """The nodes that can be dispatched now, in file order."""
    return tuple(progress.workflow.by_id[node] for node in progress.ready)


def undispatched(progress: RunProgress) -> tuple[str, ...]:
    """The LLM nodes whose base call is not dispatched: the only ones that a new variant changes. In file order."""
    return tuple(node.id for node in progress.workflow.llm_nodes if _is_waiting(progress.nodes, node.id))


def next_ready(progress: RunProgress) -> tuple[LlmNode, ...]:
    """The undispatched LLM nodes that wait for nothing but dispatched or committed nodes: those that come next."""
    waiting = undispatched(progress)
    predecessors = progress.workflow.predecessors
    return tuple(
        node
        for node in progress.workflow.llm_nodes
        if node.id in waiting and not any(_is_waiting(progress.nodes, before) for before in predecessors[node.id])
    )


def with_outcomes(progress: RunProgress, outcomes: Sequence[Outcome]) -> RunProgress:
    """The state after these outcomes were committed: outputs are there, successors may be ready."""
    if not outcomes:
        return progress
    nodes, outputs, waits_for = dict(progress.nodes), dict(progress.outputs), dict(progress.waits_for)
    ready, failed = list(progress.ready), list(progress.failed)
    for outcome in outcomes:
        nodes[outcome.node] = after_outcome(nodes[outcome.node], outcome)
        if not outcome.ok:
            failed.append(outcome.node)
            continue
        outputs[outcome.node] = outcome.output
        for successor in progress.workflow.successors[outcome.node]:
            waits_for[successor] -= 1
            if waits_for[successor] == 0 and _is_waiting(nodes, successor):
                ready.append(successor)
    return replace(
        progress,
        nodes=nodes,
        outputs=outputs,
        waits_for=waits_for,
        ready=_in_file_order(progress.workflow, ready),
        failed=_in_file_order(progress.workflow, failed),
    )


def with_intents(progress: RunProgress, intents: Sequence[Intent]) -> RunProgress:
    """The state after these dispatch intents were committed: the nodes are in flight and keep their bindings."""
    if not intents:
        return progress
    dispatched = {intent.node: after_intent(intent) for intent in intents}
    ready = tuple(node for node in progress.ready if node not in dispatched)
    return replace(progress, nodes={**progress.nodes, **dispatched}, ready=ready)


def with_decision(progress: RunProgress, decision: Decision | None) -> RunProgress:
    """The state after a decision was committed; a refusal changes nothing."""
    if decision is None or decision.to_variant is None:
        return progress
    return replace(progress, active_variant=decision.to_variant, last_switch_at=decision.at)


def after_outcome(node: NodeSnapshot, outcome: Outcome) -> NodeSnapshot:
    """A dispatched node once its invocation has ended."""
    state = NodeState.COMMITTED if outcome.ok else NodeState.FAILED
    return replace(node, state=state, output=outcome.output, error=outcome.error)


def after_intent(intent: Intent) -> NodeSnapshot:
    """A node once its dispatch intent is committed."""
    return NodeSnapshot(
        state=NodeState.DISPATCHED,
        attempt=intent.attempt,
        binding=intent.binding,
        variant=intent.variant,
        dispatched_at=intent.at,
    )


def _is_waiting(nodes: Mapping[str, NodeSnapshot], node: str) -> bool:
    return nodes.get(node, _WAITING).state in (NodeState.WAITING, NodeState.READY)


def _in_file_order(workflow: Workflow, nodes: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(nodes, key=workflow.index.__getitem__))
