"""One call of an invocation: its request, its answer, its record (ours)."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.compiler.plan import Implementation
from planner.compiler.policies import Policy, PolicyCall
from planner.compiler.workflow import LlmNode
from runtime.engine.outputs import clean_text
from runtime.engine.ports import CallFailed, CallRecord, CallRequest, CallResult, Clock, Dispatcher
from runtime.engine.prompts import response_format, temperature_of, token_limit

_SEED_MASK = 0x7FFFFFFF
_SEED_STRIDE = 64
"""Seeds of one stage are consecutive; re-asks of all its copies follow behind them."""


class InvocationFailed(Exception):
    """An invocation that ended without a usable output. `code` is stable, `message` for a person."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.details = code, message, details


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmTask:
    """One LLM invocation with its templates filled. `run_seed` makes its sampling repeatable."""

    run_id: str
    epoch: int
    node: LlmNode
    attempt: int
    binding: Implementation
    policy: Policy
    run_seed: int
    system: str
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a call stands: stage, position among the stage's calls, copy of its role, and how often it was re-asked."""

    stage: int
    position: int
    copy: int
    ask: int = 0


def request_of(
    task: LlmTask,
    call: PolicyCall,
    place: Place,
    messages: tuple[Mapping[str, str], ...],
    *,
    thinking: bool,
    choices: Sequence[str] = (),
) -> CallRequest:
    """The HTTP request of one call. Raises InvocationFailed when a verifier is needed and the binding names none."""
    model, backend = _served_by(task, call)
    return CallRequest(
        request_id=request_id(task, place),
        run_id=task.run_id,
        node=task.node.id,
        attempt=task.attempt,
        stage=place.stage,
        role=call.role,
        copy=place.copy,
        model=model,
        backend=backend,
        messages=messages,
        max_tokens=token_limit(call, task.node),
        temperature=temperature_of(call, task.node, thinking=thinking),
        seed=seed_of(task, place),
        thinking=thinking,
        response=response_format(call, task.node, choices),
    )


def request_id(task: LlmTask, place: Place) -> str:
    """Unique among all requests of all workers: a takeover issues an invocation again under a new epoch."""
    again = f".r{place.ask}" if place.ask else ""
    return f"{task.run_id}.{task.node.id}.{task.attempt}.{place.stage}.{place.position}{again}.e{task.epoch}"


def seed_of(task: LlmTask, place: Place) -> int:
    """A 31-bit seed, distinct within a stage and the same when an invocation is issued again."""
    key = f"{task.run_seed}/{task.node.id}/{task.attempt}/{place.stage}"
    return (zlib.crc32(key.encode()) + place.position + _SEED_STRIDE * place.ask) & _SEED_MASK


@dataclass(slots=True)
class Caller:
    """Sends an invocation's calls and keeps a record of every one of them, also of those that failed."""

    dispatcher: Dispatcher
    clock: Clock
    records: list[CallRecord] = field(default_factory=list)

    async def send(self, request: CallRequest) -> tuple[CallResult, int]:
        """The answer, with texts that can be stored, and the record's position for `annotate`. Raises CallFailed."""
        started_at = self.clock.now()
        try:
            answer = await self.dispatcher.call(request)
        except CallFailed as failure:
            self._record_failure(request, started_at, f"{failure.code}: {failure.message}", failure)
            raise
        except asyncio.CancelledError:
            self._record_failure(request, started_at, "cancelled")
            raise
        answer = _storable(answer)
        self.records.append(_record(request, answer))
        return answer, len(self.records) - 1

    def annotate(self, position: int, *, verdict: str = "", error: str = "") -> None:
        """Write down how a call's answer was read."""
        self.records[position] = replace(self.records[position], verdict=verdict, error=error)

    def in_order(self) -> tuple[CallRecord, ...]:
        """The records by stage, role and copy; re-asks of one copy in the order they were made."""
        return tuple(sorted(self.records, key=lambda record: (record.stage, record.copy)))

    def _record_failure(
        self, request: CallRequest, started_at: float, error: str, failure: CallFailed | None = None
    ) -> None:
        nothing = CallResult(
            text="",
            reasoning="",
            prompt_tokens=0,
            output_tokens=0,
            finish_reason="",
            replica=failure.replica if failure else "",
            started_at=started_at,
            finished_at=self.clock.now(),
            tries=failure.tries if failure else 1,
        )
        self.records.append(replace(_record(request, nothing), error=clean_text(error)))


def _storable(answer: CallResult) -> CallResult:
    text, reasoning = clean_text(answer.text), clean_text(answer.reasoning)
    if text == answer.text and reasoning == answer.reasoning:
        return answer
    return replace(answer, text=text, reasoning=reasoning)


def _record(request: CallRequest, answer: CallResult) -> CallRecord:
    return CallRecord(
        stage=request.stage,
        role=request.role,
        copy=request.copy,
        model=request.model,
        backend=request.backend,
        replica=answer.replica,
        request_id=request.request_id,
        messages=request.messages,
        text=answer.text,
        reasoning=answer.reasoning,
        prompt_tokens=answer.prompt_tokens,
        output_tokens=answer.output_tokens,
        finish_reason=answer.finish_reason,
        started_at=answer.started_at,
        finished_at=answer.finished_at,
        queue_s=answer.queue_s,
        ttft_s=answer.ttft_s,
        tries=answer.tries,
    )


def _served_by(task: LlmTask, call: PolicyCall) -> tuple[str, str]:
    binding = task.binding
    if call.model == "base":
        return binding.model, binding.backend
    if binding.verifier_model is None or binding.verifier_backend is None:
        raise InvocationFailed(
            "invalid_binding",
            f"policy {binding.policy} needs a verifier, but the binding of {task.node.id} names none; compile again",
        )
    return binding.verifier_model, binding.verifier_backend
