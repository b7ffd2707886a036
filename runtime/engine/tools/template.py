"""`template`: a text put together from inputs and outputs. The engine has filled the references already."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from runtime.engine.tools.arguments import check_names


class TemplateTool:
    """Arguments: `template`. Returns it as a text; a value that a single reference brought in is written as JSON."""

    name = "template"

    async def invoke(self, arguments: Mapping[str, Any]) -> str:
        check_names(arguments, required=frozenset({"template"}), optional=frozenset())
        value = arguments["template"]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
