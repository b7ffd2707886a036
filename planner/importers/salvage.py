"""What can still be read of a misshapen native document, so that its other errors are reported in the same answer."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.importers.problems import MAX_COLLECTED, Problem, pointer_parts
from planner.importers.schema_check import shape_problems

UNREAD = "_unread_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """A document of the right shape; `edge_positions` says where its edges stand in the original."""

    data: Mapping[str, Any]
    edge_positions: tuple[int, ...]


def salvaged(value: Any, problems: tuple[Problem, ...]) -> Salvaged | None:
    """`value` without what `problems` (its shape problems) complain of, nodes kept at their positions.

    None when too little is left. Nodes without a usable id get one that starts with UNREAD.
    """
    hopeless = len(problems) >= MAX_COLLECTED or any(problem.code.startswith("too_many") for problem in problems)
    if hopeless or not isinstance(value, Mapping):
        return None
    data = copy.deepcopy(dict(value))
    for problem in problems:
        if problem.code != "missing_key":
            _remove(data, pointer_parts(problem.pointer))
    if not isinstance(data.get("nodes"), list):
        return None
    data |= {"dyserve": 1, "name": data.get("name", UNREAD)}
    data["nodes"] = [_completed(node, index) for index, node in enumerate(data["nodes"])]
    edges = [(index, edge) for index, edge in enumerate(data.get("edges", ())) if _is_edge(edge)]
    data["edges"] = [edge for _, edge in edges]
    found = Salvaged(data=data, edge_positions=tuple(index for index, _ in edges))
    return None if shape_problems(data) else found


def _remove(data: Any, path: Iterable[str]) -> None:
    """Take the value at `path` away; a list keeps its length. Paths under something already gone are ignored."""
    *parents, last = path
    for step in parents:
        data = _member(data, step)
    if isinstance(data, dict):
        data.pop(last, None)
    elif isinstance(data, list):
        data[int(last)] = None


def _member(data: Any, step: str) -> Any:
    if isinstance(data, dict):
        return data.get(step)
    return data[int(step)] if isinstance(data, list) else None


def _completed(node: Any, index: int) -> dict[str, Any]:
    node = node if isinstance(node, dict) else {}
    kind = node.get("kind") or ("tool" if "tool" in node else "llm")
    needed = {"tool": UNREAD} if kind == "tool" else {"skill": "unread", "prompt": " "}
    whole = {"id": f"{UNREAD}{index}", "kind": kind} | needed | node
    return {key: value for key, value in whole.items() if not (isinstance(value, list) and None in value)}


def _is_edge(edge: Any) -> bool:
    return isinstance(edge, dict) and {"from", "to"} <= edge.keys()
