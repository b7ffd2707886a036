from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.importers.document import Document, document_of, read_document
from planner.importers.problems import WorkflowRejected
from planner.importers.values import MAX_BYTES, MAX_DEPTH, MAX_VALUES
from tests.planner.importers.helpers import attempted, document_problems, found
from tests.planner.importers.strategies import json_values


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(b"\xef\xbb\xbf{}")
@example(b"a: &a [*a]")
@example(b'"\xed\xa0\x80"')
@example(b"? {a: 1}\n: 2")
@example(b"%YAML 9.9\n---\na")
@example(b'a: "\\ud800"')
def test_any_bytes_are_read_or_rejected_and_nothing_else(data: bytes) -> None:
    for filename in ("", "x.yaml", "x.json"):
        outcome = attempted(partial(read_document, data, filename=filename))
        assert isinstance(outcome, Document) or outcome


@given(json_values, st.sampled_from([None, 1, 3]), st.booleans())
def test_json_is_read_as_json_loads_reads_it(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    if text.lstrip()[0] in "{[":
        assert read_document(text.encode()).value == value


@given(json_values)
def test_every_value_of_a_json_text_has_the_place_where_it_stands(value: Any) -> None:
    text = json.dumps({"root": value}, indent=1)
    root = read_document(text.encode()).places()
    assert root is not None
    lines = text.splitlines()
    for path, member in _members(value, ("root",)):
        place = root.find("".join("/" + p.replace("~", "~0").replace("/", "~1") for p in path))
        here = lines[place.line - 1][place.column - 1 :]
        expected = json.dumps(path[-1]) + ": " if _is_key(value, path) else _head(member)
        assert here.startswith(expected)


def _members(value: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    found = [(path, value)]
    if isinstance(value, dict | list):
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            found += _members(member, (*path, str(key)))
    return found


def _is_key(root: Any, path: tuple[str, ...]) -> bool:
    value = {"root": root}
    for part in path[:-1]:
        value = value[part] if isinstance(value, dict) else value[int(part)]
    return isinstance(value, dict)


def _head(value: Any) -> str:
    return json.dumps(value)[:1] if isinstance(value, dict | list) else json.dumps(value)


@pytest.mark.parametrize(
    ("text", "filename", "expected"),
    [
        ("", "", [("empty", "", None)]),
        (" \n\t", "", [("empty", "", None)]),
        ('{"a": 1}\n\n{"b": 2}', "x.json", [("glued_documents", "", 3)]),
        ('{"a": 1}\n[2]', "", [("glued_documents", "", 2)]),
        ('{"a": 1}\nthe end', "", [("extra_text", "", 2)]),
        (
            '{"a": 1,\n "b": 2,\n "a": {"c": 1,\n "c": 2}}',
            "",
            [("duplicate_key", "/a", 3), ("duplicate_key", "/a/c", 4)],
        ),
        ('{"a": [{"x": 1}, {"y": 1, "y": 2}]}', "", [("duplicate_key", "/a/1/y", 1)]),
        ('{"a": NaN,\n"b": [-Infinity]}', "", [("not_finite", "/a", 1), ("not_finite", "/b/0", 2)]),
        ('{"a": 1e999}', "", [("not_finite", "/a", 1)]),
        ('{"a": ' + "9" * 5000 + "}", "", [("not_finite", "/a", 1)]),
        ('{"a": 9223372036854775808}', "", [("integer_too_large", "/a", 1)]),
        ('{"a": "\\u0000"}', "", [("unstorable_text", "/a", 1)]),
        ('{"a": {"\\ud800": 1}}', "", [("unstorable_text", "/a/\ud800", 1)]),
        ('{"a": 1,}', "", [("bad_json", "", 1)]),
        ("{a: b}", "", [("bad_json", "", 1)]),
        ("a: 1\nb: 2\na: 3\n", "", [("duplicate_key", "/a", 3)]),
        ("a: .nan\nb: [-.Inf]", "", [("not_finite", "/a", 1), ("not_finite", "/b/0", 2)]),
        ("a: 1\n---\nb: 2", "", [("several_documents", "", 2)]),
        ("a: !!python/object:os.system x\nb: !x 1", "", [("tag", "/a", 1), ("tag", "/b", 2)]),
        ("a: &a {x: 1}\nb:\n  <<: *a", "", [("merge_key", "/b", 3)]),
        ("a: *nothing", "", [("bad_alias", "/a", 1)]),
        ("a: &a [1, *a]", "", [("bad_alias", "/a/1", 1)]),
        ("? [a]\n: 1", "", [("bad_key", "", 1)]),
        ("a: b: c", "", [("bad_yaml", "", 1)]),
        ("a:\n\t- 1", "", [("bad_yaml", "", 2)]),
        ("a: 1\nb: \x07", "", [("bad_character", "", 2)]),
        ('a: "\\0"', "", [("unstorable_text", "/a", 1)]),
    ],
)
def test_bad_documents_name_the_place(text: str, filename: str, expected: list[tuple[str, str, int | None]]) -> None:
    assert found(document_problems(text, filename)) == expected


def test_every_problem_has_a_remedy() -> None:
    for text in ("", "{", '{"a":1}{', "a: !x 1", "a: *b", "a: .inf"):
        assert all(problem.remedy and problem.message for problem in document_problems(text))


def test_bytes_that_are_not_utf8_name_the_offset() -> None:
    (problem,) = document_problems("name: caf\nx: é".encode("latin-1"))
    assert (problem.code, problem.line) == ("not_utf8", 2)
    assert "byte 13 (0xE9)" in problem.message


def test_a_byte_order_mark_is_accepted() -> None:
    assert read_document(b'\xef\xbb\xbf{"a": 1}').value == {"a": 1}


def test_the_size_limit_is_exact() -> None:
    assert read_document(b'{"a":1}'.ljust(MAX_BYTES)).value == {"a": 1}
    assert found(document_problems(b'{"a":1}'.ljust(MAX_BYTES + 1))) == [("too_large", "", None)]


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_the_depth_limit_is_exact(opening: str) -> None:
    def nested(levels: int) -> str:
        closing = "]" if opening == "[" else "}"
        return opening * levels + "1" + closing * levels

    read_document(nested(MAX_DEPTH).encode())
    assert document_problems(nested(MAX_DEPTH + 1))[0].code == "too_deep"
    assert document_problems("\n" + nested(50_000))[0].code == "too_deep"
    assert document_problems("\n" + nested(50_000))[0].line == 2


def test_yaml_depth_counts_what_aliases_bring() -> None:
    levels = "a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 30 + "*a" + "]" * 30
    assert document_problems(levels)[0].code == "too_deep"
    assert document_problems("- " * 200 + "1")[0].code == "too_deep"


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("numbers", "[" + "1," * (MAX_VALUES + 10) + "1]", "too_many_values"),
        ("objects", "[" + "{}," * (MAX_VALUES + 10) + "1]", "too_many_values"),
        ("list", "- 1\n" * (MAX_VALUES + 10), "too_many_values"),
        ("aliases", "- &a 1\n" + "- *a\n" * (MAX_VALUES + 10), "too_many_values"),
        ("brackets", "[" * MAX_BYTES, "too_deep"),
        ("braces", "{" * MAX_BYTES, "bad_json"),
        ("quotes", "[" + '"' * (MAX_BYTES - 1), "bad_json"),
        ("dashes", "- " * (MAX_BYTES // 2), "too_deep"),
        ("questions", "? " * (MAX_BYTES // 2), "bad_key"),
        ("duplicates", "{" + '"a":1,' * (MAX_BYTES // 7) + '"a":1}', "duplicate_key"),
        ("long text twice", 'a: &a "' + "x" * 900_000 + '"\nb: *a', "too_large"),
    ],
)
def test_hostile_documents_are_refused_at_a_limit(name: str, text: str, code: str) -> None:
    assert document_problems(text[:MAX_BYTES])[0].code == code


def test_an_alias_bomb_stops_at_the_limit() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    (problem,) = document_problems(bomb)
    assert (problem.code, problem.line) == ("too_many_values", 6)


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        *(
            ("no", "no"),
            ("12:30", "12:30"),
            ("2024-01-01", "2024-01-01"),
            ("012", "012"),
            ("1_000", "1_000"),
            ("+1", "+1"),
        ),
        *((".5", ".5"), ("0x1f", "0x1f"), ('"1"', "1"), ("1", 1), ("-0", 0), ("-1.5e3", -1500.0), ("1e2", 100.0)),
        *(
            ("", None),
            ("~", None),
            ("null", None),
            ("True", True),
            ("false", False),
            ('"true"', "true"),
            ("|\n  1\n", "1\n"),
        ),
    ],
)
def test_yaml_scalars_mean_what_they_mean_in_json(scalar: str, value: Any) -> None:
    read = read_document(f"1: {scalar}".encode()).value
    assert read == {"1": value}
    assert type(read["1"]) is type(value)


def test_yaml_aliases_are_followed_and_places_point_at_the_text() -> None:
    document = read_document(b"a: &a\n  x: 1\nb:\n  - *a\n")
    assert document.value == {"a": {"x": 1}, "b": [{"x": 1}]}
    root = document.places()
    assert root is not None
    assert (root.find("/b/0").line, root.find("/a/x").line, root.find("/b/7/z").line) == (4, 2, 3)


def test_a_yaml_name_lets_flow_style_yaml_through() -> None:
    assert read_document(b"{a: b}", filename="x.yml").value == {"a": "b"}
    assert found(document_problems('{"a":1}\n{"b":1}', "x.yaml")) == [("glued_documents", "", 2)]


def test_a_value_that_was_parsed_elsewhere_is_held_to_the_same_limits() -> None:
    with pytest.raises(WorkflowRejected) as caught:
        document_of({"a": [float("nan"), "\0"]})
    assert found(caught.value.problems) == [("not_finite", "/a/0", None), ("unstorable_text", "/a/1", None)]
