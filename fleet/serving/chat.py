"""One chat completion as values: what is asked, what came back, and its pure translation to and from vLLM's JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fleet.serving.errors import MalformedResponse, StreamCut, from_stream_event

ENDED = frozenset({"stop", "length", "tool_calls", "repetition"})
"""Finish reasons that end an answer; `abort` and `error` mean that the server gave up."""
_MAX_NUMBER = 2**31 - 1
"""No server counts tokens or milliseconds further, and no database column holds more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFormat:
    """`choice`: exactly one of `choices`; `json`: valid against `schema` (None: any JSON object); `text`: free.

    Raises ValueError for a choice without choices.
    """

    kind: Literal["text", "choice", "json"] = "text"
    choices: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.kind == "choice") != bool(self.choices):
            raise ValueError("choices belong to kind 'choice', which needs at least one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Wall seconds. `first_token_s` and `idle_s` apply to streams; queueing counts towards `first_token_s`."""

    connect_s: float = 5.0
    first_token_s: float = 600.0
    idle_s: float = 60.0

    def __post_init__(self) -> None:
        if min(self.connect_s, self.first_token_s, self.idle_s) <= 0:
            raise ValueError("timeouts must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One chat completion. `request_id` travels as X-Request-Id; `timeout_s` bounds the whole call, retries and all.

    `run`: calls of one run share a prefix (not sent; the pool's affinity). `priority`: for servers that schedule by it,
    the lowest first. `exact_tokens`: the answer goes on up to `max_tokens`, whatever it says (for measurements).
    """

    request_id: str
    model: str
    messages: tuple[Mapping[str, str], ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    thinking: bool = False
    answer: AnswerFormat = AnswerFormat()
    exact_tokens: bool = False
    run: str = ""
    priority: int | None = None
    timeout_s: float = 600.0
    timeouts: Timeouts = Timeouts()

    def __post_init__(self) -> None:
        if not self.messages or self.max_tokens < 1 or self.timeout_s <= 0:
            raise ValueError("a chat request needs messages, max_tokens >= 1 and a positive timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one answer; `output_tokens` includes reasoning."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTimings:
    """The server's own clock for this request, when it was started with per-request metrics; seconds."""

    queue_s: float | None = None
    ttft_s: float | None = None
    generation_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResponse:
    """An answer. `started_at` and `finished_at`: epoch seconds of the caller's clock; `tries`: HTTP requests."""

    response_id: str
    model: str
    text: str
    reasoning: str
    usage: Usage
    finish_reason: str
    started_at: float
    finished_at: float
    queue_s: float | None = None
    ttft_s: float | None = None
    generation_s: float | None = None
    replica: str = ""
    tries: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of a streamed answer; reasoning is kept apart from the text."""

    text: str = ""
    reasoning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a body or a finished stream says, before the caller's times are added."""

    response_id: str
    model: str
    text: str
    reasoning: str
    usage: Usage
    finish_reason: str
    timings: ServerTimings


# --- Request -> body -------------------------------------------------------------------------------------------------


def chat_body(request: ChatRequest, *, stream: bool = False) -> dict[str, Any]:
    """vLLM's JSON body. Thinking is always said, on or off: servers differ in what they do when it is not."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [dict(message) for message in request.messages],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "chat_template_kwargs": {"enable_thinking": request.thinking},
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.answer.kind == "choice":
        body["structured_outputs"] = {"choice": list(request.answer.choices)}
    elif request.answer.kind == "json":
        body["response_format"] = _json_format(request.answer.schema)
    if request.priority is not None:
        body["priority"] = request.priority
    if request.exact_tokens:
        body["ignore_eos"] = True
        body["min_tokens"] = request.max_tokens
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return body


def _json_format(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": dict(schema)}}


# --- Body -> answer --------------------------------------------------------------------------------------------------


def parse_answer(body: bytes) -> Answer:
    """The answer in a plain reply. Raises MalformedResponse, or the error that a 200 body carries."""
    data = _object(body)
    if "error" in data:
        raise from_stream_event(data["error"])
    try:
        choice = data["choices"][0]
        message, finish = choice["message"], choice["finish_reason"]
        answer = Answer(
            response_id=str(data["id"]),
            model=str(data["model"]),
            text=_text(message.get("content")),
            reasoning=_reasoning(message),
            usage=_usage(data["usage"]),
            finish_reason=_text(finish),
            timings=_timings(data.get("metrics")),
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise MalformedResponse(f"no chat completion: {type(error).__name__} {error}") from error
    if answer.finish_reason not in ENDED:
        raise StreamCut(f"the server ended the answer with finish_reason {finish!r}")
    return answer


def _object(body: bytes | str) -> dict[str, Any]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedResponse(f"the reply is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise MalformedResponse(f"the reply is a JSON {type(data).__name__}, not an object")
    return data


def _text(value: Any) -> str:
    """A text; null is an empty one. Raises TypeError."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"expected a text, got {type(value).__name__}")
    return value or ""


def _reasoning(message: Mapping[str, Any]) -> str:
    """Older servers say `reasoning_content`."""
    return _text(message.get("reasoning")) or _text(message.get("reasoning_content"))


def _usage(data: Mapping[str, Any]) -> Usage:
    return Usage(prompt_tokens=_tokens(data["prompt_tokens"]), output_tokens=_tokens(data["completion_tokens"]))


def _tokens(value: Any) -> int:
    """A count of tokens. Raises ValueError for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_NUMBER:
        raise ValueError("a token count must be a whole number of a plausible size")
    return value


def _timings(data: Any) -> ServerTimings:
    """Per-request metrics; an absent one stays None."""
    if not isinstance(data, dict):
        return ServerTimings()
    return ServerTimings(
        queue_s=_seconds(data.get("queue_time_ms")),
        ttft_s=_seconds(data.get("time_to_first_token_ms")),
        generation_s=_seconds(data.get("generation_time_ms")),
    )


def _seconds(milliseconds: Any) -> float | None:
    """None for what is no time: a timing is a by-product, so a bad one spoils no answer."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return None
    return milliseconds / 1000 if 0 <= milliseconds <= _MAX_NUMBER else None


# --- Stream -> answer ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StreamReader:
    """Reads server-sent events line by line; `finish()` gives the answer once the stream has closed.

    An error event raises at once, whatever follows it: a server whose engine dies still sends [DONE] and closes
    cleanly. A stream without a finish reason, or closed before [DONE], is cut, not complete.
    """

    _id: str = ""
    _model: str = ""
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _finish: str | None = None
    _usage: Usage | None = None
    _metrics: Any = None
    _done: bool = False

    @property
    def done(self) -> bool:
        return self._done

    def feed(self, line: str) -> Delta | None:
        """The delta of one line, None when it carries no text. Raises StreamFailed, EngineDead, MalformedResponse."""
        if not line.startswith("data:"):
            return None
        payload = line[5:].strip()
        if payload == "[DONE]":
            self._done = True
            return None
        data = _object(payload)
        if "error" in data:
            raise from_stream_event(data["error"])
        try:
            return self._chunk(data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MalformedResponse(f"no chat completion chunk: {type(error).__name__} {error}") from error

    def _chunk(self, data: Mapping[str, Any]) -> Delta | None:
        self._id, self._model = str(data.get("id") or self._id), str(data.get("model") or self._model)
        if data.get("usage") is not None:
            self._usage = _usage(data["usage"])
        self._metrics = data.get("metrics") or self._metrics
        delta: Delta | None = None
        for choice in data["choices"]:
            piece = choice.get("delta") or {}
            text, reasoning = _text(piece.get("content")), _reasoning(piece)
            self._text.append(text)
            self._reasoning.append(reasoning)
            self._finish = _text(choice.get("finish_reason")) or self._finish
            if text or reasoning:
                delta = Delta(text=text, reasoning=reasoning)
        return delta

    def finish(self) -> Answer:
        """The whole answer. Raises StreamCut, or MalformedResponse when the usage was never sent."""
        if not self._done:
            raise StreamCut("the stream closed before [DONE]")
        if self._finish not in ENDED:
            raise StreamCut(f"[DONE] came without an ended answer (finish_reason {self._finish!r})")
        if self._usage is None:
            raise MalformedResponse("the stream carried no usage although it was asked for")
        return Answer(
            response_id=self._id,
            model=self._model,
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            usage=self._usage,
            finish_reason=self._finish,
            timings=_timings(self._metrics),
        )


# --- Other replies ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One entry of /v1/models; `max_model_len` None when the server does not say."""

    name: str
    max_model_len: int | None = None


def parse_models(body: bytes) -> tuple[ServedModel, ...]:
    """Raises MalformedResponse."""
    data = _object(body)
    try:
        return tuple(
            ServedModel(name=_text(item["id"]), max_model_len=_length(item.get("max_model_len")))
            for item in data["data"]
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise MalformedResponse(f"no list of models: {type(error).__name__} {error}") from error


def _length(value: Any) -> int | None:
    return None if value is None else _tokens(value)


def parse_version(body: bytes) -> str:
    """Raises MalformedResponse."""
    version = _object(body).get("version")
    if not isinstance(version, str):
        raise MalformedResponse("no version in the reply")
    return version


def complete(
    answer: Answer, *, started_at: float, finished_at: float, first_token_s: float | None = None
) -> ChatResponse:
    """The answer with the caller's times. The server's own time to first token wins over `first_token_s`."""
    timings = answer.timings
    return ChatResponse(
        response_id=answer.response_id,
        model=answer.model,
        text=answer.text,
        reasoning=answer.reasoning,
        usage=answer.usage,
        finish_reason=answer.finish_reason,
        started_at=started_at,
        finished_at=finished_at,
        queue_s=timings.queue_s,
        ttft_s=timings.ttft_s if timings.ttft_s is not None else first_token_s,
        generation_s=timings.generation_s,
    )
