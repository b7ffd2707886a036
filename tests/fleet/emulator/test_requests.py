"""Bodies are checked as vLLM checks them, and refused in its words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.emulator.config import ReplicaConfig
from fleet.emulator.requests import ApiError, parse_chat, parse_completion, queue_full
from fleet.serving.chat import AnswerFormat, ChatRequest, chat_body
from fleet.serving.errors import BadRequest, ContextTooLong, Overloaded, ServingError, UnknownModel, from_response
from tests.fleet.serving import recorded

REPLICA = ReplicaConfig(name="a", model="qwen3.5-9b", max_model_len=2048)
MESSAGES = [{"role": "user", "content": "Hello there"}]


def _body(**changes: Any) -> bytes:
    return json.dumps({"model": "qwen3.5-9b", "messages": MESSAGES, "max_tokens": 8, **changes}).encode()


@pytest.mark.parametrize(
    "answer",
    [
        AnswerFormat(),
        AnswerFormat(kind="choice", choices=("accept", "reject")),
        AnswerFormat(kind="json"),
        AnswerFormat(kind="json", schema={"type": "object"}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_our_client_asks_arrives(answer: AnswerFormat, stream: bool) -> None:
    request = ChatRequest(
        request_id="r",
        model="qwen3.5-9b",
        messages=({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}),
        max_tokens=77,
        seed=4,
        thinking=stream,
        answer=answer,
    )
    job = parse_chat(json.dumps(chat_body(request, stream=stream)).encode(), REPLICA)
    assert job.prompt.answer == answer
    assert (job.prompt.max_tokens, job.prompt.seed, job.prompt.thinking) == (77, 4, stream)
    assert (job.stream, job.include_usage) == (stream, stream)
    assert job.prompt.text == "system: Be brief.\nuser: Hi"


def test_other_forms_that_servers_take() -> None:
    parts = parse_chat(_body(messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]), REPLICA)
    assert parts.prompt.text == "user: Hi"
    assert parts.prompt.thinking
    assert parse_chat(_body(structured_outputs={"json": '{"type": "string"}'}), REPLICA).prompt.answer.schema == {
        "type": "string"
    }
    assert parse_chat(_body(max_completion_tokens=5), REPLICA).prompt.max_tokens == 5
    free = parse_chat(_body(max_tokens=None), REPLICA)
    assert free.prompt.max_tokens == 2048 - free.prompt_tokens
    plain = parse_completion(b'{"model": "qwen3.5-9b", "prompt": "Once"}', REPLICA)
    assert (plain.prompt.max_tokens, plain.chat, plain.prompt.thinking) == (16, False, False)


@pytest.mark.parametrize(
    ("body", "kind", "param"),
    [
        (b"{", BadRequest, "body.1"),
        (b"\xff", BadRequest, "body.0"),
        (b"[]", BadRequest, "body"),
        (b"{}", BadRequest, "body.messages"),
        (_body(messages="x"), BadRequest, "body.messages"),
        (_body(messages=[]), BadRequest, "messages"),
        (_body(messages=[{"content": "x"}]), BadRequest, "body.messages.0.role"),
        (_body(messages=[{"role": "user", "content": 7}]), BadRequest, "body.messages.0.content"),
        (_body(model="nope"), UnknownModel, "model"),
        (_body(max_tokens=0), BadRequest, "max_tokens"),
        (_body(max_tokens="many"), BadRequest, "body.max_tokens"),
        (_body(max_tokens=5000), BadRequest, "max_tokens"),
        (_body(messages=[{"role": "user", "content": "x" * 9000}]), ContextTooLong, "input_tokens"),
        (_body(max_tokens=2048), ContextTooLong, "input_tokens"),
        (_body(n=3), BadRequest, "n"),
        (_body(tools=[{}]), BadRequest, None),
        (_body(seed=True), BadRequest, "body.seed"),
        (_body(structured_outputs={"choice": []}), BadRequest, "structured_outputs"),
        (_body(structured_outputs={"regex": "a"}), BadRequest, None),
        (_body(structured_outputs={"json": "{"}), BadRequest, "structured_outputs"),
        (_body(response_format={"type": "json_schema"}), BadRequest, "response_format"),
        (_body(response_format={"type": "xml"}), BadRequest, "response_format"),
    ],
)
def test_refusals_are_what_our_client_takes_them_for(body: bytes, kind: type[ServingError], param: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        parse_chat(body, REPLICA)
    error = caught.value.body()["error"]
    assert (error["param"], error["code"]) == (param, caught.value.status)
    assert type(from_response(caught.value.status, json.dumps(caught.value.body()))) is kind


@recorded.needs_recordings
@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("err_max_tokens", _body(max_tokens=5000)),
        ("err_tools", _body(tools=[{}])),
        ("err_unknown_model", _body(model="nope")),
    ],
)
def test_refusals_are_worded_like_the_recorded_ones(name: str, body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_chat(body, REPLICA)
    assert caught.value.status == recorded.status(name)
    assert caught.value.body() == json.loads(recorded.body(name).replace(b"tiny-4b", b"qwen3.5-9b"))


@recorded.needs_recordings
@pytest.mark.parametrize("name", ["err_bad_json", "err_missing_messages"])
def test_validation_errors_have_the_recorded_form(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_chat(b'{"model": "x"' if name == "err_bad_json" else b'{"model": "x"}', REPLICA)
    theirs, ours = json.loads(recorded.body(name))["error"], caught.value.body()["error"]
    assert (theirs["type"], theirs["code"]) == (ours["type"], ours["code"])
    assert theirs["message"].split("'")[3] == ours["message"].split("'")[3]


@recorded.needs_recordings
def test_the_full_queue_is_worded_like_the_recorded_one() -> None:
    text = (recorded.RESPONSES / "overload_max_num_queued_reqs.txt").read_text()
    assert queue_full().body() == json.loads(json.loads(text.split("\n", 1)[1])["503"][1])
    assert type(from_response(503, json.dumps(queue_full().body()))) is Overloaded
