"""Longest path of nominal durations through the DAG (paper 4.3, "Accounting for parallel branches")."""

from __future__ import annotations

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
