from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fleet.serving.chat import AnswerFormat, ChatRequest, ChatResponse, Usage
from fleet.serving.errors import NoReplica, Overloaded, ServingError
from runtime.adapters.http import HttpDispatcher
from runtime.engine.ports import CallFailed, CallRequest, ResponseFormat

REQUEST = CallRequest(
    request_id="run_1.a.1.0.0",
    run_id="run_1",
    node="a",
    attempt=1,
    stage=0,
    role="generate",
    copy=0,
    model="qwen3.5-9b",
    backend="h200-9b",
    messages=({"role": "user", "content": "Do it."},),
    max_tokens=64,
    temperature=0.7,
    seed=11,
    thinking=True,
    response=ResponseFormat(kind="choice", choices=("accept", "reject")),
    timeout_s=30.0,
)


class FakePool:
    def __init__(self, error: ServingError | None = None) -> None:
        self.calls: list[tuple[str, ChatRequest]] = []
        self._error = error

    async def call(self, backend: str, request: ChatRequest) -> ChatResponse:
        self.calls.append((backend, request))
        if self._error is not None:
            raise self._error
        return ChatResponse(
            response_id="chat-1",
            model=request.model,
            text="accept",
            reasoning="because",
            usage=Usage(prompt_tokens=9, output_tokens=4),
            finish_reason="stop",
            started_at=10.0,
            finished_at=12.0,
            queue_s=0.5,
            ttft_s=0.75,
            replica="9b-0",
            tries=2,
        )


async def test_a_call_keeps_everything_it_says() -> None:
    pool = FakePool()
    dispatcher = HttpDispatcher(pool)
    dispatcher.learn({"h200-9b": "Qwen/Qwen3.5-9B"})
    result = await dispatcher.call(REQUEST)
    ((backend, sent),) = pool.calls
    assert backend == "h200-9b"
    assert sent == ChatRequest(
        request_id="run_1.a.1.0.0",
        run="run_1",
        model="Qwen/Qwen3.5-9B",
        messages=REQUEST.messages,
        max_tokens=64,
        temperature=0.7,
        seed=11,
        thinking=True,
        answer=AnswerFormat(kind="choice", choices=("accept", "reject")),
        timeout_s=30.0,
    )
    assert (result.text, result.reasoning, result.prompt_tokens, result.output_tokens) == ("accept", "because", 9, 4)
    assert (result.replica, result.tries, result.queue_s, result.ttft_s) == ("9b-0", 2, 0.5, 0.75)


@pytest.mark.parametrize("format_", [ResponseFormat(), ResponseFormat(kind="json", schema={"type": "object"})])
async def test_answer_formats_are_passed_on(format_: ResponseFormat) -> None:
    pool = FakePool()
    dispatcher = HttpDispatcher(pool)
    dispatcher.learn({})
    await dispatcher.call(replace(REQUEST, response=format_))
    ((_, sent),) = pool.calls
    assert (sent.answer.kind, sent.answer.schema) == (format_.kind, format_.schema)
    assert sent.model == "qwen3.5-9b", "a backend without another name serves the class's"


@pytest.mark.parametrize(("error", "retryable"), [(Overloaded("full"), True), (NoReplica("none"), True)])
async def test_errors_keep_code_verdict_and_place(error: ServingError, retryable: bool) -> None:
    error.replica, error.tries = "9b-1", 3
    dispatcher = HttpDispatcher(FakePool(error))
    dispatcher.learn({})
    with pytest.raises(CallFailed) as caught:
        await dispatcher.call(REQUEST)
    failed = caught.value
    assert (failed.code, failed.message) == (error.code, error.message)
    assert (failed.retryable, failed.replica, failed.tries) == (retryable, "9b-1", 3)


async def test_every_error_of_the_wire_becomes_a_failed_call() -> None:
    kinds: list[type[ServingError]] = [ServingError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    for kind in kinds:
        dispatcher = HttpDispatcher(FakePool(kind("it broke")))
        dispatcher.learn({})
        with pytest.raises(CallFailed) as caught:
            await dispatcher.call(REQUEST)
        assert (caught.value.code, caught.value.retryable) == (kind.code, kind.retry != "never")


async def test_calls_wait_until_the_fleet_was_read() -> None:
    pool = FakePool()
    dispatcher = HttpDispatcher(pool)
    call = asyncio.create_task(dispatcher.call(REQUEST))
    for _ in range(5):
        await asyncio.sleep(0)
    assert pool.calls == []
    dispatcher.learn({"h200-9b": "served"})
    await call
    assert pool.calls[0][1].model == "served"
