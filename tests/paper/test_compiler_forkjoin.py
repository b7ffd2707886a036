"""Fork-join of the paper's section 2.2: what verification on D costs depends on the model at C."""

from __future__ import annotations

import pytest

from planner.compiler.coefficients import Coefficients
from planner.compiler.critical_path import makespan_s, slack_s
from planner.compiler.evaluate import Solution
from planner.compiler.explain import explain_plan
from planner.compiler.solve import decode
from planner.compiler.workflow import LlmNode, Workflow
from tests.paper.compiler_walkthrough import B9, B27, walkthrough_problem

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


@pytest.mark.parametrize(("model_of_c", "added_s"), [(B27, 0), (B9, 1)])
def test_the_explanation_says_what_verification_costs(model_of_c: str, added_s: float) -> None:
    """C plain for 10 s on 27B or 6 s on 9B; D on 9B, 4 s and 3 s more when verified; quality .71 and .79."""
    problem = walkthrough_problem()
    coefficients = problem.coefficients
    assert isinstance(coefficients, Coefficients)
    wanted = {"P": (B9, "none"), "C": (model_of_c, "none"), "D": (B9, "verified"), "A": (B9, "none")}
    choice = {
        node_id: next(c for c in node.columns if (c.implementation.model, c.implementation.policy) == wanted[node_id])
        for node_id, node in coefficients.nodes.items()
    }
    explained = explain_plan(problem, decode(coefficients, Solution(choice=choice, solver="given"), 0.0))
    verified = {node.node: node.verification for node in explained.nodes if node.verification}
    assert list(verified) == list(explained.verification.nodes) == ["D"]
    assert verified["D"].node_s == pytest.approx(3)
    assert verified["D"].makespan_s == pytest.approx(added_s)
    assert explained.verification.makespan_s == pytest.approx(added_s)
    assert verified["D"].node_quality == pytest.approx(0.08)
    assert verified["D"].estimated_quality > 0
    assert ("D" in explained.critical) == (added_s > 0)
