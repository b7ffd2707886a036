"""`bench compile`: the own solver against CBC and HiGHS, the same instances in the same run (paper 7.6, Table 3).

A time covers everything from the workflow object to the plan ready to store: coefficients, solve, certificate, key and
JSON. `initial_ms`: a process that knows its profiles and fleet meets a workflow for whose nodes it has no menu yet;
`cold_ms`: not even the profiles' tables are made; `warm_ms`: another request had the same kinds of nodes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from planner.benchmarks.instances import Instance
from planner.compiler.bundle import structural_key, to_positions
from planner.compiler.certificate import verify_plan
from planner.compiler.plan import Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import Solver, compile_plan

FIRST, FURTHER = 0.0, 1.5
MISMATCH = 1e-6
SOLVERS: tuple[Solver, ...] = ("auto", "cbc", "highs")
LARGE_LIMIT_S = 2.0
TICK_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One solver on one instance; times in ms, objectives of pi(0) and of one further level."""

    instance: Instance
    cold_ms: float
    initial_ms: float
    warm_ms: float
    variant_ms: float
    plans: tuple[Plan, Plan]

    @property
    def proved(self) -> bool:
        return all(plan.gap == 0.0 for plan in self.plans)


def measure(instance: Instance, solver: Solver) -> Measured:
    cold = instance.problem()
    _ = cold.profiles.by_key, cold.profiles.digest  # loading profiles is no part of any compile
    cold_ms, _ = _timed(lambda: _ready(cold, FIRST, solver))
    cold.menus.made.clear()
    problem = replace(cold, workflow=replace(cold.workflow))
    initial_ms, first = _timed(lambda: _ready(problem, FIRST, solver))
    variant_ms, further = _timed(lambda: _ready(problem, FURTHER, solver))
    again = replace(cold, workflow=replace(cold.workflow))
    warm_ms, _ = _timed(lambda: _ready(again, FIRST, solver))
    return Measured(
        instance=instance,
        cold_ms=cold_ms,
        initial_ms=initial_ms,
        warm_ms=warm_ms,
        variant_ms=variant_ms,
        plans=(first, further),
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


def report(measured: Sequence[Sequence[Measured]]) -> dict[str, Any]:
    """`measured` holds one entry per instance, in the order of SOLVERS."""
    own, cbc, highs = zip(*measured, strict=True)
    figures = _figures(own) | {
        "cold_ms": _quantiles(m.cold_ms for m in own),
        "warm_ms": _quantiles(m.warm_ms for m in own),
        "cbc_ms": _quantiles(m.initial_ms for m in cbc),
        "cbc_variant_ms": _quantiles(m.variant_ms for m in cbc),
        "highs_ms": _quantiles(m.initial_ms for m in highs),
        "highs_variant_ms": _quantiles(m.variant_ms for m in highs),
        "real": sum(m.instance.shape == "real" for m in own),
        "mismatches": sum(map(_mismatches, measured)),
        "unproved": sum(not m.proved for m in own),
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


def _mismatches(solved: Sequence[Measured]) -> int:
    """Objectives of the reference solvers, with MIP gap 0, that differ from ours."""
    own, *references = (m.plans for m in solved)
    return sum(_differ(*pair) for reference in references for pair in zip(own, reference, strict=True))


def _differ(ours: Plan, theirs: Plan) -> bool:
    return abs(ours.objective - theirs.objective) > MISMATCH * max(abs(theirs.objective), 1e-9)


def _quantiles(values: Iterable[float]) -> dict[str, float]:
    """p50, p95 and the largest, each a value that was measured."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {"p50": ordered[round(0.5 * last)], "p95": ordered[round(0.95 * last)], "max": ordered[last]}


# --- Growth ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Nodes, backends a class (24 implementations each), and the width of every layer (None: shapes in turn)."""

    nodes: int
    backends: int = 1
    width: int | None = None


SIZES = (
    *(Size(nodes=nodes) for nodes in (5, 10, 20, 50, 100, 200, 500)),
    *(Size(nodes=48, width=width) for width in (1, 2, 4, 8)),
    *(Size(nodes=50, backends=backends) for backends in (2, 3)),
    Size(nodes=100, backends=3),
)


def measure_size(size: Size, instances: Sequence[Instance]) -> dict[str, Any]:
    """The own solver (and whom it hands over to) on problems of one size, at most LARGE_LIMIT_S each."""
    times: list[float] = []
    plans: list[Plan] = []
    for instance in instances:
        problem = instance.problem()
        milliseconds, plan = _timed(partial(_planned, problem))
        times.append(milliseconds)
        plans.append(plan)
    return {
        "nodes": size.nodes,
        "implementations": 24 * size.backends,
        "width": size.width,
        "instances": len(plans),
        "initial_ms": _quantiles(times),
        "gap": _quantiles(plan.gap for plan in plans),
        "unproved": sum(plan.gap > 0 for plan in plans),
        "handed_over": sum(plan.solver not in ("exact", "none") for plan in plans),
    }


def _planned(problem: PlanningProblem) -> Plan:
    plan = compile_plan(problem, FIRST, time_limit_s=LARGE_LIMIT_S)
    if isinstance(plan, Infeasible):
        raise RuntimeError(f"{problem.workflow.name} has no plan: {plan.text}")
    return plan


# --- An event loop beside a compile ----------------------------------------------------------------------------------


def event_loop_stall_ms(instances: Sequence[Instance]) -> dict[str, float]:
    """By how many ms an event loop's timer is late while a thread of the same process compiles, per instance."""
    return _quantiles(asyncio.run(_stall_s(instance)) * 1000 for instance in instances)


async def _stall_s(instance: Instance) -> float:
    """The longest delay of a timer of TICK_S."""
    problem = instance.problem()
    compiling = asyncio.create_task(asyncio.to_thread(compile_plan, problem, FIRST, time_limit_s=LARGE_LIMIT_S))
    longest = 0.0
    while not compiling.done():
        started = time.perf_counter()
        await asyncio.sleep(TICK_S)
        longest = max(longest, time.perf_counter() - started - TICK_S)
    await compiling
    return longest
