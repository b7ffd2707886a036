"""Requests as vLLM's JSON, replies and streams as values; broken streams never look complete."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.serving.chat import (
    Answer,
    AnswerFormat,
    ChatRequest,
    Delta,
    StreamReader,
    Timeouts,
    Usage,
    chat_body,
    complete,
    parse_answer,
    parse_models,
    parse_version,
)
from fleet.serving.errors import EngineDead, MalformedResponse, ServingError, StreamCut, StreamFailed
from tests.fleet.serving import recorded

MESSAGES = ({"role": "user", "content": "Judge."},)


def _request(**changes: Any) -> ChatRequest:
    return ChatRequest(**{"request_id": "r", "model": "m", "messages": MESSAGES, "max_tokens": 8, **changes})


def _answer_body(**changes: Any) -> bytes:
    message = {"role": "assistant", "content": "yes", "reasoning": "because"}
    body = {
        "id": "chatcmpl-r",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7},
        "metrics": {"queue_time_ms": 20, "time_to_first_token_ms": 50.0, "generation_time_ms": 100.0},
    }
    return json.dumps(body | changes).encode()


# --- Requests ---


def test_a_plain_request() -> None:
    assert chat_body(_request(temperature=0.7, seed=3)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Judge."}],
        "max_tokens": 8,
        "temperature": 0.7,
        "seed": 3,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_thinking_is_said_and_streams_ask_for_usage() -> None:
    body = chat_body(_request(thinking=True), stream=True)
    assert body["chat_template_kwargs"] == {"enable_thinking": True}
    assert body["stream_options"] == {"include_usage": True}
    assert "seed" not in body


def test_an_exact_length_is_asked_for_in_both_ways_servers_know() -> None:
    body = chat_body(_request(exact_tokens=True))
    assert (body["ignore_eos"], body["min_tokens"]) == (True, body["max_tokens"])
    assert "ignore_eos" not in chat_body(_request())


def test_a_priority_is_sent_and_a_run_is_not() -> None:
    body = chat_body(_request(priority=-3, run="one"))
    assert body["priority"] == -3
    assert "run" not in body
    assert "priority" not in chat_body(_request())


def test_structured_answers() -> None:
    choice = chat_body(_request(answer=AnswerFormat(kind="choice", choices=("accept", "reject"))))
    assert choice["structured_outputs"] == {"choice": ["accept", "reject"]}
    schema = chat_body(_request(answer=AnswerFormat(kind="json", schema={"type": "object"})))
    assert schema["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert chat_body(_request(answer=AnswerFormat(kind="json")))["response_format"] == {"type": "json_object"}


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="choices"):
        AnswerFormat(kind="choice")
    with pytest.raises(ValueError, match="choices"):
        AnswerFormat(choices=("a",))
    with pytest.raises(ValueError, match="messages"):
        _request(messages=())
    with pytest.raises(ValueError, match="positive"):
        Timeouts(idle_s=0)


# --- Plain replies ---


def test_a_reply_with_reasoning_and_metrics() -> None:
    response = complete(parse_answer(_answer_body()), started_at=1.0, finished_at=2.0)
    assert (response.text, response.reasoning, response.finish_reason) == ("yes", "because", "stop")
    assert response.usage == Usage(prompt_tokens=5, output_tokens=7)
    assert (response.queue_s, response.ttft_s, response.generation_s) == (0.02, 0.05, 0.1)


def test_without_server_metrics_the_caller_s_first_token_counts() -> None:
    answer = parse_answer(_answer_body(metrics=None))
    response = complete(answer, started_at=1.0, finished_at=2.0, first_token_s=0.3)
    assert (response.queue_s, response.ttft_s) == (None, 0.3)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", MalformedResponse),
        (b"[]", MalformedResponse),
        (b"[" * 100_000, MalformedResponse),
        (_answer_body(choices=[]), MalformedResponse),
        (_answer_body(usage=None), MalformedResponse),
        (_answer_body(choices=[{"message": {"content": "x"}, "finish_reason": "abort"}]), StreamCut),
        (_answer_body(error={"message": "EngineCore encountered an issue."}), EngineDead),
    ],
)
def test_a_reply_that_is_none(body: bytes, kind: type[ServingError]) -> None:
    with pytest.raises(kind):
        parse_answer(body)


ODD_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**30, 10**400, -1])
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["stop", "length"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["content", "a"]), inner, max_size=2),
    max_leaves=4,
)


def _assert_well_formed(answer: Answer) -> None:
    assert all(isinstance(text, str) for text in (answer.text, answer.reasoning, answer.response_id, answer.model))
    assert answer.finish_reason in ("stop", "length")
    for tokens in (answer.usage.prompt_tokens, answer.usage.output_tokens):
        assert type(tokens) is int
        assert 0 <= tokens < 2**31
    for seconds in (answer.timings.queue_s, answer.timings.ttft_s, answer.timings.generation_s):
        assert seconds is None or 0 <= seconds < 2**31


@given(
    odd=ODD_VALUES,
    at=st.sampled_from(
        ["content", "reasoning", "finish_reason", "prompt_tokens", "queue_time_ms", "usage", "metrics", "choices", "id"]
    ),
)
def test_whatever_a_replica_says_is_a_typed_error_or_an_answer_that_can_be_stored(odd: Any, at: str) -> None:
    texts: dict[str, Any] = {"content": "yes", "reasoning": ""}
    choice: dict[str, Any] = {"finish_reason": "stop"}
    usage: dict[str, Any] = {"prompt_tokens": 5, "completion_tokens": 7}
    metrics: dict[str, Any] = {"queue_time_ms": 20}
    inner = next((part for part in (texts, choice, usage, metrics) if at in part), {})
    inner |= {at: odd} if inner else {}
    outer = {"id": "c", "model": "m", "usage": usage, "metrics": metrics} | ({} if inner else {at: odd})
    plain = json.dumps({"choices": [choice | {"message": texts}]} | outer).encode()
    streamed = "data: " + json.dumps({"choices": [choice | {"delta": texts}]} | outer)
    with suppress(ServingError):
        _assert_well_formed(parse_answer(plain))
    with suppress(ServingError):
        _assert_well_formed(_read(StreamReader(), [streamed, "data: [DONE]"]))


def test_models_and_version() -> None:
    (model,) = parse_models(b'{"data": [{"id": "m", "max_model_len": 2048}]}')
    assert (model.name, model.max_model_len) == ("m", 2048)
    assert parse_version(b'{"version": "0.32.0"}') == "0.32.0"
    for bad in (b"{}", b'{"data": [1]}', b'{"data": [{"id": "m", "max_model_len": "long"}]}', b"x"):
        with pytest.raises(MalformedResponse):
            parse_models(bad)
        with pytest.raises(MalformedResponse):
            parse_version(bad)


# --- Streams ---


def _chunk(delta: dict[str, str], finish: str | None = None, **more: Any) -> str:
    return "data: " + json.dumps(
        {"id": "c", "model": "m", "choices": [{"delta": delta, "finish_reason": finish}]} | more
    )


USAGE = "data: " + json.dumps({"id": "c", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})


def test_a_stream_is_put_together_with_reasoning_apart() -> None:
    reader = StreamReader()
    lines = [
        _chunk({"role": "assistant", "content": ""}),
        "",
        ": comment",
        _chunk({"reasoning": "hm "}),
        _chunk({"reasoning_content": "so"}),
        _chunk({"content": "y"}),
        _chunk({"content": "es"}, "stop"),
        USAGE,
        "data: [DONE]",
    ]
    deltas = [reader.feed(line) for line in lines]
    assert [item for item in deltas if item] == [
        Delta(reasoning="hm "),
        Delta(reasoning="so"),
        Delta(text="y"),
        Delta(text="es"),
    ]
    answer = reader.finish()
    assert (answer.text, answer.reasoning, answer.usage.output_tokens) == ("yes", "hm so", 2)


def _read(reader: StreamReader, lines: list[str]) -> Answer:
    for line in lines:
        reader.feed(line)
    return reader.finish()


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([_chunk({"content": "y"}, "stop"), USAGE], StreamCut),
        ([_chunk({"content": "y"}), USAGE, "data: [DONE]"], StreamCut),
        ([_chunk({"content": "y"}, "abort"), USAGE, "data: [DONE]"], StreamCut),
        (["data: [DONE]"], StreamCut),
        ([], StreamCut),
        ([_chunk({"content": "y"}, "stop"), "data: [DONE]"], MalformedResponse),
        (['data: {"error": {"message": "boom"}}', "data: [DONE]"], StreamFailed),
        (["data: {"], MalformedResponse),
        (['data: {"choices": 7}'], MalformedResponse),
    ],
)
def test_a_broken_stream_has_no_answer(lines: list[str], kind: type[ServingError]) -> None:
    with pytest.raises(kind):
        _read(StreamReader(), lines)


# --- Recorded from vLLM 0.32 ---


@recorded.needs_recordings
@pytest.mark.parametrize(
    ("name", "finish", "prompt_tokens", "output_tokens"),
    [
        ("chat", "length", 31, 32),
        ("chat_choice", "stop", 22, 7),
        ("chat_json_schema", "length", 22, 60),
        ("chat_request_id", "length", 16, 8),
        ("chat_logprobs", "length", 14, 3),
        ("smollm2/verdict", "stop", 47, 5),
    ],
)
def test_recorded_replies(name: str, finish: str, prompt_tokens: int, output_tokens: int) -> None:
    answer = parse_answer(recorded.body(name))
    assert answer.finish_reason == finish
    assert answer.usage == Usage(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    assert (answer.timings.queue_s is not None) == name.startswith("smollm2")


@recorded.needs_recordings
@pytest.mark.parametrize(
    ("name", "output_tokens"),
    [("chat_stream_usage", 12), ("chat_stream_continuous_usage", 5), ("smollm2/stream", 8)],
)
def test_recorded_streams(name: str, output_tokens: int) -> None:
    answer = _read(StreamReader(), recorded.body(name).decode().split("\n"))
    assert answer.usage.output_tokens == output_tokens
    assert answer.text


@recorded.needs_recordings
@pytest.mark.parametrize("name", ["stream_engine_killed", "stream_sigterm"])
def test_recorded_streams_of_dying_engines_end_in_an_error_despite_done(name: str) -> None:
    lines = recorded.body(name).decode().split("\n")
    assert "data: [DONE]" in lines
    reader = StreamReader()
    with pytest.raises(EngineDead):
        _read(reader, lines)
    assert not reader.done
