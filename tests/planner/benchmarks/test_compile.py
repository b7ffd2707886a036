"""The benchmark of the compiler: its instances are what it says, and its report tells the truth."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from planner.benchmarks import cost_page
from planner.benchmarks.compile import SIZES, SOLVERS, Size, measure, report
from planner.benchmarks.instances import SHAPES, instances, large_instances, real_instances
from tests.planner.compiler.cases import coefficients_of

SHIPPED = Path(settings.BASE_DIR) / "planner" / "data" / "workflows"


def test_every_node_has_24_implementations_and_no_workflow_over_11_nodes() -> None:
    found = instances()
    assert len(found) == 92
    assert {instance.shape for instance in found} == set(SHAPES)
    for instance in found:
        assert 3 <= len(instance.workflow.nodes) <= 11
        assert {len(node.columns) for node in coefficients_of(instance.problem()).nodes.values()} == {24}


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes_are_what_they_say(size: Size) -> None:
    for instance in large_instances(0, 4, size.nodes, size.backends, size.width):
        workflow = instance.workflow
        assert len(workflow.nodes) == size.nodes
        columns = {len(node.columns) for node in coefficients_of(instance.problem()).nodes.values()}
        assert columns == {24 * size.backends}
        if size.width:
            sources = [node for node in workflow.nodes if not workflow.predecessors[node.id]]
            assert len(sources) == size.width


def test_real_workflows_get_every_implementation_and_other_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("[]")
    shutil.copy(SHIPPED / "support_triage.yaml", tmp_path)
    (found,) = real_instances(tmp_path)
    assert found.shape == "real"
    assert {len(node.columns) for node in coefficients_of(found.problem()).nodes.values()} == {24}
    assert real_instances(tmp_path / "absent") == ()
    assert real_instances(tmp_path, max_nodes=1) == ()


def test_a_seed_gives_the_same_instances_again() -> None:
    assert [i.workflow for i in instances(3, 8)] == [i.workflow for i in instances(3, 8)]
    assert [i.workflow for i in instances(3, 8)] != [i.workflow for i in instances(4, 8)]


def test_a_problem_starts_with_nothing_computed() -> None:
    instance = instances(0, 1)[0]
    assert instance.problem().profiles.menus == {}
    assert instance.problem().profiles is not instance.problem().profiles


def test_another_objective_and_a_gap_are_counted() -> None:
    instance = instances(0, 1)[0]
    own, *references = (measure(instance, solver) for solver in SOLVERS)
    found = report([(own, *references)])
    assert (found["mismatches"], found["unproved"]) == (0, 0)
    wrong = replace(own, plans=(replace(own.plans[0], objective=own.plans[0].objective + 0.01), own.plans[1]))
    assert report([(wrong, *references)])["mismatches"] == len(references)
    unproved = replace(own, plans=(replace(own.plans[0], gap=0.01), own.plans[1]))
    assert report([(unproved, *references)])["unproved"] == 1


def test_the_command_prints_one_line_of_json(tmp_path: Path) -> None:
    out = StringIO()
    arguments = ("--instances", "5", "--per-size", "1", "--workflows", str(tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dyserve_site.management.commands.bench.SIZES", SIZES[:3])
        call_command("bench", "compile", *arguments, "--json", stdout=out)
    found = json.loads(out.getvalue())
    assert (found["instances"], found["real"]) == (5, 0)
    assert found["mismatches"] == found["unproved"] == 0
    assert [row["nodes"] for row in found["by_size"]] == [size.nodes for size in SIZES[:3]]
    assert all(row["instances"] == 1 for row in found["by_size"])
    for name in cost_page.SMALL:
        assert 0 <= found[name]["p50"] <= found[name]["p95"] <= found[name]["max"]
    assert found["speedup_p95"] == pytest.approx(found["cbc_ms"]["p95"] / found["initial_ms"]["p95"])


def test_the_page_shows_every_row_and_its_plot(tmp_path: Path) -> None:
    rows = [
        {
            "nodes": nodes,
            "implementations": 24,
            "width": None,
            "instances": 3,
            "initial_ms": {"p50": 1.0 * nodes, "p95": 2.0 * nodes, "max": 3.0 * nodes},
            "gap": {"p50": 0.0, "p95": 0.0, "max": 0.001},
            "unproved": 1,
        }
        for nodes in (5, 50)
    ]
    quantiles = {"p50": 1.0, "p95": 2.0, "max": 3.0}
    counts = {"instances": 92, "mismatches": 0, "unproved": 0, "speedup_p95": 11.0, "variant_speedup_p95": 21.0}
    report_ = {**dict.fromkeys(cost_page.SMALL, quantiles), **counts, "by_size": rows, "machine": "somewhere"}
    cost_page.write_page(report_, tmp_path / "cost.md")
    page = (tmp_path / "cost.md").read_text()
    assert "| 50 | 24 | - | 50.0 | 100.0 | 150.0 | 0.10% | 1 of 3 |" in page
    assert "CBC over own at p95: 11.0" in page
    assert (tmp_path / "images" / cost_page.PLOT).read_text().startswith("<svg")


def test_no_instances_are_refused() -> None:
    with pytest.raises(CommandError, match="at least 1"):
        call_command("bench", "compile", "--instances", "0")
