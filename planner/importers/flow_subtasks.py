"""Flow's first schema: `subtasks`, `subtask_dependencies` and agents that list their subtasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.importers.flow_plan import FlowPlan, FlowTask, Path, Reader, node_ids


def read_subtasks(data: Mapping[str, Any], reader: Reader) -> FlowPlan:
    """The plan of a file in this schema; problems go to `reader`, and what they concern is left out."""
    rows = _rows(data, reader)
    roles = _roles(data, reader, rows)
    ids = node_ids(rows)
    tasks = tuple(
        FlowTask(
            key=key,
            id=ids[key],
            path=path,
            objective=reader.text(row, "objective", path),
            role=roles.get(key, ""),
        )
        for key, (path, row) in rows.items()
    )
    reader.drop(data, ("task", "subtasks", "subtask_dependencies", "agents"), "the document")
    task = reader.text(data, "task", (), optional=True)
    return FlowPlan(task=task, tasks=tasks, edges=_edges(data, reader, ids))


def _rows(data: Mapping[str, Any], reader: Reader) -> dict[str, tuple[Path, Mapping[str, Any]]]:
    rows: dict[str, tuple[Path, Mapping[str, Any]]] = {}
    for index, member in enumerate(reader.members(data, "subtasks", ())):
        path: Path = ("subtasks", index)
        row = reader.object(member, path)
        key = reader.key(row.get("id"), (*path, "id"), "Subtask") if row is not None else None
        if row is None or key is None:
            continue
        if key in rows:
            message = f"The id {key!r} is taken by {'/'.join(map(str, rows[key][0]))}."
            reader.report("duplicate_id", (*path, "id"), message, "Give every subtask an id of its own.")
            continue
        rows[key] = (path, row)
    return rows


def _edges(data: Mapping[str, Any], reader: Reader, ids: Mapping[str, str]) -> dict[tuple[str, str], str]:
    edges: dict[tuple[str, str], str] = {}
    for index, member in enumerate(reader.members(data, "subtask_dependencies", (), optional=True)):
        path: Path = ("subtask_dependencies", index)
        row = reader.object(member, path)
        if row is None:
            continue
        ends = [_known(row.get(end), (*path, end), reader, ids) for end in ("parent", "child")]
        if ends[0] is not None and ends[1] is not None:
            edges.setdefault((ids[ends[0]], ids[ends[1]]), f"/subtask_dependencies/{index}")
    return edges


def _roles(
    data: Mapping[str, Any], reader: Reader, rows: Mapping[str, tuple[Path, Mapping[str, Any]]]
) -> dict[str, str]:
    roles: dict[str, str] = {}
    for index, member in enumerate(reader.members(data, "agents", (), optional=True)):
        path: Path = ("agents", index)
        agent = reader.object(member, path)
        if agent is None:
            continue
        role = reader.text(agent, "role", path)
        for position, value in enumerate(reader.members(agent, "subtasks", path, optional=True)):
            key = _known(value, (*path, "subtasks", position), reader, rows)
            if key is not None and key in roles and role not in roles[key].split(" and "):
                roles[key] = f"{roles[key]} and {role}"
            elif key is not None:
                roles[key] = role
    return roles


def _known(value: Any, path: Path, reader: Reader, known: Mapping[str, Any]) -> str | None:
    key = reader.key(value, path, "Subtask")
    if key is not None and key not in known:
        shown = ", ".join(list(known)[:20]) or "none"
        reader.report("unknown_node", path, f"There is no subtask {key[:80]!r}.", f"Known: {shown}.")
        return None
    return key
