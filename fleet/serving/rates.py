"""Calibrated service rates of one model on one backend (paper 4.2).

`prefill = base_s + per_token_s * prompt_tokens` is ours; the paper asks for decode throughput and prefill latency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

RatesSource = Literal["illustrative", "roofline", "calibrated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRates:
    """Rates at a stated concurrency; all times in wall seconds, queueing excluded.

    `capacity` is the number of sequences one replica serves before time per token doubles (MATH.md, Load).
    `time_scale` is 1 for real servers; for an emulated backend every rate here already includes the factor.
    Raises ValueError on rates that are not positive.
    """

    decode_tokens_per_s: float
    prefill_base_s: float
    prefill_per_token_s: float
    concurrency: int
    capacity: int
    source: RatesSource
    version: int = 1
    time_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.decode_tokens_per_s <= 0:
            raise ValueError(f"decode_tokens_per_s must be positive, got {self.decode_tokens_per_s}")
        if self.prefill_base_s < 0 or self.prefill_per_token_s < 0:
            raise ValueError("prefill times must not be negative")
        if self.concurrency < 1 or self.capacity < 1:
            raise ValueError("concurrency and capacity must be at least 1")
        if self.time_scale <= 0:
            raise ValueError("time_scale must be positive")

    def prefill_s(self, prompt_tokens: float) -> float:
        return self.prefill_base_s + self.prefill_per_token_s * prompt_tokens

    def call_s(self, prompt_tokens: float, output_tokens: float) -> float:
        """Nominal seconds of one call, no queueing (Eq. 2's inner term)."""
        return self.prefill_s(prompt_tokens) + output_tokens / self.decode_tokens_per_s

    def scaled(self, factor: float) -> ServiceRates:
        """The same rates with every duration divided by `factor` (an emulator's time scale)."""
        return replace(
            self,
            decode_tokens_per_s=self.decode_tokens_per_s * factor,
            prefill_base_s=self.prefill_base_s / factor,
            prefill_per_token_s=self.prefill_per_token_s / factor,
            time_scale=self.time_scale * factor,
        )
