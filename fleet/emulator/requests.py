"""Request bodies of an emulated server: parsed, checked, and refused in vLLM's words (recorded from vLLM 0.32)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.emulator.config import ReplicaConfig
from fleet.emulator.outputs import Prompt
from fleet.serving.chat import AnswerFormat

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4
"""What a chat template adds around a message."""


class ApiError(Exception):
    """An answer other than 200, with vLLM's error body."""

    def __init__(self, status: int, message: str, type_: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.type, self.param = status, message, type_, param

    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.status}
        return {"error": error}


def queue_full() -> ApiError:
    """vLLM's answer beyond --max-num-queued-reqs: no Retry-After."""
    message = (
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance."
    )
    return ApiError(503, message, "Service Unavailable")


def engine_dead() -> ApiError:
    message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    return ApiError(500, message, "InternalServerError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A checked request: the prompt that decides the answer, its length in tokens, and how to reply."""

    prompt: Prompt
    prompt_tokens: int
    stream: bool = False
    include_usage: bool = False
    chat: bool = True


def parse_chat(body: bytes, replica: ReplicaConfig) -> Job:
    """A body of /v1/chat/completions. Raises ApiError."""
    data = _object(body)
    messages = _required(data, "messages", list)
    if not messages:
        raise ApiError(400, "messages must not be empty", param="messages")
    _check_model(data, replica)
    if data.get("tools"):
        message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        raise ApiError(400, message)
    text = "\n".join(_message_text(message, index) for index, message in enumerate(messages))
    prompt_tokens = count_tokens(text) + TOKENS_PER_MESSAGE * len(messages)
    thinking = _optional(data, "chat_template_kwargs", dict, {}).get("enable_thinking", True)
    return _job(data, replica, text, prompt_tokens, _answer_format(data), thinking=bool(thinking), chat=True)


def parse_completion(body: bytes, replica: ReplicaConfig) -> Job:
    """A body of /v1/completions. Raises ApiError."""
    data = _object(body)
    text = _required(data, "prompt", str)
    _check_model(data, replica)
    return _job(data, replica, text, count_tokens(text), AnswerFormat(), thinking=False, chat=False)


def count_tokens(text: str) -> int:
    return max(1, math.ceil(len(text) / CHARACTERS_PER_TOKEN))


def _job(
    data: Mapping[str, Any],
    replica: ReplicaConfig,
    text: str,
    prompt_tokens: int,
    answer: AnswerFormat,
    *,
    thinking: bool,
    chat: bool,
) -> Job:
    if _optional(data, "n", int, 1) != 1:
        raise ApiError(400, "the emulator answers n=1 only: send one request per sample", param="n")
    max_tokens = _max_tokens(data, replica, prompt_tokens, chat=chat)
    prompt = Prompt(
        model=replica.model,
        text=text,
        max_tokens=max_tokens,
        seed=_optional(data, "seed", int, None),
        thinking=thinking,
        answer=answer,
        ignore_eos=_optional(data, "ignore_eos", bool, False),
    )
    options = _optional(data, "stream_options", dict, {})
    return Job(
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        stream=_optional(data, "stream", bool, False),
        include_usage=bool(options.get("include_usage")),
        chat=chat,
    )


def _max_tokens(data: Mapping[str, Any], replica: ReplicaConfig, prompt_tokens: int, *, chat: bool) -> int:
    """The request's limit, or what the context leaves (16 for plain completions, as the protocol says)."""
    limit = replica.max_model_len
    asked: int | None = _optional(data, "max_completion_tokens", int, None)
    if asked is None:
        asked = _optional(data, "max_tokens", int, None if chat else 16)
    if asked is not None and asked < 1:
        raise ApiError(400, f"max_tokens must be at least 1, got {asked}.", param="max_tokens")
    if asked is not None and asked > limit:
        raise ApiError(
            400,
            f"max_tokens={asked} cannot be greater than max_model_len={limit}. "
            f"Please request fewer output tokens. (parameter=max_tokens, value={asked})",
            param="max_tokens",
        )
    if prompt_tokens + (asked or 1) > limit:
        raise ApiError(
            400,
            f"This model's maximum context length is {limit} tokens. However, you requested {asked or 1} output tokens "
            f"and your prompt contains {prompt_tokens} input tokens. Please reduce the length of the input prompt or "
            f"the number of requested output tokens. (parameter=input_tokens, value={prompt_tokens})",
            param="input_tokens",
        )
    return asked if asked is not None else limit - prompt_tokens


def _object(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        at = getattr(error, "pos", 0)
        reason = getattr(error, "msg", type(error).__name__)
        raise _validation("json_invalid", f"body.{at}", f"JSON decode error: {reason}") from error
    if not isinstance(data, dict):
        raise _validation("model_attributes_type", "body", "Input should be a valid dictionary")
    return data


def _validation(kind: str, place: str, message: str) -> ApiError:
    text = f"1 validation error:\n  {{'type': '{kind}', 'loc': '{place}', 'msg': '{message}'}}"
    return ApiError(400, text, "Bad Request", place)


def _required(data: Mapping[str, Any], name: str, kind: type) -> Any:
    if name not in data:
        raise _validation("missing", f"body.{name}", "Field required")
    return _optional(data, name, kind, None)


def _optional(data: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    """The field when present and not null. Raises ApiError when it has another type."""
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _validation(f"{kind.__name__}_type", f"body.{name}", f"Input should be a valid {kind.__name__}")
    return value


def _check_model(data: Mapping[str, Any], replica: ReplicaConfig) -> None:
    model = _optional(data, "model", str, replica.model)
    if model != replica.model:
        message = f"The model `{model}` does not exist. Valid aliases: {replica.model}."
        raise ApiError(404, message, "NotFoundError", "model")


def _message_text(message: Any, index: int) -> str:
    """Role and content; content may be text or a list of text parts."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise _validation("missing", f"body.messages.{index}.role", "Field required")
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(part for part in parts if isinstance(part, str))
    if content is not None and not isinstance(content, str):
        raise _validation("string_type", f"body.messages.{index}.content", "Input should be a valid string")
    return f"{message['role']}: {content or ''}"


def _answer_format(data: Mapping[str, Any]) -> AnswerFormat:
    """`structured_outputs` (choice, json, json_object) or OpenAI's `response_format`."""
    structured = _optional(data, "structured_outputs", dict, {})
    if structured.get("choice") is not None:
        return _choice_format(structured["choice"])
    if structured.get("json") is not None:
        return _json_format(structured["json"])
    if structured.get("json_object"):
        return AnswerFormat(kind="json")
    unknown = sorted(key for key, value in structured.items() if value is not None and key != "json_object")
    if unknown:
        raise ApiError(400, f"the emulator knows no structured_outputs {', '.join(unknown)}: use choice or json")
    response = _optional(data, "response_format", dict, {})
    kind = response.get("type", "text")
    if kind == "json_object":
        return AnswerFormat(kind="json")
    if kind == "json_schema":
        inner = response.get("json_schema")
        return _json_format(inner.get("schema") if isinstance(inner, dict) else None)
    if kind != "text":
        raise ApiError(400, f"unknown response_format type {kind!r}", param="response_format")
    return AnswerFormat()


def _choice_format(choices: Any) -> AnswerFormat:
    if not isinstance(choices, list) or not choices or not all(isinstance(item, str) for item in choices):
        raise ApiError(400, "structured_outputs.choice must be a list of strings", param="structured_outputs")
    return AnswerFormat(kind="choice", choices=tuple(choices))


def _json_format(schema: Any) -> AnswerFormat:
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise ApiError(400, f"the JSON schema is not JSON: {error}", param="structured_outputs") from error
    if not isinstance(schema, dict):
        raise ApiError(400, "the JSON schema must be an object", param="response_format")
    return AnswerFormat(kind="json", schema=schema)
