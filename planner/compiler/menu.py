"""What a node may be served with, and what each choice takes: all that does not depend on where the node stands.

Nodes of equal skill, token limits and legal sets share a menu, and so do the requests that a process plans: Eq. 2 is
evaluated once per pair and backend, not once per node and request (ours; the numbers are those of 4.1 and 4.2).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from planner.compiler.durations import cost, gpu_s, max_calls, tau, tokens, work
from planner.compiler.legality import (
    Legal,
    LegalImplementations,
    legal_models,
    legal_policies,
    planned_prompt_tokens,
)
from planner.compiler.plan import Implementation
from planner.compiler.workflow import LlmNode

if TYPE_CHECKING:
    from planner.compiler.problem import PlanningProblem

MAX_MENUS = 256
"""Menus kept per profiles, fleet and policies: a menu of 24 columns takes some tens of kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One legal implementation with its numbers: one binary x[n,o,p] of the ILP.

    `duration_s` is tau; `work` slot-seconds and `gpu_s` GPU-seconds per model class; `cost` in the catalog's price
    unit; `tokens` expected ones, prompts and outputs of all calls; `calls` per class when every conditional stage runs.
    """

    implementation: Implementation
    quality: float
    error_rate: float
    duration_s: float
    work: Mapping[str, float]
    cost: float
    tokens: float
    calls: Mapping[str, int]
    gpu_s: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Menu:
    """A node's columns, in the order of the fleet's models, policies and backends."""

    columns: tuple[Column, ...]

    @cached_property
    def rows(self) -> tuple[tuple[int, float, float, float, float], ...]:
        """(position, quality, cost, slot-seconds, tau) of every column, fastest first: what a solver sums over."""
        rows = ((i, c.quality, c.cost, sum(c.work.values()), c.duration_s) for i, c in enumerate(self.columns))
        return tuple(sorted(rows, key=lambda row: row[4]))

    @cached_property
    def _by_implementation(self) -> Mapping[Implementation, Column]:
        return {column.implementation: column for column in self.columns}

    def column(self, implementation: Implementation) -> Column | None:
        return self._by_implementation.get(implementation)


def menu_of(problem: PlanningProblem, node: LlmNode) -> Menu:
    """The node's menu; empty when nothing is legal. Kept by everything that decides it."""
    menus, key = problem.menus, _key(problem, node)
    found = menus.get(key)
    if found is None:
        if len(menus) >= MAX_MENUS:
            menus.clear()
        found = menus[key] = Menu(columns=tuple(map(_column, LegalImplementations(problem, node))))
    return found


def _key(problem: PlanningProblem, node: LlmNode) -> Hashable:
    return (
        node.skill,
        node.thinking,
        legal_models(problem, node),
        tuple(policy.name for policy in legal_policies(problem, node)),
        node.max_tokens,
        planned_prompt_tokens(problem, node),
    )


def _column(legal: Legal) -> Column:
    return Column(
        implementation=legal.implementation,
        quality=legal.profile.quality,
        error_rate=legal.profile.error_rate,
        duration_s=tau(legal.stages),
        work=work(legal.stages),
        cost=cost(legal.stages),
        tokens=tokens(legal.stages),
        calls=max_calls(legal.stages),
        gpu_s=gpu_s(legal.stages),
    )
