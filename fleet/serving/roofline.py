"""The service model: how long a decode step and a prefill take on one accelerator (paper 4.2; the roofline is ours).

One model feeds the planner's estimates, the emulator and the replay. A decode step reads the weights once, plus every
sequence's KV cache and recurrent state, and multiplies every parameter once per sequence:

    memory_s  = (weights + context_tokens * kv_bytes_per_token + 2 * batch * state_bytes)
                / (bandwidth * memory_efficiency)
    compute_s = 2 * parameters * batch / (flops * compute_efficiency)
    step_s    = max(memory_s, compute_s) + step_overhead_s + batch * sequence_overhead_s
    prefill_s = weights / (bandwidth * memory_efficiency) + step_overhead_s
                + prompt_tokens * 2 * parameters / (flops * compute_efficiency)

A prefill adds the read of the weights to its compute where a strict roofline takes the larger one: so it stays linear
in the prompt, as `ServiceRates` states it. While a replica prefills, its decode runs at `1 - PREFILL_STALL` of its
speed (chunked prefill shares the step). The model knows no prefix cache, no speculative decoding and no tensor
parallelism: one replica is one accelerator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fleet.serving.rates import REFERENCE_BATCH, ServiceRates

CONTEXT_TOKENS = 1500
"""Tokens a sequence holds on average, prompt and output so far: the reference of `capacity` and `nominal_rates`."""

PREFILL_STALL = 0.8
MAX_SLOWDOWN = 2.0
"""Capacity is the largest concurrency at which time per token is at most this many single-stream times (MATH.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One accelerator: peak figures of its data sheet, and the fractions of them that serving reaches (stated, ours).

    Raises ValueError on figures that are not positive or efficiencies outside (0, 1].
    """

    name: str
    hbm_bytes_per_s: float
    flops_per_s: float
    memory_bytes: float
    memory_efficiency: float = 0.8
    compute_efficiency: float = 0.65
    memory_share: float = 0.9
    step_overhead_s: float = 0.0004
    sequence_overhead_s: float = 0.00004

    def __post_init__(self) -> None:
        if min(self.hbm_bytes_per_s, self.flops_per_s, self.memory_bytes) <= 0:
            raise ValueError(f"hardware {self.name}: bandwidth, flops and memory must be positive")
        for name in ("memory_efficiency", "compute_efficiency", "memory_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"hardware {self.name}: {name} must lie in (0, 1]")
        if self.step_overhead_s < 0 or self.sequence_overhead_s < 0:
            raise ValueError(f"hardware {self.name}: overheads must not be negative")

    @property
    def bytes_per_s(self) -> float:
        return self.hbm_bytes_per_s * self.memory_efficiency

    @property
    def effective_flops_per_s(self) -> float:
        return self.flops_per_s * self.compute_efficiency


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What the roofline needs to know of a model's architecture.

    `attention_layers` keep a KV cache; the others (linear attention) keep a recurrent state of fixed size, which a
    step reads and writes. Raises ValueError on figures that make no model.
    """

    name: str
    parameters: float
    layers: int
    attention_layers: int
    kv_heads: int
    head_dim: int
    state_bytes: float = 0.0
    bytes_per_parameter: float = 2.0
    bytes_per_kv_value: float = 2.0

    def __post_init__(self) -> None:
        if self.parameters <= 0 or self.bytes_per_parameter <= 0:
            raise ValueError(f"model {self.name}: parameters and bytes_per_parameter must be positive")
        if not 0 < self.attention_layers <= self.layers:
            raise ValueError(f"model {self.name}: attention_layers must lie in 1..layers")
        if self.kv_heads < 1 or self.head_dim < 1 or self.bytes_per_kv_value <= 0 or self.state_bytes < 0:
            raise ValueError(f"model {self.name}: kv_heads, head_dim and byte counts must be positive")

    @property
    def weight_bytes(self) -> float:
        return self.parameters * self.bytes_per_parameter

    @property
    def kv_bytes_per_token(self) -> float:
        """Key and value of one token in every layer that keeps a cache."""
        return 2 * self.attention_layers * self.kv_heads * self.head_dim * self.bytes_per_kv_value


def weights_s(hardware: Hardware, model: ModelSpec) -> float:
    """Seconds to read the weights once."""
    return model.weight_bytes / hardware.bytes_per_s


def memory_s(hardware: Hardware, model: ModelSpec, batch: int, context_tokens: float) -> float:
    """Seconds a decode step spends on memory; `context_tokens` is the batch's total."""
    moved = model.weight_bytes + context_tokens * model.kv_bytes_per_token + 2 * batch * model.state_bytes
    return moved / hardware.bytes_per_s


def compute_s(hardware: Hardware, model: ModelSpec, tokens: float) -> float:
    """Seconds to push `tokens` through every parameter."""
    return 2 * model.parameters * tokens / hardware.effective_flops_per_s


def step_s(hardware: Hardware, model: ModelSpec, batch: int, context_tokens: float) -> float:
    """Seconds of one decode step of `batch` sequences that hold `context_tokens` together; one token each.

    Grows strictly with the batch. Raises ValueError for an empty batch.
    """
    if batch < 1 or context_tokens < 0:
        raise ValueError(f"a step needs batch >= 1 and context_tokens >= 0, got {batch} and {context_tokens}")
    busy = max(memory_s(hardware, model, batch, context_tokens), compute_s(hardware, model, batch))
    return busy + hardware.step_overhead_s + batch * hardware.sequence_overhead_s


def prefill_s(hardware: Hardware, model: ModelSpec, prompt_tokens: float) -> float:
    """Seconds from admission to the first token of a prompt that has the replica's prefill for itself."""
    return weights_s(hardware, model) + hardware.step_overhead_s + compute_s(hardware, model, prompt_tokens)


def kv_capacity_tokens(hardware: Hardware, model: ModelSpec, max_num_seqs: int) -> int:
    """Tokens the KV cache holds beside the weights and `max_num_seqs` recurrent states.

    Raises ValueError when the model does not fit on the accelerator.
    """
    free = hardware.memory_bytes * hardware.memory_share - model.weight_bytes - max_num_seqs * model.state_bytes
    tokens = int(free / model.kv_bytes_per_token)
    if tokens < 1:
        raise ValueError(f"{model.name} does not fit on one {hardware.name}: choose a smaller model or max_num_seqs")
    return tokens


def _slowdown_limit(hardware: Hardware, model: ModelSpec, limit: int, context_tokens: float) -> int:
    """Largest batch up to `limit` whose time per token is at most MAX_SLOWDOWN single-stream times (bisection)."""
    allowed = MAX_SLOWDOWN * step_s(hardware, model, 1, context_tokens)
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        if step_s(hardware, model, middle, middle * context_tokens) <= allowed:
            low = middle
        else:
            high = middle - 1
    return low


def capacity(
    hardware: Hardware,
    model: ModelSpec,
    max_num_seqs: int,
    *,
    context_tokens: float = CONTEXT_TOKENS,
    kv_tokens: int | None = None,
) -> int:
    """Sequences one replica serves well (MATH.md, Load): the least of `max_num_seqs`, the sequences of
    `context_tokens` that its KV cache holds, and the largest concurrency at most MAX_SLOWDOWN slower per token.
    """
    if max_num_seqs < 1:
        raise ValueError(f"max_num_seqs must be at least 1, got {max_num_seqs}")
    held = kv_tokens if kv_tokens is not None else kv_capacity_tokens(hardware, model, max_num_seqs)
    by_cache = max(1, int(held / context_tokens))
    return _slowdown_limit(hardware, model, min(max_num_seqs, by_cache), context_tokens)


def nominal_rates(
    hardware: Hardware,
    model: ModelSpec,
    concurrency: int,
    max_num_seqs: int,
    *,
    context_tokens: float = CONTEXT_TOKENS,
    kv_tokens: int | None = None,
) -> ServiceRates:
    """The planner's rates of this model on this hardware at a stated concurrency (source "roofline").

    `concurrency` above what the replica can hold is cut to its `max_num_seqs`.
    """
    batch = max(1, min(concurrency, max_num_seqs))
    base_s, per_sequence_s = step_fit(hardware, model, context_tokens)
    return ServiceRates(
        decode_tokens_per_s=1 / step_s(hardware, model, batch, batch * context_tokens),
        prefill_base_s=prefill_s(hardware, model, 0),
        prefill_per_token_s=compute_s(hardware, model, 1),
        concurrency=batch,
        capacity=capacity(hardware, model, max_num_seqs, context_tokens=context_tokens, kv_tokens=kv_tokens),
        source="roofline",
        step_base_s=base_s,
        step_per_sequence_s=per_sequence_s,
    )


def step_fit(hardware: Hardware, model: ModelSpec, context_tokens: float = CONTEXT_TOKENS) -> tuple[float, float]:
    """(w, s) of the step time w + s * B, sequences of `context_tokens` each.

    Through one sequence and REFERENCE_BATCH: exact at both, and everywhere while memory is what a step waits for.
    """
    one = step_s(hardware, model, 1, context_tokens)
    many = step_s(hardware, model, REFERENCE_BATCH, REFERENCE_BATCH * context_tokens)
    per_sequence_s = (many - one) / (REFERENCE_BATCH - 1)
    return one - per_sequence_s, per_sequence_s


H200 = Hardware(name="H200", hbm_bytes_per_s=4.8e12, flops_per_s=989e12, memory_bytes=141e9)
"""Data sheet: 4.8 TB/s, 989 TFLOP/s dense bf16, 141 GB; efficiencies and overheads are stated guesses."""

_STATE_VALUE_BYTES = 4


def _linear_state(layers: int, heads: int) -> float:
    """Bytes of recurrent state: a 128 x 128 matrix of 32-bit values per head and linear-attention layer."""
    return float(layers * heads * 128 * 128 * _STATE_VALUE_BYTES)


# Illustrative architecture figures: a hybrid stack, one full-attention layer in four. Replace them by calibration.
QWEN35_4B = ModelSpec(
    name="qwen3.5-4b",
    parameters=4e9,
    layers=32,
    attention_layers=8,
    kv_heads=4,
    head_dim=256,
    state_bytes=_linear_state(24, 32),
)
QWEN35_9B = ModelSpec(
    name="qwen3.5-9b",
    parameters=9e9,
    layers=32,
    attention_layers=8,
    kv_heads=4,
    head_dim=256,
    state_bytes=_linear_state(24, 32),
)
QWEN35_27B = ModelSpec(
    name="qwen3.5-27b",
    parameters=27e9,
    layers=64,
    attention_layers=16,
    kv_heads=4,
    head_dim=256,
    state_bytes=_linear_state(48, 48),
)


HARDWARE: Mapping[str, Hardware] = MappingProxyType({item.name: item for item in (H200,)})
MODEL_SPECS: Mapping[str, ModelSpec] = MappingProxyType(
    {item.name: item for item in (QWEN35_4B, QWEN35_9B, QWEN35_27B)}
)


def hardware_named(name: str) -> Hardware:
    """By name in any case. Raises ValueError that names the known hardware."""
    by_name = {known.casefold(): hardware for known, hardware in HARDWARE.items()}
    if name.casefold() not in by_name:
        raise ValueError(f"unknown hardware {name!r}; known: {', '.join(sorted(HARDWARE))}")
    return by_name[name.casefold()]


def model_named(name: str) -> ModelSpec:
    """Raises ValueError that names the known model specifications."""
    if name not in MODEL_SPECS:
        raise ValueError(f"no roofline figures for model {name!r}; known: {', '.join(sorted(MODEL_SPECS))}")
    return MODEL_SPECS[name]
