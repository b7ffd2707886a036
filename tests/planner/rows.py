"""Rows and documents that several tests of the planner's Django side start from."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.auth.models import User

from fleet.models import Fleet
from fleet.services import seed_demo_fleet
from planner.models import WorkflowVersion
from planner.services import ensure_profiles, store_workflow


def document(name: str = "Pair", prefix: str = "", **changes: Any) -> dict[str, Any]:
    """Two LLM nodes and a tool between them; `prefix` renames every node."""
    first, tool, last = f"{prefix}draft", f"{prefix}pick", f"{prefix}answer"
    return {
        "dyserve": 1,
        "name": name,
        "inputs": {"topic": {"type": "string"}},
        "nodes": [
            {"id": first, "kind": "llm", "skill": "reasoning", "prompt": "Think about {{ inputs.topic }}."},
            {
                "id": tool,
                "kind": "tool",
                "tool": "template",
                "arguments": {"template": f"{{{{ nodes.{first}.output }}}}"},
            },
            {"id": last, "kind": "llm", "skill": "answer", "prompt": f"Answer with {{{{ nodes.{tool}.output }}}}."},
        ],
        "output": last,
        **changes,
    }


def data(name: str = "Pair", prefix: str = "", **changes: Any) -> bytes:
    return json.dumps(document(name, prefix, **changes)).encode()


def user(name: str = "olga") -> User:
    return User.objects.get_or_create(username=name)[0]


def version(name: str = "Pair", prefix: str = "", **changes: Any) -> WorkflowVersion:
    return store_workflow(owner=user(), data=data(name, prefix, **changes)).version


def demo() -> Fleet:
    """The demo fleet and the shipped profiles."""
    ensure_profiles()
    return seed_demo_fleet(18100, 10.0)
