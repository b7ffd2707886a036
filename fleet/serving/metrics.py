"""Reads a replica's /metrics page by a line filter (ours): a full Prometheus parse costs a hundred times as much.

A signal that the page does not carry is None and listed in `missing`, never 0: a silent replica that looked
idle would draw every request. Labels are not interpreted: a value is summed over engines (and model names),
usage shares are averaged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Dialect = Literal["vllm", "sglang", "unknown"]
SIGNALS = ("running", "waiting", "kv_usage", "prompt_tokens", "generation_tokens")

# Metric name -> signal; a later name in the same signal is used only when no earlier one is on the page.
_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "running": ("vllm:num_requests_running", "sglang:num_running_reqs"),
        "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
        "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
        "prompt_tokens": ("vllm:prompt_tokens_total", "vllm:prompt_tokens", "sglang:prompt_tokens_total"),
        "generation_tokens": (
            "vllm:generation_tokens_total",
            "vllm:generation_tokens",
            "sglang:generation_tokens_total",
        ),
        "rejections": ("vllm:admission_rejections_total",),
        "preemptions": ("vllm:num_preemptions_total",),
    }
)
_WANTED = frozenset(name for names in _NAMES.values() for name in names)
_AVERAGED = frozenset({"kv_usage"})
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)")
_CACHE_INFO = "vllm:cache_config_info"
_CACHE_TOKENS = re.compile(r'kv_cache_size_tokens="(\d{1,15})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPage:
    """The signals of one page. Counters (`*_tokens`, `rejections`, `preemptions`) only grow until a restart."""

    dialect: Dialect = "unknown"
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    rejections: float | None = None
    preemptions: float | None = None
    kv_cache_tokens: int | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Signals that pressure wants and the page lacks."""
        return tuple(name for name in SIGNALS if getattr(self, name) is None)


def parse_metrics(text: str) -> MetricsPage:
    """The page's signals; unknown lines are skipped, a value that is no finite number counts as missing."""
    values: dict[str, list[float]] = {}
    cache_tokens: int | None = None
    for line in text.splitlines():
        if not line.startswith(("vllm:", "sglang:")):
            continue
        name = re.split(r"[{\s]", line, maxsplit=1)[0]
        if name in _WANTED:
            value = _value(line)
            if value is not None:
                values.setdefault(name, []).append(value)
        elif name == _CACHE_INFO:
            found = _CACHE_TOKENS.search(line)
            cache_tokens = (cache_tokens or 0) + int(found[1]) if found else cache_tokens
    signals = {signal: _signal(signal, values) for signal in _NAMES}
    return MetricsPage(dialect=_dialect(values), kv_cache_tokens=cache_tokens, **signals)


def _value(line: str) -> float | None:
    match = _LINE.match(line)
    if match is None:
        return None
    try:
        value = float(match[3])
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _signal(signal: str, values: Mapping[str, list[float]]) -> float | None:
    found = next((values[name] for name in _NAMES[signal] if name in values), None)
    if found is None:
        return None
    return sum(found) / len(found) if signal in _AVERAGED else sum(found)


def _dialect(values: Mapping[str, list[float]]) -> Dialect:
    if any(name.startswith("vllm:") for name in values):
        return "vllm"
    return "sglang" if values else "unknown"


def counter_rate(before: float | None, after: float | None, elapsed_s: float) -> float | None:
    """Units a second of a counter between two scrapes; None when unknown or when the server restarted between."""
    if before is None or after is None or elapsed_s <= 0 or after < before:
        return None
    return (after - before) / elapsed_s
