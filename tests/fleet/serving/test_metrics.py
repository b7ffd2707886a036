"""Reading /metrics: old and new names, several engines, and silence that is never read as idleness."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.serving.metrics import SIGNALS, MetricsPage, counter_rate, parse_metrics
from tests.fleet.serving import recorded

NEW = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 8.0
vllm:num_requests_waiting{engine="0",model_name="m"} 16.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 16.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:prompt_tokens_total{engine="0",model_name="m"} 6096.0
vllm:prompt_tokens_created{engine="0",model_name="m"} 1.79e+09
vllm:generation_tokens_total{engine="0",model_name="m"} 2809.0
vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 16.0
vllm:admission_rejections_total{model_name="m",reason="max_num_queued_tokens"} 1.0
vllm:cache_config_info{engine="0",kv_cache_size_tokens="2097152"} 1.0
"""


def test_the_present_names() -> None:
    assert parse_metrics(NEW) == MetricsPage(
        dialect="vllm",
        running=8,
        waiting=16,
        kv_usage=0.25,
        prompt_tokens=6096,
        generation_tokens=2809,
        rejections=17,
        kv_cache_tokens=2097152,
    )
    assert parse_metrics(NEW).missing == ()


def test_older_names() -> None:
    page = parse_metrics(NEW.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"))
    assert page.kv_usage == 0.25


def test_sglang() -> None:
    page = parse_metrics('sglang:num_running_reqs{model_name="m"} 3\nsglang:num_queue_reqs 2\nsglang:token_usage 0.5\n')
    assert (page.dialect, page.running, page.waiting, page.kv_usage) == ("sglang", 3, 2, 0.5)
    assert page.missing == ("prompt_tokens", "generation_tokens")


def test_engines_are_summed_and_usage_is_averaged() -> None:
    page = parse_metrics(NEW + NEW.replace('engine="0"', 'engine="1"').replace(" 0.25", " 0.75"))
    assert (page.running, page.waiting, page.kv_usage) == (16, 32, 0.5)
    assert page.kv_cache_tokens == 2 * 2097152


@pytest.mark.parametrize("text", ["", "<html>not metrics</html>", "# only comments\n", "vllm:other 1\n"])
def test_silence_is_missing_not_zero(text: str) -> None:
    page = parse_metrics(text)
    assert page.missing == SIGNALS
    assert page.dialect == "unknown"


@pytest.mark.parametrize("value", ["NaN", "+Inf", "abc"])
def test_a_value_that_is_no_number_is_missing(value: str) -> None:
    assert "running" in parse_metrics(NEW.replace('running{engine="0",model_name="m"} 8.0', f"running {value}")).missing


def test_labels_may_hold_braces_and_blanks() -> None:
    assert parse_metrics('vllm:num_requests_running{model_name="a {b} c"} 4.0 1700000000\n').running == 4


def test_a_number_of_absurd_length_is_missing() -> None:
    assert parse_metrics(f'vllm:cache_config_info{{kv_cache_size_tokens="{"9" * 5000}"}} 1.0').kv_cache_tokens is None


@given(st.text(max_size=200))
def test_any_text_is_read_without_raising(text: str) -> None:
    parse_metrics("vllm:num_requests_running" + text)


def test_rates_of_counters() -> None:
    assert counter_rate(100, 150, 2) == 25
    assert counter_rate(None, 150, 2) is None
    assert counter_rate(150, 100, 2) is None
    assert counter_rate(100, 150, 0) is None


@recorded.needs_recordings
@pytest.mark.parametrize(
    ("name", "running", "waiting", "generated", "rejected"),
    [
        ("vllm_metrics.txt", 0, 0, 6545, 0),
        ("vllm_metrics_under_load.txt", 8, 16, 2809, 0),
        ("vllm_metrics_overload.txt", 0, 0, 800, 16),
        ("vllm_metrics_smollm2.txt", 0, 0, 1404, 0),
    ],
)
def test_recorded_pages(name: str, running: float, waiting: float, generated: float, rejected: float) -> None:
    page = parse_metrics(recorded.page(name))
    assert (page.running, page.waiting, page.generation_tokens, page.rejections) == (
        running,
        waiting,
        generated,
        rejected,
    )
    assert page.missing == ()
