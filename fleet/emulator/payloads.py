"""The JSON of an emulated server's replies, in the form that vLLM 0.32 sends it (recorded)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fleet.emulator.engine import Timings
from fleet.emulator.outputs import Output
from fleet.emulator.requests import Job

FINGERPRINT = "vllm-0.32.0-emulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What all payloads of one request share. `created` is epoch seconds; `scale` divides virtual seconds."""

    id: str
    created: int
    job: Job
    output: Output
    scale: float
    with_metrics: bool

    # --- Plain ---

    def body(self, timings: Timings) -> dict[str, Any]:
        """The whole answer of a request that was not streamed."""
        reasoning, content = self.output.between(0, self.output.tokens)
        end: dict[str, Any] = {"logprobs": None, "finish_reason": self.output.finish_reason, "stop_reason": None}
        if self.job.chat:
            message = {"role": "assistant", "content": content, "refusal": None, "reasoning": reasoning or None}
            choice = {"index": 0, "message": message, **end}
        else:
            choice = {"index": 0, "text": content, **end}
        return {
            "id": self.id,
            "object": "chat.completion" if self.job.chat else "text_completion",
            "created": self.created,
            "model": self.job.prompt.model,
            "choices": [choice],
            "system_fingerprint": FINGERPRINT,
            "usage": self.usage(),
            "metrics": self.metrics(timings),
        }

    # --- Streamed ---

    def first_chunk(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""}, None)

    def delta_chunk(self, start: int, end: int, *, last: bool) -> bytes:
        """Tokens start..end-1; the last chunk carries the finish reason."""
        reasoning, content = self.output.between(start, end)
        delta = {name: text for name, text in (("reasoning", reasoning), ("content", content)) if text}
        return self._chunk(delta, self.output.finish_reason if last else None)

    def usage_chunk(self, timings: Timings) -> bytes:
        """The chunk after the last: no choices, but the usage."""
        return sse(self._head() | {"choices": [], "usage": self.usage(), "metrics": self.metrics(timings)})

    def _chunk(self, delta: dict[str, str], finish_reason: str | None) -> bytes:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish_reason}
        choice |= {"delta": delta} if self.job.chat else {"text": delta.get("content", "")}
        return sse(self._head() | {"choices": [choice]})

    def _head(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk" if self.job.chat else "text_completion",
            "created": self.created,
            "model": self.job.prompt.model,
        }

    # --- Both ---

    def usage(self) -> dict[str, int]:
        prompt, output = self.job.prompt_tokens, self.output.tokens
        return {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output}

    def metrics(self, timings: Timings) -> dict[str, Any] | None:
        """vLLM's per-request metrics, in wall milliseconds; None unless the configuration asks for them."""
        if not self.with_metrics:
            return None
        generation_s = (timings.finished_at - timings.first_token_at) / self.scale
        steps = max(1, self.output.tokens - 1)
        whole_s = (timings.finished_at - timings.admitted_at) / self.scale
        return {
            "time_to_first_token_ms": 1000 * (timings.first_token_at - timings.arrived_at) / self.scale,
            "generation_time_ms": 1000 * generation_s,
            "queue_time_ms": 1000 * (timings.admitted_at - timings.arrived_at) / self.scale,
            "mean_itl_ms": 1000 * generation_s / steps,
            "tokens_per_second": self.output.tokens / whole_s if whole_s > 0 else None,
            "speculative_decoding": None,
        }


def sse(data: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def models_body(model: str, max_model_len: int, created: int) -> dict[str, Any]:
    entry = {
        "id": model,
        "object": "model",
        "created": created,
        "owned_by": "dyserve-emulator",
        "root": model,
        "parent": None,
        "max_model_len": max_model_len,
    }
    return {"object": "list", "data": [entry]}
