"""`bench compile`: the own solver against CBC through PuLP, the same instances in the same run (paper 7.6, Table 3).

A time covers everything from the workflow object to the plan ready to store: coefficients, solve, certificate, key and
JSON. Every instance starts without menus; `warm_ms` is the same with the menus of an earlier request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.benchmarks.instances import Instance
from planner.compiler.bundle import structural_key, to_positions
from planner.compiler.certificate import verify_plan
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import Solver, compile_plan

FIRST, FURTHER = 0.0, 1.5
MISMATCH = 1e-6
SOLVERS: tuple[Solver, ...] = ("auto", "cbc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One solver on one instance; times in ms, objectives of pi(0) and of one further level."""

    instance: Instance
    initial_ms: float
    warm_ms: float
    variant_ms: float
    plans: tuple[Plan, Plan]

    @property
    def proved(self) -> bool:
        return all(plan.gap == 0.0 for plan in self.plans)


def measure(instance: Instance, solver: Solver) -> Measured:
    problem = instance.problem()
    _ = problem.profiles.by_key, problem.profiles.digest  # one-time profile loading, not part of a compile
    initial_ms, first = _timed(lambda: _ready(problem, FIRST, solver))
    variant_ms, further = _timed(lambda: _ready(problem, FURTHER, solver))
    again = replace(problem, workflow=replace(problem.workflow))
    warm_ms, _ = _timed(lambda: _ready(again, FIRST, solver))
    return Measured(
        instance=instance, initial_ms=initial_ms, warm_ms=warm_ms, variant_ms=variant_ms, plans=(first, further)
    )


def _ready(problem: PlanningProblem, level: float, solver: Solver) -> Plan:
    """Compiled, certified, and written as it is stored. Raises RuntimeError on a plan that is not what it says."""
    plan = compile_plan(problem, level, solver=solver)
    if isinstance(plan, Infeasible):
        raise RuntimeError(f"{problem.workflow.name} has no plan: {plan.text}")
    wrong = verify_plan(problem, plan)
    if wrong:
        raise RuntimeError(f"the plan of {problem.workflow.name} is wrong: {'; '.join(wrong)}")
    to_positions(plan, problem.workflow).to_json()
    if level == FIRST:
        structural_key(problem)
    return plan


def _timed(work: Callable[[], Plan]) -> tuple[float, Plan]:
    started = time.perf_counter()
    plan = work()
    return 1000 * (time.perf_counter() - started), plan


def report(measured: Sequence[tuple[Measured, Measured]]) -> dict[str, Any]:
    """`measured` holds (own, CBC) per instance."""
    own, cbc = [pair[0] for pair in measured], [pair[1] for pair in measured]
    figures = _figures(own) | {
        "warm_ms": _quantiles(m.warm_ms for m in own),
        "cbc_ms": _quantiles(m.initial_ms for m in cbc),
        "cbc_variant_ms": _quantiles(m.variant_ms for m in cbc),
        "mismatches": sum(_differ(a, b) for pair in measured for a, b in zip(*(m.plans for m in pair), strict=True)),
        "unproved": sum(not m.proved for m in own),
        "by_size": [
            {"nodes": size} | _figures([m for m in own if len(m.instance.workflow.nodes) == size])
            for size in sorted({len(m.instance.workflow.nodes) for m in own})
        ],
    }
    return figures | {
        "speedup_p95": figures["cbc_ms"]["p95"] / figures["initial_ms"]["p95"],
        "variant_speedup_p95": figures["cbc_variant_ms"]["p95"] / figures["variant_ms"]["p95"],
        "emulated": True,
        "illustrative": True,
    }


def _figures(measured: Sequence[Measured]) -> dict[str, Any]:
    return {
        "instances": len(measured),
        "initial_ms": _quantiles(m.initial_ms for m in measured),
        "variant_ms": _quantiles(m.variant_ms for m in measured),
    }


def _differ(ours: Plan, theirs: Plan) -> bool:
    return abs(ours.objective - theirs.objective) > MISMATCH * max(abs(theirs.objective), 1e-9)


def _quantiles(values: Iterable[float]) -> dict[str, float]:
    """p50, p95 and the largest, each a value that was measured."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {"p50": ordered[round(0.5 * last)], "p95": ordered[round(0.95 * last)], "max": ordered[last]}
