from __future__ import annotations

import pytest

from runtime.engine.tools.registry import registry
from runtime.engine.tools.template import TemplateTool
from tests.runtime.engine.fakes import SlowTool


def test_own_tools_stand_beside_the_pure_ones() -> None:
    slow = SlowTool()
    tools = registry([slow])
    assert sorted(tools) == ["json_select", "slow", "template"]
    assert tools["slow"] is slow


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="two tools named template"):
        registry([TemplateTool()])
