from __future__ import annotations

from typing import Any

import pytest

from runtime.engine.ports import ToolFailed
from runtime.engine.tools.json_select import JsonSelectTool

VALUE = {"steps": [{"title": "one"}, {"title": "two"}], "0": "zero", "none": None}


async def select(**arguments: Any) -> Any:
    return await JsonSelectTool().invoke(arguments)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", VALUE),
        ("steps.0.title", "one"),
        ("steps.-1.title", "two"),
        ("steps.1", {"title": "two"}),
        ("0", "zero"),
        ("none", None),
    ],
)
async def test_a_path_selects_a_part(path: str, found: Any) -> None:
    assert await select(value=VALUE, path=path) == found


@pytest.mark.parametrize(
    "text", ['{"a": [1, 2]}', '```json\n{"a": [1, 2]}\n```', 'Here:\n```\n{"a": [1, 2]}\n```\nDone.']
)
async def test_json_in_a_text_is_read(text: str) -> None:
    assert await select(value=text, path="a.1") == 2


async def test_a_default_stands_in_for_a_missing_part_only() -> None:
    assert await select(value=VALUE, path="nothing", default=None) is None
    assert await select(value=VALUE, path="none", default=1) is None
    with pytest.raises(ToolFailed):
        await select(value="no json", path="a", default=1)


@pytest.mark.parametrize(
    ("arguments", "pointer", "message"),
    [
        ({"value": 1}, "/path", "'path' is missing"),
        ({"value": 1, "path": "a", "more": 1}, "/more", "no argument 'more'"),
        ({"value": 1, "path": 2}, "/path", "must be a text"),
        ({"value": "oops", "path": "a"}, "/value", "a text without JSON: not valid JSON"),
        ({"value": VALUE, "path": "steps.2.title"}, "/path", "'steps' is a list of 2 and has no '2'"),
        ({"value": VALUE, "path": "stops"}, "/path", "the value has the fields 0, none, steps and has no 'stops'"),
        ({"value": VALUE, "path": "none.x"}, "/path", "'none' is null and has no 'x'"),
        ({"value": {"a": "text"}, "path": "a.0"}, "/path", "'a' is str and has no '0'"),
    ],
)
async def test_what_is_wrong_is_named(arguments: dict[str, Any], pointer: str, message: str) -> None:
    with pytest.raises(ToolFailed, match=message) as failed:
        await JsonSelectTool().invoke(arguments)
    assert (failed.value.code, failed.value.pointer) == ("malformed_arguments", pointer)
