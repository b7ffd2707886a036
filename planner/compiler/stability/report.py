"""How far a plan can be trusted while its profiles are uncertain, and what to measure next (ours).

All cells are redrawn at once from what their samples allow (`redraw`), the problem is solved again at the plan's level,
and the plan is compared with the optimum: where its choice stays, and what it gives away. A draw in which the plan is
as good as the optimum changes nothing. What one cell alone is worth: `regret`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Any

from planner.compiler.plan import Implementation, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.stability.redraw import Redraw
from planner.compiler.stability.regret import CellValue, Question, Timer, fixed_plan, most_valuable
from planner.compiler.vulnerability import wilson_interval

DEFAULT_DRAWS = 200
DEFAULT_TIME_LIMIT_S = 10.0
DRAWS_SHARE = 0.6
"""Part of the time limit after which no further draw starts; the rest is for the cells."""
TOP_CELLS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`count` of `of` draws, one at least, with Wilson's 95% interval."""

    count: int
    of: int

    @property
    def value(self) -> float:
        return self.count / self.of

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.count, self.of)

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "count": self.count, "of": self.of, "interval": list(self.interval)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStability:
    """`other`: what the node gets most often in the draws that change it (ties: first in its menu); None: nothing."""

    node: str
    planned: Implementation
    unchanged: Share
    other: Implementation | None
    other_share: Share

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "planned": self.planned.to_json(),
            "unchanged": self.unchanged.to_json(),
            "other": None if self.other is None else self.other.to_json(),
            "other_share": self.other_share.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """`regret` is the mean of optimum minus plan over the draws, `relative_regret` that over the plan's |objective|.

    `quality_p05`, `quality_p50`, `quality_p95`: quantiles of the plan's estimated quality (a surrogate: MATH.md).
    `cells`: those worth measuring, most valuable first. `unproved`: draws whose optimum is only the best plan found, so
    that their regret is a lower bound. `draws` and `cells_settled` say what the time limit left of `draws_asked` and of
    `cells_used`; a cell that is settled without a solve counts.
    """

    level: float
    seed: int
    draws: int
    draws_asked: int
    unproved: int
    unchanged: Share
    nodes: tuple[NodeStability, ...]
    regret: float
    relative_regret: float
    quality_p05: float
    quality_p50: float
    quality_p95: float
    cells: tuple[CellValue, ...]
    cells_used: int
    cells_settled: int

    @property
    def complete(self) -> bool:
        return self.draws == self.draws_asked and self.cells_settled == self.cells_used

    @property
    def advice(self) -> str:
        """Which cell to measure next, as a sentence."""
        if self.cells:
            best = self.cells[0].cell
            return f"measure {best.name} next: {best.samples_to_halve} further samples would halve its interval"
        if self.cells_settled < self.cells_used:
            return f"no cell found that would change the plan alone; {self.cells_settled} of {self.cells_used} examined"
        return "no cell would change the plan alone"

    def to_json(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in self.__slots__}
        data["unchanged"] = self.unchanged.to_json()
        data["nodes"] = [node.to_json() for node in self.nodes]
        data["cells"] = [cell.to_json() for cell in self.cells]
        return data | {"complete": self.complete, "advice": self.advice}


def stability(
    problem: PlanningProblem,
    plan: Plan,
    *,
    draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    top: int = TOP_CELLS,
    vulnerability: bool = True,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    timer: Timer = time.perf_counter,
) -> Stability:
    """How the plan fares when the cells that it was chosen by are redrawn, and the `top` cells worth measuring.

    Equal arguments give equal results, in whatever order the workflow lists its nodes; a time limit that is reached
    leaves the first draws (one at least) and the cells that promised most. `vulnerability=False` redraws qualities
    only. Raises ValueError on `draws` or `top` below 1, on a plan of another problem, and on limits that couple nodes.
    """
    for name, number in (("draws", draws), ("top", top)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if problem.limits.coupled:
        raise ValueError("limits: a redraw does not keep caps on the whole plan; ask about the plan without them")
    started = timer()
    coefficients, fixed = fixed_plan(problem, plan)
    redraw = Redraw(coefficients, vulnerability=vulnerability)
    question = Question(redraw=redraw, plan=fixed, deadline=started + time_limit_s, timer=timer)
    sample = _draw(question, draws, seed, started + DRAWS_SHARE * time_limit_s)
    cells, settled = most_valuable(question, top)
    quality = sorted(sample.quality)
    regret = fmean(sample.regrets)
    return Stability(
        level=plan.level,
        seed=seed,
        draws=sample.draws,
        draws_asked=draws,
        unproved=sample.unproved,
        unchanged=Share(count=sample.draws - sum(map(bool, sample.regrets)), of=sample.draws),
        nodes=tuple(_node(question, node_id, sample) for node_id in coefficients.nodes),
        regret=regret,
        relative_regret=regret / max(abs(fixed.objective(coefficients)), 1e-9),
        quality_p05=_quantile(quality, 0.05),
        quality_p50=_quantile(quality, 0.5),
        quality_p95=_quantile(quality, 0.95),
        cells=cells,
        cells_used=len(redraw.cells),
        cells_settled=settled,
    )


@dataclass(slots=True)
class _Sample:
    """What the draws gave; `changes` holds, per node, how often it got which other implementation."""

    changes: dict[str, Counter[Implementation]]
    regrets: list[float]
    quality: list[float]
    unproved: int = 0

    @property
    def draws(self) -> int:
        return len(self.regrets)


def _draw(question: Question, draws: int, seed: int, deadline: float) -> _Sample:
    rng = Random(seed)  # noqa: S311  # seeded on purpose
    sample = _Sample({node_id: Counter() for node_id in question.plan.positions}, [], [])
    for made in range(draws):
        if made and question.timer() > deadline:
            break
        coefficients = question.redraw.coefficients(question.redraw.draw(rng))
        answer = question.ask(coefficients)
        for node_id, planned in question.plan.columns(coefficients).items():
            chosen = answer.choice[node_id].implementation
            if chosen != planned.implementation:
                sample.changes[node_id][chosen] += 1
        sample.regrets.append(answer.regret)
        sample.quality.append(question.plan.estimated_quality(coefficients))
        sample.unproved += not answer.proved
    return sample


def _node(question: Question, node_id: str, sample: _Sample) -> NodeStability:
    offered = [column.implementation for column in question.redraw.base.nodes[node_id].columns]
    changes = sample.changes[node_id]
    other = max(changes, key=lambda found: (changes[found], -offered.index(found)), default=None)
    return NodeStability(
        node=node_id,
        planned=offered[question.plan.positions[node_id]],
        unchanged=Share(count=sample.draws - changes.total(), of=sample.draws),
        other=other,
        other_share=Share(count=0 if other is None else changes[other], of=sample.draws),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """By linear interpolation between the ordered values."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
