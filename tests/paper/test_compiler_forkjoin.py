"""Fork-join of the paper's section 2.2: what verification on D costs depends on the model at C."""

from __future__ import annotations

import pytest

from planner.compiler.critical_path import makespan_s, slack_s
from planner.compiler.workflow import LlmNode, Workflow

FORK = Workflow(
    name="fork-join",
    nodes=tuple(LlmNode(id=name, skill="code", prompt="") for name in ("C", "D")),
    edges=(),
    output="D",
)


@pytest.mark.parametrize(("c_s", "added_s"), [(10, 0), (6, 1)])
def test_verification_on_the_shorter_branch(c_s: float, added_s: float) -> None:
    """max(10,7)-max(10,4) = 0, then max(6,7)-max(6,4) = 1."""
    plain, verified = {"C": c_s, "D": 4.0}, {"C": c_s, "D": 4.0 + 3.0}
    assert makespan_s(FORK, verified) - makespan_s(FORK, plain) == added_s


@pytest.mark.parametrize(("c_s", "slack"), [(10, 6), (6, 2)])
def test_branch_slack_says_what_is_free(c_s: float, slack: float) -> None:
    assert slack_s(FORK, {"C": c_s, "D": 4.0}) == {"C": 0.0, "D": slack}
