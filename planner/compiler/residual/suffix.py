"""The residual problem: a plan for what a run has not dispatched yet (paper 5.2, suffix recompilation; App. D).

Completed nodes take no more time, nodes in flight take what is left of theirs and keep their bindings, the LLM nodes
whose base call is not dispatched are free. The formulation is ours (MATH.md): objective, |V_L|, rho, v and references
stay those of admission, T counts from now, cost and demand are those of what is still to be dispatched, the estimated
quality is that of the whole run, and the caps are what the run has left of them.

A settled node waits for nothing. So a node may be settled while one before it is not: recovery executes a node once
more, and consumers that were dispatched before keep the old output (MATH.md, Recovery rule).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod

from planner.compiler.bundle import distinct_variants, kind_of, levels_of, structural_key
from planner.compiler.coefficients import Coefficients
from planner.compiler.digest import content_digest
from planner.compiler.limits import NO_LIMITS, Limits
from planner.compiler.limits.caps import RELATIVE_ERROR
from planner.compiler.limits.patterns import permitted
from planner.compiler.menu import menu_of
from planner.compiler.plan import Bundle, Implementation, Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import PairProfile
from planner.compiler.residual.settled import Settled, Spent
from planner.compiler.solve import DEFAULT_TIME_LIMIT_S, Timer, compile_coefficients
from planner.compiler.vulnerability import vulnerability
from planner.compiler.workflow import LlmNode, Workflow


@dataclass(frozen=True, kw_only=True)
class ResidualProblem:
    """`admission` is the problem that the run was admitted with: profiles, fleet, weights and effort stay its.

    Its limits may carry what came up since: pins for a recovered anchor, a lost backend's pattern as forbidden; neither
    changes the references. Pins and prohibitions of settled nodes mean nothing any more.
    Raises ValueError when a settled node does not exist, when an LLM node lacks its implementation or a tool has one,
    and when an implementation is not profiled.
    """

    admission: PlanningProblem
    settled: Settled

    def __post_init__(self) -> None:
        for node_id, implementation in self.settled.implementations.items():
            node = self.admission.workflow.by_id.get(node_id)
            if node is None:
                raise ValueError(f"settled node {node_id} is no node of workflow {self.workflow.name}")
            if isinstance(node, LlmNode):
                _profile(self.admission, node, implementation)
            elif implementation is not None:
                raise ValueError(f"{node_id} is a tool node and has no implementation; give None")

    @property
    def workflow(self) -> Workflow:
        return self.admission.workflow

    @cached_property
    def free(self) -> tuple[str, ...]:
        """LLM nodes whose base call is not dispatched, in file order: those that a residual plan assigns."""
        return tuple(node.id for node in self.workflow.llm_nodes if node.id not in self.settled.remaining_s)

    @cached_property
    def graph(self) -> Workflow:
        """The workflow without the edges into settled nodes: its longest path is T from now."""
        edges = tuple(edge for edge in self.workflow.edges if edge[1] not in self.settled.remaining_s)
        return replace(self.workflow, edges=edges)

    @cached_property
    def settled_quality(self) -> float:
        """Product of (1 - v r) over the settled LLM nodes."""
        return prod(1.0 - risk for risk in _settled_risks(self))

    @cached_property
    def coefficients(self) -> Coefficients | Infeasible:
        """Admission's, for the free nodes alone; infeasible also when a cap was spent already."""
        limits = remaining_limits(self)
        if isinstance(limits, Infeasible):
            return limits
        admission = self.admission
        admitted = (admission if admission.limits.is_empty else replace(admission, limits=NO_LIMITS)).coefficients
        if isinstance(admitted, Infeasible):
            return admitted
        tools = {n: s for n, s in admitted.fixed_s.items() if n not in self.settled.remaining_s}
        ours = replace(
            admitted,
            problem=replace(admission, workflow=self.graph, limits=limits),
            nodes={node_id: admitted.nodes[node_id] for node_id in self.free},
            fixed_s={**tools, **self.settled.remaining_s},
            settled_quality=self.settled_quality,
        )
        return permitted(ours)


def _settled_risks(residual: ResidualProblem) -> Iterator[float]:
    problem = residual.admission
    for node in problem.workflow.llm_nodes:
        if node.id in residual.settled.implementations:
            profile = _profile(problem, node, residual.settled.implementations[node.id])
            v = vulnerability(problem.workflow, node.id, node.skill, problem.profiles.vulnerability)
            yield v * profile.error_rate


def _profile(problem: PlanningProblem, node: LlmNode, implementation: Implementation | None) -> PairProfile:
    if implementation is None:
        raise ValueError(f"settled LLM node {node.id} needs the implementation that it was dispatched with")
    profile = problem.profiles.pair(
        node.skill,
        implementation.model,
        implementation.policy,
        verifier_model=implementation.verifier_model,
        thinking=node.thinking,
    )
    if profile is None:
        raise ValueError(
            f"settled LLM node {node.id}: {implementation.label} is not profiled for skill {node.skill!r}; "
            "plan the residual with the profiles of admission"
        )
    return profile


