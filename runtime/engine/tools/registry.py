"""Which tools there are: the composition root adds its own to the pure ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from runtime.engine.ports import Tool
from runtime.engine.tools.json_select import JsonSelectTool
from runtime.engine.tools.template import TemplateTool


def registry(tools: Iterable[Tool] = ()) -> Mapping[str, Tool]:
    """The pure tools and `tools`, by name. ValueError when a name is taken."""
    found: dict[str, Tool] = {}
    pure: list[Tool] = [TemplateTool(), JsonSelectTool()]
    for tool in [*pure, *tools]:
        if tool.name in found:
            raise ValueError(f"there are two tools named {tool.name}")
        found[tool.name] = tool
    return MappingProxyType(found)
