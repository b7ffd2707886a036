"""One node of a run for the drawer: what it is, every attempt, every call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.common.presentation import DASH, compact, seconds
from planner.compiler.plan import Implementation
from planner.compiler.workflow import LlmNode
from planner.presenters.plans import ImplementationView, implementation_view, variant_name
from runtime.engine.events import NodeState
from runtime.models import Call, Invocation
from runtime.presenters.run import RunContext
from runtime.presenters.words import Text, after, text_of
from runtime.selectors import calls_of, invocations_of

MAX_CALLS = 60
"""Calls of one attempt that a drawer shows; the API has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    role: str
    text: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """One HTTP request. `verdict` and `error` are empty where there is none."""

    stage: int
    role: str
    copy: int
    model: str
    replica: str
    tokens: str
    begin: str
    total: str
    queue: str
    ttft: str
    tries: int
    verdict: str
    error: str
    finish: str
    request_id: str
    messages: tuple[Message, ...]
    text: Text
    reasoning: Text | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    number: int
    state: str
    variant: str
    implementation: ImplementationView | None
    dispatched: str
    total: str
    predicted: str
    tokens: str
    calls: tuple[CallView, ...]
    more_calls: int
    output: Text | None
    arguments: Text | None
    error: Text | None
    error_code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """`about` holds facts of the workflow; `prompt` is the node's own text with its references unfilled."""

    node: str
    title: str
    kind: str
    state: str
    implementation: ImplementationView | None
    planned: bool
    reassigned: bool
    about: tuple[tuple[str, str], ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    prompt: Text | None
    attempts: tuple[AttemptView, ...]


def node_view(context: RunContext, node: str) -> NodeView:
    """Two queries. Raises KeyError for a node that the workflow has not."""
    value, row = context.workflow.by_id[node], context.nodes[node]
    implementation = context.implementation(node)
    calls: dict[int, list[Call]] = defaultdict(list)
    for call in calls_of(context.run, node):
        calls[call.attempt].append(call)
    attempts = [_attempt(one, calls[one.attempt], context.origin) for one in invocations_of(context.run, node)]
    return NodeView(
        node=node,
        title=value.title or node,
        kind="llm" if isinstance(value, LlmNode) else "tool",
        state=row.state.value,
        implementation=implementation_view(implementation) if implementation else None,
        planned=row.binding is None,
        reassigned=context.reassigned(node),
        about=_about(context, node),
        before=context.workflow.predecessors[node],
        after=context.workflow.successors[node],
        prompt=text_of(value.prompt) if isinstance(value, LlmNode) else text_of(dict(value.arguments)),
        attempts=tuple(reversed(attempts)),
    )


def _about(context: RunContext, node: str) -> tuple[tuple[str, str], ...]:
    value = context.workflow.by_id[node]
    if not isinstance(value, LlmNode):
        return (
            ("Tool", value.tool),
            ("Effect", value.effect),
            ("Expected", seconds(value.expected_s)),
            ("Time-out", seconds(value.timeout_s)),
        )
    return (
        ("Skill", value.skill),
        ("Output", value.output.format),
        ("Limit", f"{value.max_tokens} tokens"),
        ("Thinking", "on" if value.thinking else "off"),
    )


def _attempt(row: Invocation, calls: list[Call], origin: float) -> AttemptView:
    error: Mapping[str, Any] = row.error or {}
    return AttemptView(
        number=row.attempt,
        state=row.state,
        variant=DASH if row.variant is None else variant_name(row.variant),
        implementation=implementation_view(Implementation.from_json(row.binding)) if row.binding else None,
        dispatched=after(row.dispatched_at, origin),
        total=seconds(row.finished_at - row.dispatched_at) if row.finished_at is not None else "",
        predicted=seconds(row.predicted_s),
        tokens=f"{compact(row.prompt_tokens)} in, {compact(row.output_tokens)} out",
        calls=tuple(_call(call, origin) for call in calls[:MAX_CALLS]),
        more_calls=max(0, len(calls) - MAX_CALLS),
        output=text_of(row.output) if row.state == NodeState.COMMITTED else None,
        arguments=text_of(row.arguments) if row.arguments is not None else None,
        error=text_of(error.get("message") or dict(error)) if error else None,
        error_code=str(error.get("code", "")),
    )


def _call(call: Call, origin: float) -> CallView:
    return CallView(
        stage=call.stage,
        role=call.role,
        copy=call.copy,
        model=call.model,
        replica=call.replica or DASH,
        tokens=f"{compact(call.prompt_tokens)} in, {compact(call.output_tokens)} out",
        begin=after(call.started_at, origin),
        total=seconds(call.finished_at - call.started_at),
        queue=seconds(call.queue_s),
        ttft=seconds(call.ttft_s),
        tries=call.tries,
        verdict=call.verdict,
        error=call.error,
        finish=call.finish_reason,
        request_id=call.request_id,
        messages=tuple(Message(role=str(m.get("role", "")), text=text_of(m.get("content", ""))) for m in call.messages),
        text=text_of(call.text),
        reasoning=text_of(call.reasoning) if call.reasoning else None,
    )
