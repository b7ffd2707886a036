"""The service model: grows with the batch, agrees with its own rates, and lands near published step times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.serving.rates import REFERENCE_BATCH
from fleet.serving.roofline import (
    H200,
    MAX_SLOWDOWN,
    MODEL_SPECS,
    QWEN35_4B,
    QWEN35_9B,
    QWEN35_27B,
    Hardware,
    ModelSpec,
    capacity,
    compute_s,
    hardware_named,
    kv_capacity_tokens,
    memory_s,
    model_named,
    nominal_rates,
    prefill_s,
    step_fit,
    step_s,
)
from tests.sampling import sampled

MODELS = st.sampled_from(sorted(MODEL_SPECS.values(), key=lambda item: item.name))


@given(model=MODELS, batch=st.integers(1, 512), context=st.integers(0, 10**6))
@sampled(60)
def test_time_per_token_grows_with_batch_and_context(model: ModelSpec, batch: int, context: int) -> None:
    step = step_s(H200, model, batch, context)
    assert step_s(H200, model, batch + 1, context) > step
    assert step_s(H200, model, batch, context + 1000) >= step


@given(model=MODELS, batch=st.integers(1, 2000), context=st.integers(0, 10**6))
@sampled(40)
def test_step_is_the_larger_roof_plus_overheads(model: ModelSpec, batch: int, context: int) -> None:
    roof = max(memory_s(H200, model, batch, context), compute_s(H200, model, batch))
    assert step_s(H200, model, batch, context) == pytest.approx(roof + 0.0004 + batch * 0.00004)


def test_weights_alone_bound_a_single_stream() -> None:
    # 27e9 parameters * 2 bytes / (4.8 TB/s * 0.8)
    assert step_s(H200, QWEN35_27B, 1, 0) == pytest.approx(0.0140625 + 0.00044, rel=0.01)


@pytest.mark.parametrize(
    ("model", "base_s", "per_sequence_s"), [(QWEN35_9B, 0.005, 0.00008), (QWEN35_27B, 0.014, 0.0002)]
)
def test_steps_lie_near_the_study_of_this_project(model: ModelSpec, base_s: float, per_sequence_s: float) -> None:
    one, many = step_s(H200, model, 1, 1500), step_s(H200, model, 64, 64 * 1500)
    assert one == pytest.approx(base_s, rel=0.15)
    assert (many - one) / 63 == pytest.approx(per_sequence_s, rel=0.5)


@given(model=MODELS, max_num_seqs=st.integers(1, 512), kv_tokens=st.integers(2000, 10**6))
@sampled(60)
def test_capacity_is_the_least_of_its_three_limits(model: ModelSpec, max_num_seqs: int, kv_tokens: int) -> None:
    found = capacity(H200, model, max_num_seqs, context_tokens=1500, kv_tokens=kv_tokens)
    single = step_s(H200, model, 1, 1500)
    assert 1 <= found <= max_num_seqs
    assert found == 1 or found * 1500 <= kv_tokens
    assert step_s(H200, model, found, found * 1500) <= MAX_SLOWDOWN * single
    one_more = found + 1
    assert (
        one_more > max_num_seqs
        or one_more * 1500 > kv_tokens
        or step_s(H200, model, one_more, one_more * 1500) > MAX_SLOWDOWN * single
    )


def test_nominal_rates_say_what_the_service_model_says() -> None:
    rates = nominal_rates(H200, QWEN35_9B, 16, 64)
    assert rates.source == "roofline"
    assert rates.concurrency == 16
    assert rates.decode_tokens_per_s == pytest.approx(1 / step_s(H200, QWEN35_9B, 16, 16 * 1500))
    assert rates.prefill_s(4000) == pytest.approx(prefill_s(H200, QWEN35_9B, 4000))


@given(model=MODELS, batch=st.integers(1, 512))
@sampled(60)
def test_the_fitted_step_is_the_step_while_memory_bounds_it(model: ModelSpec, batch: int) -> None:
    rates = nominal_rates(H200, model, 16, 128)
    assert rates.step_s(batch) == pytest.approx(step_s(H200, model, batch, batch * 1500))
    assert rates.scaled(20).step_s(batch) * 20 == pytest.approx(rates.step_s(batch))


def test_a_step_that_computing_bounds_is_fitted_at_the_reference_batch() -> None:
    slow = Hardware(name="slow", hbm_bytes_per_s=4.8e12, flops_per_s=1e13, memory_bytes=141e9)
    base_s, per_sequence_s = step_fit(slow, QWEN35_27B)
    assert base_s > 0
    for batch in (1, REFERENCE_BATCH):
        assert base_s + per_sequence_s * batch == pytest.approx(step_s(slow, QWEN35_27B, batch, batch * 1500))


def test_concurrency_beyond_the_replica_is_cut() -> None:
    assert nominal_rates(H200, QWEN35_4B, 500, 8).concurrency == 8


def test_larger_models_hold_less_cache() -> None:
    assert kv_capacity_tokens(H200, QWEN35_27B, 64) < kv_capacity_tokens(H200, QWEN35_9B, 64)


def test_a_model_that_does_not_fit_is_named() -> None:
    small = Hardware(name="small", hbm_bytes_per_s=1e12, flops_per_s=1e14, memory_bytes=24e9)
    with pytest.raises(ValueError, match=r"qwen3.5-27b does not fit on one small"):
        kv_capacity_tokens(small, QWEN35_27B, 1)


def test_impossible_figures_are_refused() -> None:
    with pytest.raises(ValueError, match="memory_efficiency"):
        Hardware(name="x", hbm_bytes_per_s=1, flops_per_s=1, memory_bytes=1, memory_efficiency=1.2)
    with pytest.raises(ValueError, match="attention_layers"):
        ModelSpec(name="x", parameters=1, layers=2, attention_layers=3, kv_heads=1, head_dim=1)
    with pytest.raises(ValueError, match="batch >= 1"):
        step_s(H200, QWEN35_4B, 0, 0)
    with pytest.raises(ValueError, match="max_num_seqs"):
        capacity(H200, QWEN35_4B, 0)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ValueError, match="H200"):
        hardware_named("H100")
    with pytest.raises(ValueError, match=r"qwen3.5-4b"):
        model_named("gpt")
