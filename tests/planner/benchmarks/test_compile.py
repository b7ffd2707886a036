"""The benchmark of the compiler: its instances are what it says, and its report tells the truth."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from planner.benchmarks.compile import measure, report
from planner.benchmarks.instances import SHAPES, instances
from tests.planner.compiler.cases import coefficients_of


def test_every_node_has_24_implementations_and_no_workflow_over_11_nodes() -> None:
    found = instances()
    assert len(found) == 92
    assert {instance.shape for instance in found} == set(SHAPES)
    for instance in found:
        assert 3 <= len(instance.workflow.nodes) <= 11
        assert {len(node.columns) for node in coefficients_of(instance.problem()).nodes.values()} == {24}


def test_a_seed_gives_the_same_instances_again() -> None:
    assert [i.workflow for i in instances(3, 8)] == [i.workflow for i in instances(3, 8)]
    assert [i.workflow for i in instances(3, 8)] != [i.workflow for i in instances(4, 8)]


def test_a_problem_starts_with_nothing_computed() -> None:
    instance = instances(0, 1)[0]
    assert instance.problem().profiles.menus == {}
    assert instance.problem().profiles is not instance.problem().profiles


def test_another_objective_and_a_gap_are_counted() -> None:
    instance = instances(0, 1)[0]
    own, cbc = (measure(instance, solver) for solver in ("auto", "cbc"))
    assert (report([(own, cbc)])["mismatches"], report([(own, cbc)])["unproved"]) == (0, 0)
    wrong = replace(own, plans=(replace(own.plans[0], objective=own.plans[0].objective + 0.01), own.plans[1]))
    assert report([(wrong, cbc)])["mismatches"] == 1
    unproved = replace(own, plans=(replace(own.plans[0], gap=0.01), own.plans[1]))
    assert report([(unproved, cbc)])["unproved"] == 1


def test_the_command_prints_one_line_of_json() -> None:
    out = StringIO()
    call_command("bench", "compile", "--instances", "4", "--json", stdout=out)
    found = json.loads(out.getvalue())
    assert found["instances"] == 4
    assert found["mismatches"] == found["unproved"] == 0
    assert sum(size["instances"] for size in found["by_size"]) == 4
    for name in ("initial_ms", "warm_ms", "variant_ms", "cbc_ms", "cbc_variant_ms"):
        assert 0 < found[name]["p50"] <= found[name]["p95"] <= found[name]["max"]
    assert found["speedup_p95"] == pytest.approx(found["cbc_ms"]["p95"] / found["initial_ms"]["p95"])


def test_no_instances_are_refused() -> None:
    with pytest.raises(CommandError, match="at least 1"):
        call_command("bench", "compile", "--instances", "0")
