"""Step times: fitted or by what capacity means, and the GPU-seconds that a call takes of the hardware itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.serving.rates import REFERENCE_BATCH, ServiceRates
from tests.fleet.rows import rates
from tests.sampling import sampled

FITTED = replace(rates(), step_base_s=0.014, step_per_sequence_s=0.0002)


def test_gpu_seconds_are_prefill_and_a_share_of_a_full_step() -> None:
    step_s = 0.014 + 0.0002 * 64
    assert FITTED.gpu_s(1000, 500) == pytest.approx(0.01 + 0.0001 * 1000 + 500 * step_s / 64)
    assert FITTED.gpu_s(1000, 500, batch=1) > FITTED.gpu_s(1000, 500)


def test_an_emulator_does_not_make_a_gpu_cheaper() -> None:
    assert FITTED.scaled(20).gpu_s(1000, 500) == pytest.approx(FITTED.gpu_s(1000, 500))
    assert rates().scaled(20).gpu_s(1000, 500) == pytest.approx(rates().gpu_s(1000, 500))


@given(capacity=st.integers(1, 500), concurrency=st.integers(1, 500), decode=st.floats(1, 1000))
@sampled(60)
def test_without_a_fit_a_step_takes_twice_as_long_at_capacity(capacity: int, concurrency: int, decode: float) -> None:
    given_rates = replace(rates(decode), capacity=capacity, concurrency=concurrency)
    assert given_rates.step_s(concurrency) == pytest.approx(1 / decode)
    if capacity >= 2:
        assert given_rates.step_s(capacity) == pytest.approx(2 * given_rates.step_s(1))
    assert given_rates.step_s(REFERENCE_BATCH) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_base_s": 0.01}, "belong together"),
        ({"step_per_sequence_s": 0.01}, "belong together"),
        ({"step_base_s": -0.01, "step_per_sequence_s": 0.01}, "must be finite and not negative"),
        ({"step_base_s": 0.0, "step_per_sequence_s": 0.0}, "must take time"),
        ({"time_scale": 0.0}, "time_scale"),
    ],
)
def test_impossible_step_times_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(rates(), **change)  # type: ignore[arg-type]  # fields of ServiceRates


def test_a_fit_is_all_or_nothing() -> None:
    assert ServiceRates(**{name: getattr(FITTED, name) for name in FITTED.__slots__}) == FITTED
