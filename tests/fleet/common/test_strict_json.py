import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.common.problems import ApiProblem
from fleet.common.strict_json import MAX_DEPTH, MAX_INTEGER, parse_body

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_every_storable_value_is_read_as_it_is(value: Any) -> None:
    assert parse_body(json.dumps(value).encode()) == value


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_a_problem(body: bytes) -> None:
    problem = None
    try:
        parse_body(body)
    except ApiProblem as raised:
        problem = raised
    assert problem is None or (problem.status == 400 and problem.errors)


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (b'{"a": [1, "\\u0000"]}', "bad_text", "/a/1"),
        (b'{"a/b": "\\ud800"}', "bad_text", "/a~1b"),
        (b'{"\\udfff": 1}', "bad_text", ""),
        (b"NaN", "bad_number", ""),
        (b"-Infinity", "bad_number", ""),
        (b"1" * 5000, "bad_number", ""),
        (str(2**63).encode(), "bad_number", ""),
        (b'{"a": \xff}', "not_utf8", ""),
        (b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2), "too_deep", "/0/0/0"),
        (b"[" * 100_000, "too_deep", ""),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_place(body: bytes, code: str, pointer: str) -> None:
    with pytest.raises(ApiProblem) as caught:
        parse_body(body)
    error = caught.value.errors[0]
    assert (caught.value.status, error.code, error.pointer) == (400, code, pointer)


def test_bad_syntax_names_line_and_column() -> None:
    with pytest.raises(ApiProblem) as caught:
        parse_body(b'{\n  "a": 1,\n  b\n}')
    error = caught.value.errors[0]
    assert (error.code, error.line, error.column) == ("bad_json", 3, 3)
