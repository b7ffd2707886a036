from __future__ import annotations

from typing import Any

import pytest

from runtime.engine.ports import ToolFailed
from runtime.engine.tools.template import TemplateTool


@pytest.mark.parametrize(
    ("template", "text"), [("as it is", "as it is"), ("", ""), ({"é": [1]}, '{"é": [1]}'), (None, "null"), (2.5, "2.5")]
)
async def test_the_result_is_a_text(template: Any, text: str) -> None:
    assert await TemplateTool().invoke({"template": template}) == text


@pytest.mark.parametrize(
    ("arguments", "pointer", "message"),
    [({}, "/template", "'template' is missing"), ({"template": "x", "a/b": 1}, "/a~1b", "no argument 'a/b'")],
)
async def test_arguments_are_checked(arguments: dict[str, Any], pointer: str, message: str) -> None:
    with pytest.raises(ToolFailed, match=message) as failed:
        await TemplateTool().invoke(arguments)
    assert (failed.value.code, failed.value.pointer) == ("malformed_arguments", pointer)
