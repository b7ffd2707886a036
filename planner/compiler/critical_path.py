"""Longest path of nominal durations through the DAG (paper 4.3, "Accounting for parallel branches")."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from planner.compiler.workflow import Workflow


def finish_times(workflow: Workflow, durations_s: Mapping[str, float]) -> dict[str, float]:
    """finish(n) = dur(n) + the latest finish of its predecessors, in seconds from the start."""
    finish: dict[str, float] = {}
    for node_id in workflow.topological_order:
        start = max((finish[before] for before in workflow.predecessors[node_id]), default=0.0)
        finish[node_id] = start + durations_s[node_id]
    return finish


def makespan_s(workflow: Workflow, durations_s: Mapping[str, float]) -> float:
    """T: the longest path."""
    return max(finish_times(workflow, durations_s).values())


def slack_s(workflow: Workflow, durations_s: Mapping[str, float]) -> dict[str, float]:
    """Branch slack: seconds by which a node may take longer before the makespan grows; 0 on the critical path."""
    finish = finish_times(workflow, durations_s)
    end = max(finish.values())
    latest: dict[str, float] = {}
    for node_id in reversed(workflow.topological_order):
        latest[node_id] = min(
            (latest[after] - durations_s[after] for after in workflow.successors[node_id]), default=end
        )
    return {node_id: max(0.0, latest[node_id] - finish[node_id]) for node_id in finish}


def critical_path(workflow: Workflow, durations_s: Mapping[str, float]) -> tuple[str, ...]:
    """One longest path, from its start; of equal ones the nodes that come first in file order."""
    finish, index = finish_times(workflow, durations_s), workflow.index
    ahead = max(workflow.topological_order, key=lambda n: (finish[n], -index[n]))
    path = [ahead]
    while workflow.predecessors[ahead]:
        ahead = max(workflow.predecessors[ahead], key=lambda n: (finish[n], -index[n]))
        path.append(ahead)
    return tuple(reversed(path))


def avoiding_s(workflow: Workflow, durations_s: Mapping[str, float]) -> dict[str, float]:
    """Per node the longest path that does not pass it, for all nodes in one sweep; 0 where every path does.

    In a topological order a path that avoids a node ends before it, starts after it, or has an edge across it.
    """
    order = workflow.topological_order
    place = {node_id: i for i, node_id in enumerate(order)}
    finish, tail = finish_times(workflow, durations_s), _tails(workflow, durations_s)
    after = [0.0] * (len(order) + 1)
    for i in range(len(order) - 1, -1, -1):
        after[i] = max(after[i + 1], tail[order[i]])
    across: list[tuple[float, int]] = []
    avoiding, before = {}, 0.0
    for i, node_id in enumerate(order):
        while across and across[0][1] <= i:
            heapq.heappop(across)
        avoiding[node_id] = max(before, after[i + 1], -across[0][0] if across else 0.0)
        before = max(before, finish[node_id])
        for successor in workflow.successors[node_id]:
            heapq.heappush(across, (-finish[node_id] - tail[successor], place[successor]))
    return avoiding


def _tails(workflow: Workflow, durations_s: Mapping[str, float]) -> dict[str, float]:
    """The longest path that starts with each node."""
    tail: dict[str, float] = {}
    for node_id in reversed(workflow.topological_order):
        tail[node_id] = durations_s[node_id] + max((tail[s] for s in workflow.successors[node_id]), default=0.0)
    return tail
