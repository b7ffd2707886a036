"""Joint against sequential selection (paper 7.5) on the walkthrough's fork (paper 6)."""

from __future__ import annotations

import pytest

from planner.compiler.baselines import BASELINES
from planner.compiler.solve import compile_plan
from tests.paper.compiler_walkthrough import B9, B27, walkthrough_problem
from tests.planner.compiler.cases import planned


@pytest.mark.parametrize("name", ["model_first", "verification_first"])
def test_the_sequential_methods_miss_the_smaller_verified_model_off_the_critical_path(name: str) -> None:
    """Neither first stage sees 9B with verification at D, which the slack beside C's 10 s makes free."""
    problem = walkthrough_problem()
    joint, sequential = planned(compile_plan(problem, 0.0)), planned(BASELINES[name](problem, 0.0))
    assert [joint.assignment[n].label for n in "CD"] == [f"{B27}.none", f"{B9}.verified"]
    assert [sequential.assignment[n].label for n in "CD"] == [f"{B27}.none", f"{B27}.none"]
    assert joint.makespan_s == pytest.approx(sequential.makespan_s)
    assert joint.estimated_quality > sequential.estimated_quality
    assert joint.objective > sequential.objective + 0.03


def test_fixed_model_and_verify_all() -> None:
    problem = walkthrough_problem()
    fixed = planned(BASELINES["fixed_model"](problem, 0.0))
    assert [fixed.assignment[n].label for n in "PCDA"] == [f"{B9}.none", f"{B27}.none", f"{B27}.none", f"{B9}.none"]
    verified = planned(BASELINES["verify_all"](problem, 0.0))
    assert [verified.assignment[n].label for n in "CD"] == [f"{B27}.verified", f"{B27}.none"]
