"""Paper 7.5: joint selection against sequential and single-axis selection, and the compiler's own ablations.

The paper reports accuracy and service time on its workloads; here the objective itself is compared, on the walkthrough
of section 6 and on seeded workflows with illustrative profiles.
"""

from __future__ import annotations

from functools import cache
from statistics import fmean

import pytest

from planner.benchmarks.instances import instances
from planner.compiler.baselines import BASELINES
from planner.compiler.certificate import verify_plan
from planner.compiler.plan import Plan
from planner.compiler.solve import compile_plan
from tests.paper.compiler_walkthrough import walkthrough_problem
from tests.planner.compiler.cases import planned

SEQUENTIAL = ("model_first", "verification_first")
OTHERS = tuple(name for name in BASELINES if name != "exhaustive")


@cache
def losses(name: str) -> tuple[float, ...]:
    """What a baseline gives up against the joint plan on seeded workflows, in units of the objective."""
    problems = [instance.problem() for instance in instances(seed=7, count=25)]
    return tuple(
        planned(compile_plan(problem, 0.0)).objective - planned(BASELINES[name](problem, 0.0)).objective
        for problem in problems
    )


@pytest.mark.parametrize("name", OTHERS)
def test_no_baseline_is_better_than_the_joint_plan_and_each_gives_something_up(name: str) -> None:
    assert min(losses(name)) >= -1e-9
    assert fmean(losses(name)) > 1e-5


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_sequential_selection_loses_less_than_deciding_one_axis_only(name: str) -> None:
    assert fmean(losses(name)) < min(fmean(losses("model_only")), fmean(losses("verifier_only")))


@pytest.mark.parametrize("name", ["no_vulnerability", "collapsed_skills", "uniform_weights"])
def test_workflow_impact_and_skills_matter_more_than_nothing_and_less_than_planning_at_all(name: str) -> None:
    assert 0 < fmean(losses(name)) < fmean(losses("fixed_model"))


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_on_the_walkthrough_a_sequence_of_choices_misses_the_joint_one(name: str) -> None:
    """Without verification D goes to 27B; that D verified on 9B is as fast shows only while both are open."""
    problem = walkthrough_problem()
    joint, sequence = planned(compile_plan(problem, 0.0)), planned(BASELINES[name](problem, 0.0))
    assert (labels(joint)["D"], labels(sequence)["D"]) == ("9b.verified", "27b.none")
    assert sequence.makespan_s == pytest.approx(joint.makespan_s)
    assert sequence.objective < joint.objective - 0.01
    assert verify_plan(problem, sequence) == ()


def labels(plan: Plan) -> dict[str, str]:
    return {node: implementation.label for node, implementation in plan.assignment.items()}
