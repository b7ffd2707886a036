"""One invocation from its intent to its outcome. Whatever goes wrong inside becomes the outcome's error (ours)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.compiler.references import ReferenceFailed, render, render_text
from planner.compiler.workflow import LlmNode, Node, ToolNode
from runtime.engine.calls import Caller, InvocationFailed, LlmTask
from runtime.engine.outputs import clean_text
from runtime.engine.ports import CallFailed, Intent, Outcome, Ports, RunSnapshot, Tool, ToolFailed
from runtime.engine.verification import execute_policy

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A committed intent with what it needs to run; `outputs` are those of the moment it was dispatched."""

    run: RunSnapshot
    node: Node
    intent: Intent
    outputs: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.run.run_id}/{self.node.id}#{self.intent.attempt}"


async def invoke(invocation: Invocation, ports: Ports) -> Outcome:
    """Run an invocation to its end. Raises nothing but cancellation."""
    started_at = ports.clock.now()
    caller = Caller(ports.dispatcher, ports.clock)
    output: Any = None
    error: dict[str, Any] | None = None
    try:
        output = await _output(invocation, ports, caller)
    except CallFailed as failure:
        error = {
            "code": failure.code,
            "message": failure.message,
            "retryable": failure.retryable,
            "replica": failure.replica,
            "tries": failure.tries,
        }
    except ToolFailed as failure:
        error = {"code": failure.code, "message": failure.message, "pointer": failure.pointer}
    except InvocationFailed as failure:
        error = {"code": failure.code, "message": failure.message, **failure.details}
    except Exception as failure:
        # A defect in an adapter must end this run with its reason; raised on, it would be taken over and fail for ever.
        logger.exception("invocation %s broke", invocation.name)
        error = {"code": "internal_error", "message": f"{type(failure).__name__}: {failure}"}
    return Outcome(
        node=invocation.node.id,
        attempt=invocation.intent.attempt,
        started_at=started_at,
        finished_at=ports.clock.now(),
        output=output,
        error=_storable(error) if error is not None else None,
        calls=caller.in_order(),
    )


def _storable(error: Mapping[str, Any]) -> dict[str, Any]:
    """An error may quote a server: what no database keeps would make the outcome, and so the run, impossible to end."""
    return {name: clean_text(value) if isinstance(value, str) else value for name, value in error.items()}


async def _output(invocation: Invocation, ports: Ports, caller: Caller) -> Any:
    if isinstance(invocation.node, ToolNode):
        return await _use_tool(invocation, invocation.node, ports.tools)
    return await execute_policy(_llm_task(invocation, invocation.node), caller)


def _llm_task(invocation: Invocation, node: LlmNode) -> LlmTask:
    run, binding = invocation.run, invocation.intent.binding
    policy = run.policies.get(binding.policy) if binding is not None else None
    if binding is None or policy is None:
        name = binding.policy if binding is not None else "none given"
        raise InvocationFailed("invalid_binding", f"node {node.id} is bound to an unknown policy: {name}")
    try:
        system = render_text(node.system, run.inputs, invocation.outputs)
        prompt = render_text(node.prompt, run.inputs, invocation.outputs)
    except ReferenceFailed as failure:
        raise InvocationFailed("unresolved_reference", str(failure)) from None
    return LlmTask(
        run_id=run.run_id,
        epoch=run.epoch,
        node=node,
        attempt=invocation.intent.attempt,
        binding=binding,
        policy=policy,
        run_seed=run.seed,
        system=system,
        prompt=prompt,
    )


async def _use_tool(invocation: Invocation, node: ToolNode, tools: Mapping[str, Tool]) -> Any:
    tool = tools.get(node.tool)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        raise ToolFailed("tool_error", f"there is no tool named {node.tool}; the tools are: {known}")
    arguments = _arguments(invocation, node)
    try:
        async with asyncio.timeout(node.timeout_s) as limit:
            return await tool.invoke(arguments)
    except TimeoutError:
        if not limit.expired():
            raise
        raise ToolFailed("timeout", f"{node.tool} gave no result within {node.timeout_s:g} s") from None


def _arguments(invocation: Invocation, node: ToolNode) -> Mapping[str, Any]:
    recorded = invocation.intent.arguments
    if recorded is not None:
        return dict(recorded)
    try:
        return dict(render(node.arguments, invocation.run.inputs, invocation.outputs))
    except ReferenceFailed as failure:
        raise ToolFailed("malformed_arguments", str(failure)) from None
