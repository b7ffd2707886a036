"""The sweep that chose the presets' lambda_l (ours): run `python -m planner.data.sweep` to see its table.

Every demonstration workflow is planned at level 0 with each value of the grid on the demo fleet. Of the mean estimated
quality and mean makespan per value, the rule takes

    quality_leaning   the largest lambda_l that gives up at most 2 points of the best mean estimated quality
    fast              the knee: the point farthest above the chord between the grid's two ends
    balanced          the value whose mean makespan is nearest to halfway between those two
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from fleet.demo import demo_catalog
from planner.compiler.plan import Infeasible
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan
from planner.compiler.workflow import Workflow
from planner.data import load_profiles
from planner.data.demo import demo_workflows

GRID = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.6)
QUALITY_GIVEN_UP = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """Means over the workflows at one lambda_l."""

    lambda_l: float
    estimated_quality: float
    makespan_s: float


def sweep(workflows: Iterable[Workflow], grid: Sequence[float] = GRID) -> tuple[SweepPoint, ...]:
    catalog, profiles = demo_catalog(), load_profiles()
    problems = [PlanningProblem(workflow=workflow, catalog=catalog, profiles=profiles) for workflow in workflows]
    return tuple(_point(problems, lambda_l) for lambda_l in grid)


def _point(problems: Sequence[PlanningProblem], lambda_l: float) -> SweepPoint:
    plans = []
    for problem in problems:
        plan = compile_plan(replace(problem, weights=replace(problem.weights, lambda_l=lambda_l)), 0.0)
        if isinstance(plan, Infeasible):
            raise ValueError(f"workflow {problem.workflow.name}: {plan.text}")
        plans.append(plan)
    return SweepPoint(
        lambda_l=lambda_l,
        estimated_quality=fmean(plan.estimated_quality for plan in plans),
        makespan_s=fmean(plan.makespan_s for plan in plans),
    )


def choose_presets(points: Sequence[SweepPoint]) -> dict[str, float]:
    """lambda_l by preset name, by the rule above; `points` in order of lambda_l."""
    best = max(point.estimated_quality for point in points)
    leaning = [point for point in points if point.estimated_quality >= best - QUALITY_GIVEN_UP][-1]
    fast = max(points, key=lambda point: _above_chord(points, point))
    halfway = (leaning.makespan_s + fast.makespan_s) / 2
    balanced = min(points, key=lambda point: abs(point.makespan_s - halfway))
    return {"quality_leaning": leaning.lambda_l, "balanced": balanced.lambda_l, "fast": fast.lambda_l}


def _above_chord(points: Sequence[SweepPoint], point: SweepPoint) -> float:
    first, last = points[0], points[-1]
    slope = (first.estimated_quality - last.estimated_quality) / (first.makespan_s - last.makespan_s)
    return point.estimated_quality - last.estimated_quality - slope * (point.makespan_s - last.makespan_s)


def main() -> None:
    points = sweep(demo_workflows().values())
    for point in points:
        sys.stdout.write(f"{point.lambda_l:5.2f}  {point.estimated_quality:.3f}  {point.makespan_s:6.1f} s\n")
    sys.stdout.write(f"{choose_presets(points)}\n")


if __name__ == "__main__":
    main()
