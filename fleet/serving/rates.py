"""Calibrated service rates of one model on one backend (paper 4.2).

`prefill = base_s + per_token_s * prompt_tokens` is ours; the paper asks for decode throughput and prefill latency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Literal

RatesSource = Literal["illustrative", "roofline", "calibrated"]

REFERENCE_BATCH = 64
"""Sequences per step at which a token's share of a GPU is priced (MATH.md, Priced bundles)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRates:
    """Rates at a stated concurrency; all times in wall seconds, queueing excluded.

    `capacity` is the number of sequences one replica serves before time per token doubles (MATH.md, Load).
    `time_scale` is 1 for real servers; for an emulated backend every rate here already includes the factor.
    `step_base_s + step_per_sequence_s * B` is the fitted time of one decode step of B sequences; None: not fitted.
    Raises ValueError on rates that are not positive and finite.
    """

    decode_tokens_per_s: float
    prefill_base_s: float
    prefill_per_token_s: float
    concurrency: int
    capacity: int
    source: RatesSource
    version: int = 1
    time_scale: float = 1.0
    step_base_s: float | None = None
    step_per_sequence_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.decode_tokens_per_s < inf:
            raise ValueError(f"decode_tokens_per_s must be positive and finite, got {self.decode_tokens_per_s}")
        if not (0 <= self.prefill_base_s < inf and 0 <= self.prefill_per_token_s < inf):
            raise ValueError("prefill times must be finite and not negative")
        if self.concurrency < 1 or self.capacity < 1:
            raise ValueError("concurrency and capacity must be at least 1")
        if not 0 < self.time_scale < inf:
            raise ValueError(f"time_scale must be positive and finite, got {self.time_scale}")
        if (self.step_base_s is None) != (self.step_per_sequence_s is None):
            raise ValueError("step_base_s and step_per_sequence_s belong together: give both or neither")
        if not all(0 <= seconds < inf for seconds in (self.step_base_s or 0.0, self.step_per_sequence_s or 0.0)):
            raise ValueError("step times must be finite and not negative")
        if self.step_base_s == self.step_per_sequence_s == 0:
            raise ValueError("a decode step must take time: step_base_s and step_per_sequence_s are both 0")

    def prefill_s(self, prompt_tokens: float) -> float:
        return self.prefill_base_s + self.prefill_per_token_s * prompt_tokens

    def call_s(self, prompt_tokens: float, output_tokens: float) -> float:
        """Nominal seconds of one call, no queueing (Eq. 2's inner term)."""
        return self.prefill_s(prompt_tokens) + output_tokens / self.decode_tokens_per_s

    def step_s(self, batch: float) -> float:
        """Seconds of one decode step of `batch` sequences.

        Without a fit, by what `capacity` means: time per token doubles there, and it is 1 / decode_tokens_per_s at
        `concurrency`.
        """
        if self.step_base_s is not None and self.step_per_sequence_s is not None:
            return self.step_base_s + self.step_per_sequence_s * batch
        base = max(0, self.capacity - 2)
        return (base + batch) / ((base + self.concurrency) * self.decode_tokens_per_s)

    def gpu_s(self, prompt_tokens: float, output_tokens: float, batch: int = REFERENCE_BATCH) -> float:
        """GPU-seconds of one call: its prefill, and its tokens' share of steps of `batch` sequences (ours).

        Of the hardware itself: an emulator's time scale does not make a GPU cheaper.
        """
        share = output_tokens * self.step_s(batch) / batch
        return self.time_scale * (self.prefill_s(prompt_tokens) + share)

    def scaled(self, factor: float) -> ServiceRates:
        """The same rates with every duration divided by `factor` (an emulator's time scale)."""
        return replace(
            self,
            decode_tokens_per_s=self.decode_tokens_per_s * factor,
            prefill_base_s=self.prefill_base_s / factor,
            prefill_per_token_s=self.prefill_per_token_s / factor,
            time_scale=self.time_scale * factor,
            step_base_s=None if self.step_base_s is None else self.step_base_s / factor,
            step_per_sequence_s=None if self.step_per_sequence_s is None else self.step_per_sequence_s / factor,
        )
