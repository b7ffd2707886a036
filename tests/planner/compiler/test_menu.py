"""Menus: shared where everything that decides them is equal, and only there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.compiler.menu import MAX_FLEETS, MAX_MENUS, menu_of
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import ProfileSet
from planner.compiler.workflow import LlmNode
from tests.planner.compiler.cases import (
    JSON_OUTPUT,
    LARGE,
    MIDDLE,
    h200_catalog,
    llm,
    pair,
    profile_set,
    rates,
    workflow,
)

PAIRS = [pair(s, m, p) for s in ("plan", "code") for m in (MIDDLE, LARGE) for p in ("none", "self_consistency")]


def problem(profiles: ProfileSet, *nodes: LlmNode, **options: object) -> PlanningProblem:
    return PlanningProblem(
        workflow=workflow(*nodes),
        profiles=profiles,
        **{"catalog": h200_catalog(), **options},  # type: ignore[arg-type]  # test shorthand
    )


def test_nodes_and_requests_of_equal_needs_share_a_menu() -> None:
    profiles = profile_set(PAIRS)
    first = problem(profiles, llm("a"), llm("b"))
    again = problem(profiles, llm("z"))
    menus = [menu_of(first, node) for node in first.workflow.llm_nodes]
    assert menus[0] is menus[1] is menu_of(again, again.workflow.llm_nodes[0])


def test_whatever_decides_a_menu_gives_another_one() -> None:
    profiles = profile_set(PAIRS)
    fast = h200_catalog()
    quick = replace(fast.backends[-1].rates, decode_tokens_per_s=110.0)
    faster = replace(fast, backends=(*fast.backends[:-1], replace(fast.backends[-1], rates=quick)))
    problems = [
        problem(profiles, llm("a")),
        problem(profiles, llm("a", "code")),
        problem(profiles, llm("a", max_tokens=64)),
        problem(profiles, llm("a", models=(LARGE,))),
        problem(profiles, llm("a", output=JSON_OUTPUT)),
        problem(profiles, llm("a"), known_prompt_tokens={"a": 900}),
        problem(profiles, llm("a"), catalog=faster),
    ]
    menus = [menu_of(each, each.workflow.llm_nodes[0]) for each in problems]
    assert len({id(menu) for menu in menus}) == len(menus)
    assert menus[0].columns != menus[6].columns


def test_an_unlimited_variety_of_nodes_does_not_fill_the_memory() -> None:
    profiles = profile_set(PAIRS)
    for tokens in range(1, MAX_MENUS + 20):
        each = problem(profiles, llm("a", max_tokens=tokens))
        menu_of(each, each.workflow.llm_nodes[0])
        assert len(each.menus.made) <= MAX_MENUS


def test_fleets_that_come_and_go_do_not_fill_the_memory() -> None:
    profiles, catalog = profile_set(PAIRS), h200_catalog()
    for speed in range(1, MAX_FLEETS + 5):
        last = replace(catalog.backends[-1], rates=rates(100.0 + speed))
        faster = replace(catalog, backends=(*catalog.backends[:-1], last))
        each = problem(profiles, llm("a"), catalog=faster)
        menu_of(each, each.workflow.llm_nodes[0])
        assert len(profiles.menus) <= MAX_FLEETS


def test_numbers_that_no_solver_can_compare_are_refused_by_name() -> None:
    """Finite each, but their products are not."""
    fleet = h200_catalog()
    dear = replace(fleet, models=tuple(replace(m, price_out=1e307) for m in fleet.models))
    slow = replace(fleet, backends=tuple(replace(b, rates=rates(1e-307)) for b in fleet.backends))
    for catalog in (dear, slow):
        each = problem(profile_set(PAIRS), llm("a", "code"), catalog=catalog)
        with pytest.raises(ValueError, match=rf"code by {MIDDLE}.none .* check its profile, rates and prices"):
            _ = each.coefficients
