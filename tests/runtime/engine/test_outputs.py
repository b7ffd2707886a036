from __future__ import annotations

import json
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from planner.compiler.workflow import OutputSpec
from runtime.engine.outputs import canonical, clean_text, parse_json, parse_output

ANY = OutputSpec(format="json")
LIST = OutputSpec(format="json", schema=MappingProxyType({"type": "array", "items": {"type": "integer"}}))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text('aé\n"\\'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_json_comes_back_as_it_was(value: object) -> None:
    assert parse_json(json.dumps(value)) == value
    assert parse_json(f"Here it is:\n```json\n{json.dumps(value)}\n```\nDone.") == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not valid JSON"),
        ("Sure! {}", "not valid JSON"),
        ('{"a": 1', "not valid JSON"),
        ("NaN", "NaN is not JSON"),
        ("[Infinity]", "Infinity is not JSON"),
        ("1e999", "too large"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 66 + "]" * 66, "nested too deeply"),
        ('{"a":' * 65 + "[0]" + "}" * 65, "nested too deeply"),
        ('"\\u0000"', "NUL"),
        (r'"\\\u0000"', "NUL"),
        ('{"\\ud800": 1}', "surrogate"),
        ("```json\n1\n```\n```json\n2\n```", "not valid JSON"),
    ],
)
def test_what_no_database_keeps_is_no_json(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_json(text)


def test_what_only_looks_unstorable_is_kept() -> None:
    assert parse_json(r'"s.strip(\"\\u0000\")"') == r's.strip("\u0000")'
    assert parse_json("[" * 64 + "1" + "]" * 64)


def test_a_fence_inside_a_json_text_is_content() -> None:
    assert parse_json('{"code": "```py\\n1\\n```"}') == {"code": "```py\n1\n```"}
    assert parse_json('"\\u00e9"') == "é"


def test_outputs_are_parsed_and_validated() -> None:
    assert parse_output("as it is", OutputSpec()).value == "as it is"
    assert parse_output("[1, 2]", LIST).value == [1, 2]
    assert parse_output("[1, 2]", LIST).problem is None
    assert parse_output('["x"]', LIST).problem == "$[0] does not match the schema: 'x' is not of type 'integer'"
    assert (parse_output("oops", ANY).problem or "").startswith("not valid JSON: Expecting value")


@given(st.lists(json_values, max_size=5))
def test_items_are_unique_as_the_library_finds_them(items: list[object]) -> None:
    text, schema = json.dumps(items), {"type": "array", "uniqueItems": True}
    is_unique = Draft202012Validator(schema).is_valid(json.loads(text))
    assert (parse_output(text, OutputSpec(format="json", schema=schema)).problem is None) == is_unique


@given(st.text())
def test_cleaned_text_can_be_stored(text: str) -> None:
    cleaned = clean_text(text)
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert clean_text(cleaned) == cleaned


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [("plain", "plain"), ("a\0b", "a\ufffdb"), ("é\ud800!", "é\ufffd!"), ("\U0001f600", "\U0001f600")],
)
def test_only_what_cannot_be_stored_is_replaced(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


@given(json_values)
def test_equal_values_have_one_canonical_text(value: object) -> None:
    assert canonical(json.loads(json.dumps(value))) == canonical(value)
    assert json.loads(canonical(value)) == value


def test_number_type_and_key_order_do_not_split_votes() -> None:
    assert canonical({"a": 2.0, "b": [1]}) == canonical({"b": [1.0], "a": 2})
    assert canonical(True) != canonical(1)
    assert canonical("2") != canonical(2)
