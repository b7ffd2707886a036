"""The /metrics page of an emulated replica, with the names of vLLM 0.32 (recorded). Durations are wall seconds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
LATENCY_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


@dataclass(slots=True)
class Histogram:
    name: str
    help: str
    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, labels: str) -> Iterator[str]:
        yield from _head(self.name, self.help, "histogram")
        seen = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            yield f'{self.name}_bucket{{{labels},le="{bound}"}} {float(seen)}'
        yield f"{self.name}_count{{{labels}}} {float(seen)}"
        yield f"{self.name}_sum{{{labels}}} {self.total}"


def _ttft() -> Histogram:
    return Histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", TTFT_BUCKETS)


def _e2e() -> Histogram:
    return Histogram(
        "vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", LATENCY_BUCKETS
    )


def _queue() -> Histogram:
    return Histogram(
        "vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", LATENCY_BUCKETS
    )


@dataclass(slots=True)
class Counters:
    """What a replica counts over its life."""

    rejected: int = 0
    finished: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "abort": 0})
    ttft: Histogram = field(default_factory=_ttft)
    e2e: Histogram = field(default_factory=_e2e)
    queue: Histogram = field(default_factory=_queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """The replica's present state, and its token counters."""

    running: int
    waiting: int
    kv_usage: float
    kv_capacity: int
    prompt_tokens: int
    generation_tokens: int


def _head(name: str, help_: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help_}"
    yield f"# TYPE {name} {kind}"


def page(model: str, gauges: Gauges, counters: Counters) -> str:
    """The text of /metrics."""
    labels = f'engine="0",model_name="{model}"'
    lines: list[str] = []

    def single(name: str, help_: str, kind: str, values: Mapping[str, float]) -> None:
        lines.extend(_head(name, help_, kind))
        lines.extend(f"{name}{{{labels}{extra}}} {float(value)}" for extra, value in values.items())

    waiting_by_reason = {',reason="capacity"': gauges.waiting, ',reason="deferred"': 0}
    finished = {f',finished_reason="{reason}"': count for reason, count in counters.finished.items()}
    rejections = {',reason="max_num_queued_reqs"': counters.rejected, ',reason="max_num_queued_tokens"': 0}
    cache = {f',kv_cache_size_tokens="{gauges.kv_capacity}"': 1}
    running, waiting = {"": gauges.running}, {"": gauges.waiting}
    single("vllm:num_requests_running", "Number of requests in model execution batches.", "gauge", running)
    single("vllm:num_requests_waiting", "Number of requests waiting to be processed.", "gauge", waiting)
    single("vllm:num_requests_waiting_by_reason", "Number of waiting requests by reason.", "gauge", waiting_by_reason)
    single("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", "gauge", {"": gauges.kv_usage})
    single("vllm:prompt_tokens_total", "Number of prefill tokens processed.", "counter", {"": gauges.prompt_tokens})
    single(
        "vllm:generation_tokens_total",
        "Number of generation tokens processed.",
        "counter",
        {"": gauges.generation_tokens},
    )
    single("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", "counter", {"": 0})
    single("vllm:request_success_total", "Count of successfully processed requests.", "counter", finished)
    single("vllm:admission_rejections_total", "Number of rejected admission attempts.", "counter", rejections)
    single("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge", cache)
    for histogram in (counters.ttft, counters.e2e, counters.queue):
        lines.extend(histogram.lines(labels))
    return "\n".join(lines) + "\n"