# --- Caps ------------------------------------------------------------------------------------------------------------


def remaining_limits(residual: ResidualProblem) -> Limits | Infeasible:
    """The caps less what was dispatched; infeasible past a cap.

    Pins and prohibitions stay, those of settled nodes idle. `min_quality` stays as well: the residual's estimated
    quality is that of the whole run. Without a free node there is nothing to decide, and no limit is left.
    """
    limits = residual.admission.limits
    if limits.is_empty or not residual.free:
        return NO_LIMITS
    used = _used(dispatched(residual))
    broken = [(n, cap) for n, cap in limits.values().items() if n in used and used[n] > cap * (1 + RELATIVE_ERROR)]
    if broken:
        return Infeasible(
            reasons=tuple(f"limit {n}={cap:g} is spent: what was dispatched takes {used[n]:g}" for n, cap in broken)
        )
    data = limits.to_json()
    left = {name: max(0, cap - used[name]) for name, cap in data.items() if name in used}
    for kind in ("work_s", "calls"):
        left[kind] = {model: max(0, cap - used.get(f"{kind}.{model}", 0)) for model, cap in data.get(kind, {}).items()}
    return Limits.from_json(data | left)


def _used(taken: Spent) -> dict[str, float]:
    """What was taken of each cap, by the name of the limit."""
    whole = {
        "max_cost": taken.cost,
        "max_calls": sum(taken.calls.values()),
        "max_tokens": taken.tokens,
        "max_makespan_s": taken.elapsed_s,
    }
    work_s = {f"work_s.{model}": seconds for model, seconds in taken.work_s.items()}
    return whole | work_s | {f"calls.{model}": count for model, count in taken.calls.items()}


def dispatched(residual: ResidualProblem) -> Spent:
    """What was spent, and the invocations in flight at their planned values.

    Raises ValueError when an implementation in flight is not a legal one of its node.
    """
    total = residual.settled.spent
    for node in residual.workflow.llm_nodes:
        flight = residual.settled.in_flight.get(node.id)
        if flight is not None and flight.implementation is not None:
            column = menu_of(residual.admission, node).column(flight.implementation)
            if column is None:
                raise ValueError(
                    f"node {node.id} is in flight with {flight.implementation.label} on "
                    f"{flight.implementation.backend}, which is not legal for it; plan with the fleet of admission"
                )
            total = total.plus(column)
    return total


# --- Plans -----------------------------------------------------------------------------------------------------------


def compile_residual(
    residual: ResidualProblem,
    level: float,
    *,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    timer: Timer = time.perf_counter,
) -> Plan | Infeasible:
    """The best plan of the free nodes at `level` (>= 0), or why there is none; no free node: the empty plan.

    `Plan.assignment` and `demand` cover the free nodes, `durations_s` all of them.
    """
    coefficients = residual.coefficients
    if isinstance(coefficients, Infeasible):
        return coefficients
    plan = compile_coefficients(coefficients, level, time_limit_s=time_limit_s, timer=timer)
    return _of_what_is_left(residual, plan) if isinstance(plan, Infeasible) else plan


def _of_what_is_left(residual: ResidualProblem, found: Infeasible) -> Infeasible:
    """Says that the caps it names are what the run has left, and what was taken before."""
    used = _used(dispatched(residual))
    taken = [f"{name} {used[name]:g}" for name in residual.admission.limits.values() if used.get(name)]
    if not taken:
        return found
    return replace(found, reasons=(*found.reasons, f"caps are what is left; dispatched before: {', '.join(taken)}"))


def compile_residual_bundle(
    residual: ResidualProblem,
    levels: Sequence[float] | None = None,
    *,
    first: Plan | None = None,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    timer: Timer = time.perf_counter,
) -> Bundle | Infeasible:
    """`compile_bundle` for a residual problem: one solve per level, smallest first, equal assignments kept once.

    `levels` None: the defaults of admission's kind of bundle. `first` is the plan at the smallest level where it is
    known already. `time_limit_s` holds per solve.
    """
    solve = partial(compile_residual, residual, time_limit_s=time_limit_s, timer=timer)
    variants = distinct_variants(solve, levels_of(residual.admission, levels), first)
    if isinstance(variants, Infeasible):
        return variants
    return Bundle(key=residual_key(residual, levels), variants=variants, kind=kind_of(residual.admission))


def residual_key(residual: ResidualProblem, levels: Sequence[float] | None = None) -> str:
    """Digest of all that decides a residual bundle: admission's key, the state by file position, what caps have left.

    Seconds count as they are planned, to two digits; of the settled implementations only the quality they leave.
    """
    index = residual.workflow.index
    return content_digest(
        {
            "admission": structural_key(residual.admission, levels),
            "settled": sorted((index[node], seconds) for node, seconds in residual.settled.remaining_s.items()),
            "settled_quality": residual.settled_quality,
            "dispatched": None if residual.admission.limits.is_empty else dispatched(residual),
        }
    )
