from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.common.presentation import compact, model_size, model_token, percent, quality, seconds, shortened, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.inf, "–"),
        (math.nan, "–"),
        (0.0, "0 s"),
        (0.0004, "0 s"),
        (0.34, "340 ms"),
        (0.9996, "1.0 s"),
        (12.34, "12.3 s"),
        (-2.0, "−2.0 s"),
        (99.96, "1 min 40 s"),
        (125, "2 min 05 s"),
        (11400, "3 h 10 min"),
    ],
)
def test_seconds_are_written_in_the_unit_that_fits(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (66, "66"), (301.4, "301"), (6.274, "6.27"), (12400, "12.4k"), (3_100_000, "3.1M"), (-54.2, "−54.2")],
)
def test_large_numbers_are_short(value: float, text: str) -> None:
    assert compact(value) == text


@given(st.floats(-1e12, 1e12))
def test_a_compact_number_is_never_long(value: float) -> None:
    assert len(compact(value).lstrip("−")) <= 6


def test_rates() -> None:
    assert quality(0.8951) == "0.895"
    assert quality(0.0001) == "< 0.001"
    assert quality(0) == "0.000"
    assert percent(0.234) == "23%"
    assert percent(0.001) == "< 1%"
    assert percent(0) == "0%"
    assert signed("1.0 s", -1) == "−1.0 s"


@pytest.mark.parametrize(
    ("model", "token", "size"),
    [("qwen3.5-27b", "27b", "27B"), ("qwen3.5-4b", "4b", "4B"), ("Llama-9B-instruct", "9b", "9B")],
)
def test_the_shipped_sizes_have_colours_of_their_own(model: str, token: str, size: str) -> None:
    assert model_token(model) == token
    assert model_size(model) == size


def test_other_models_keep_one_colour() -> None:
    assert model_token("mixtral") == model_token("mixtral")
    assert model_token("mixtral").startswith("other-")
    assert model_size("mixtral") == "mixtral"
    assert model_token("big-70b").startswith("other-")
    assert model_token(None) == model_token("") == "none"


@given(st.text(), st.integers(1, 30))
def test_a_shortened_text_fits_and_begins_like_the_text(text: str, columns: int) -> None:
    cut = shortened(text, columns)

    assert len(cut) <= columns or cut == text
    assert text.startswith(cut.removesuffix("…").rstrip())


def test_wide_characters_count_twice() -> None:
    assert shortened("日本語日本語", 8) == "日本語…"
