"""The engine's dispatcher over HTTP: calls of a binding become chat completions on a replica of its backend."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from fleet.serving.chat import AnswerFormat, ChatRequest, ChatResponse
from fleet.serving.errors import ServingError
from runtime.engine.ports import CallFailed, CallRequest, CallResult, ResponseFormat


class Pool(Protocol):
    """What the dispatcher needs of `fleet.serving.pool.ReplicaPool`."""

    async def call(self, backend: str, request: ChatRequest) -> ChatResponse: ...


class HttpDispatcher:
    """`Dispatcher` on a replica pool. Calls wait until `learn` was called once."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._served_names: Mapping[str, str] = {}
        self._learned = asyncio.Event()

    def learn(self, served_names: Mapping[str, str]) -> None:
        """Per backend, what its servers call the model; a backend that is not named uses the class's name."""
        self._served_names = served_names
        self._learned.set()

    async def call(self, request: CallRequest) -> CallResult:
        await self._learned.wait()
        try:
            response = await self._pool.call(request.backend, self._chat(request))
        except ServingError as error:
            raise CallFailed(
                error.code,
                error.message,
                retryable=error.retryable,
                replica=error.replica,
                tries=error.tries,
            ) from error
        return _result(response)

    def _chat(self, request: CallRequest) -> ChatRequest:
        return ChatRequest(
            request_id=request.request_id,
            run=request.run_id,
            model=self._served_names.get(request.backend, request.model),
            messages=request.messages,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            thinking=request.thinking,
            answer=_answer(request.response),
            timeout_s=request.timeout_s,
        )


def _answer(wanted: ResponseFormat) -> AnswerFormat:
    return AnswerFormat(kind=wanted.kind, choices=wanted.choices, schema=wanted.schema)


def _result(response: ChatResponse) -> CallResult:
    return CallResult(
        text=response.text,
        reasoning=response.reasoning,
        prompt_tokens=response.usage.prompt_tokens,
        output_tokens=response.usage.output_tokens,
        finish_reason=response.finish_reason,
        replica=response.replica,
        started_at=response.started_at,
        finished_at=response.finished_at,
        queue_s=response.queue_s,
        ttft_s=response.ttft_s,
        tries=response.tries,
    )
