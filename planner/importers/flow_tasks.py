"""Flow's current schema: tasks by name (or a list of tasks with ids) with `next` and `prev`, and agents by number.

`next` and `prev` say the same thing twice. Where they disagree, nobody can say which one is right: an error each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.importers.flow_plan import FlowPlan, FlowTask, Path, Reader, node_ids

_RUN_STATE = ("status", "data", "history", "remaining_dependencies", "edges")
_Rows = dict[str, tuple[Path, Mapping[str, Any]]]


def read_tasks(data: Any, reader: Reader) -> FlowPlan:
    """The plan of a file in this schema; problems go to `reader`, and what they concern is left out."""
    whole: Mapping[str, Any] = data if isinstance(data, Mapping) else {"workflow": data}
    if "workflow" not in whole:
        reader.report(
            "missing_key", (), "The file has neither 'subtasks' nor 'workflow'.", "Add the tasks as 'workflow'."
        )
    rows = _rows(whole.get("workflow", []), ("workflow",) if whole is data else (), reader)
    agents = _agents(whole, reader)
    ids = node_ids(rows)
    tasks = tuple(_task(key, ids[key], path, row, agents, reader) for key, (path, row) in rows.items())
    for key, (_, row) in rows.items():
        used = ("id", "objective", "agent_id", "agent", "next", "prev", "output_format")
        reader.drop({name: None for name in row if name not in _RUN_STATE}, used, f"task {key}")
    if any(name in row for _, row in rows.values() for name in _RUN_STATE):
        reader.note("dropped", "the state of an earlier run (status, data, history) is not used")
    reader.drop(whole, ("workflow", "agents", "task"), "the document")
    task = reader.text(whole, "task", (), optional=True)
    return FlowPlan(task=task, tasks=tasks, edges=_edges(rows, ids, reader))


def _rows(value: Any, path: Path, reader: Reader) -> _Rows:
    rows: _Rows = {}
    for key_path, key, member in _members(value, path, reader):
        at: Path = key_path[:-1] if key_path[-1] == "id" and isinstance(value, list) else key_path
        row = reader.object(member, at)
        if row is None or key is None:
            continue
        if key in rows:
            message = f"The id {key!r} is taken by {'/'.join(map(str, rows[key][0]))}."
            reader.report("duplicate_id", key_path, message, "Give every task an id of its own.")
            continue
        rows[key] = (at, row)
    return rows


def _members(value: Any, path: Path, reader: Reader) -> Iterator[tuple[Path, str | None, Any]]:
    """(path of the key, key, task) of each member, from either shape."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield (*path, name), reader.key(name, (*path, name), "Task"), member
    elif isinstance(value, list):
        for index, member in enumerate(value):
            at = (*path, index, "id")
            given = member.get("id") if isinstance(member, Mapping) else index
            yield at, reader.key(given, at, "Task"), member
    else:
        reader.object(value, path)


def _agents(whole: Mapping[str, Any], reader: Reader) -> dict[str, str]:
    """Roles by agent number or name: `Agent 0`, `0` and 0 name the same agent."""
    roles: dict[str, str] = {}
    for index, member in enumerate(reader.members(whole, "agents", (), optional=True)):
        path: Path = ("agents", index)
        agent = reader.object(member, path)
        key = reader.key(agent.get("id"), (*path, "id"), "Agent") if agent is not None else None
        if agent is None or key is None:
            continue
        if _agent_key(key) in roles:
            message = f"There are two agents {key[:80]!r}."
            reader.report("duplicate_id", (*path, "id"), message, "Give every agent an id of its own.")
        roles[_agent_key(key)] = reader.text(agent, "role", path)
    return roles


def _agent_key(key: str) -> str:
    return key.casefold().removeprefix("agent").strip()


def _task(
    key: str, node_id: str, path: Path, row: Mapping[str, Any], agents: Mapping[str, str], reader: Reader
) -> FlowTask:
    return FlowTask(
        key=key,
        id=node_id,
        path=path,
        objective=reader.text(row, "objective", path),
        role=_role(row, path, agents, reader),
        output_format=reader.text(row, "output_format", path, optional=True),
    )


def _role(row: Mapping[str, Any], path: Path, agents: Mapping[str, str], reader: Reader) -> str:
    own = reader.text(row, "agent", path, optional=True)
    if row.get("agent_id") is None or not (agents or not own):
        return own
    key = reader.key(row["agent_id"], (*path, "agent_id"), "Agent")
    if key is None:
        return own
    role = agents.get(_agent_key(key))
    if role is None and agents:
        shown = ", ".join(f"Agent {name}" for name in list(agents)[:20])
        reader.report("unknown_agent", (*path, "agent_id"), f"There is no agent {key[:80]!r}.", f"Known: {shown}.")
    return role or own


def _edges(rows: _Rows, ids: Mapping[str, str], reader: Reader) -> dict[tuple[str, str], str]:
    stated = {side: _stated(rows, side, reader) for side in ("next", "prev")}
    for side, other in (("next", "prev"), ("prev", "next")):
        if not any(side in row for _, row in rows.values()):
            reader.note("edges", f"no task has {side!r}: the edges come from {other!r} alone")
            stated[side] = stated[other]
    for side, other in (("next", "prev"), ("prev", "next")):
        for edge, path in stated[side].items():
            if edge not in stated[other]:
                _disagreement(edge, path, side, other, reader)
    return {(ids[a], ids[b]): "".join(f"/{step}" for step in path) for (a, b), path in stated["next"].items()}


def _stated(rows: _Rows, side: str, reader: Reader) -> dict[tuple[str, str], Path]:
    """The edges that one of the two lists states, as (earlier, later), with the place of each."""
    edges: dict[tuple[str, str], Path] = {}
    for key, (path, row) in rows.items():
        for index, value in enumerate(reader.members(row, side, path, optional=True)):
            at: Path = (*path, side, index)
            other = reader.key(value, at, "Task")
            if other is not None and other not in rows:
                shown = ", ".join(list(rows)[:20])
                reader.report("unknown_node", at, f"There is no task {other[:80]!r}.", f"Known: {shown}.")
            elif other is not None:
                edges.setdefault((key, other) if side == "next" else (other, key), at)
    return edges


def _disagreement(edge: tuple[str, str], path: Path, side: str, other: str, reader: Reader) -> None:
    here, there = edge if side == "next" else (edge[1], edge[0])
    reader.report(
        "next_prev_disagree",
        path,
        f"{here} has {there} in {side!r}, but {there} does not have {here} in {other!r}.",
        f"Add {here!r} to the {other!r} of {there}, or remove {there!r} here.",
    )
