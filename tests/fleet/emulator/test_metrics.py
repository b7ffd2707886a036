"""The emulated /metrics page: vLLM's names, and readable by our own parser."""

from __future__ import annotations

import re

from fleet.emulator.metrics import TTFT_BUCKETS, Counters, Gauges, Histogram, page
from fleet.serving.metrics import parse_metrics
from tests.fleet.serving import recorded

GAUGES = Gauges(running=3, waiting=2, kv_usage=0.25, kv_capacity=1000, prompt_tokens=70, generation_tokens=90)
SAMPLE = re.compile(r'^([a-z0-9_:]+)\{([a-z_]+="[^"]*",?)+\} [-+0-9.e]+$')


def _page() -> str:
    counters = Counters(rejected=4)
    counters.finished["stop"] = 2
    counters.ttft.observe(0.3)
    counters.e2e.observe(2.0)
    return page("qwen3.5-9b", GAUGES, counters)


def test_our_parser_reads_it() -> None:
    signals = parse_metrics(_page())
    assert (signals.dialect, signals.missing) == ("vllm", ())
    assert (signals.running, signals.waiting, signals.kv_usage, signals.rejections) == (3, 2, 0.25, 4)
    assert (signals.prompt_tokens, signals.generation_tokens, signals.kv_cache_tokens) == (70, 90, 1000)


def test_every_line_is_a_sample_or_a_comment() -> None:
    for line in _page().splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or SAMPLE.match(line), line


def test_a_histogram_is_cumulative() -> None:
    histogram = Histogram("h", "help", (0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    lines = list(histogram.lines('m="x"'))[2:]
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["2.0", "3.0", "4.0", "4.0", "7.65"]
    assert 'le="+Inf"' in lines[2]


@recorded.needs_recordings
def test_every_name_and_bucket_is_one_of_a_real_server() -> None:
    real = recorded.page("vllm_metrics_overload.txt")
    names = set(re.findall(r"^(vllm:\w+)\{", real, re.MULTILINE))
    assert set(re.findall(r"^(vllm:\w+)\{", _page(), re.MULTILINE)) <= names
    bounds = re.findall(r'^vllm:time_to_first_token_seconds_bucket\{.*le="([0-9.]+)"', real, re.MULTILINE)
    assert tuple(float(bound) for bound in bounds) == TTFT_BUCKETS
