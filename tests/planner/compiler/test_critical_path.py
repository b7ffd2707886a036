"""Longest path and slack against enumeration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.critical_path import finish_times, makespan_s, slack_s
from planner.compiler.workflow import Workflow
from tests.planner.compiler.cases import longest_path_by_enumeration, workflows


@given(workflows(max_nodes=6), st.data())
def test_the_makespan_is_the_longest_path(graph: Workflow, data: st.DataObject) -> None:
    durations = {node.id: data.draw(st.floats(0, 100)) for node in graph.nodes}
    assert makespan_s(graph, durations) == pytest.approx(longest_path_by_enumeration(graph, durations))
    assert max(finish_times(graph, durations).values()) == makespan_s(graph, durations)


@given(workflows(max_nodes=6), st.data())
def test_slack_is_exactly_what_a_node_may_grow(graph: Workflow, data: st.DataObject) -> None:
    durations = {node.id: float(data.draw(st.integers(0, 20))) for node in graph.nodes}
    total, slack = makespan_s(graph, durations), slack_s(graph, durations)
    for node_id, free in slack.items():
        assert makespan_s(graph, {**durations, node_id: durations[node_id] + free}) == total
        assert makespan_s(graph, {**durations, node_id: durations[node_id] + free + 1}) == total + 1
