from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.database import clean_text, database_now, epoch_seconds, json_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=True) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_the_database_clock_is_epoch_seconds_with_a_fraction(database: str) -> None:
    moments = [database_now() for _ in range(200)]
    assert moments == sorted(moments)
    assert moments[0] == pytest.approx(time.time(), abs=30)
    assert any(moment != int(moment) for moment in moments)


@given(JSON)
def test_any_value_becomes_text_that_both_databases_take(value: Any) -> None:
    text = json_text(value)
    text.encode()
    assert "\x00" not in text
    assert "\\u0000" not in text.replace("\\\\", "")
    assert json_text(json.loads(text)) == text


@given(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])))
def test_clean_text_stays_as_it_is(text: str) -> None:
    assert clean_text(text) == text
    assert json.loads(json_text(text)) == text


def test_a_written_escape_is_no_character() -> None:
    assert json.loads(json_text("\\u0000")) == "\\u0000"


@pytest.mark.parametrize(
    "value",
    ["2026-11-29 12:00:00.250000", datetime(2026, 11, 29, 12, 0, 0, 250000, tzinfo=UTC)],
    ids=["sqlite", "postgresql"],
)
def test_dates_of_raw_cursors_are_read(value: Any) -> None:
    assert epoch_seconds(value) == 1795953600.25


def test_no_date_is_refused() -> None:
    with pytest.raises(ValueError, match="no date"):
        epoch_seconds("soon")
