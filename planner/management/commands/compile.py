"""`manage.py compile FILE`: the plans of a workflow, without a database, a server or Redis.

Profiles are the database's active ones when it is migrated and has some, else the shipped ones; the fleet is the demo
fleet of the package at its real speed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from rich import box
from rich.table import Table

from fleet.demo import demo_catalog
from planner.compiler.bundle import compile_bundle
from planner.compiler.plan import Bundle, Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import ProfileSet
from planner.compiler.workflow import Workflow
from planner.data import load_profiles
from planner.errors import NoActiveProfiles, OptionsInvalid
from planner.importers.problems import WorkflowRejected
from planner.importers.registry import import_workflow
from planner.management.reporting import FAILED, console_on, problems_of, read_file, rejected
from planner.options import PlanOptions
from planner.selectors import active_profiles

ILLUSTRATIVE = "profiles are illustrative, not measured; the fleet is emulated"


class Command(BaseCommand):
    help = "Compiles a workflow for the demo fleet and prints its plans. Needs no database and no server."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", help="a workflow document in any known format; - reads standard input")
        parser.add_argument("--levels", default="0,1.5,3", help="specialization levels, comma-separated (0,1.5,3)")
        parser.add_argument("--effort", type=float, default=None, help="between 0 and 1 (0.5)")
        parser.add_argument("--weights", default=None, help="a preset: quality_leaning, balanced or fast")
        parser.add_argument("--json", action="store_true", help="one line of JSON, the last on standard output")

    def handle(self, *args: Any, file: str, **options: Any) -> None:
        console = console_on(stderr=options["json"])
        try:
            chosen = _options(options)
            workflow = import_workflow(read_file(file), filename=Path(file).name).workflow
        except (WorkflowRejected, OptionsInvalid) as error:
            self._fail(options, problems_of(error))
            sys.exit(rejected(file, error))
        except CommandError as error:
            self._fail(options, [{"code": "unreadable", "message": str(error)}])
            raise
        profiles = _profiles()
        bundle = _compile(workflow, profiles, chosen)
        if isinstance(bundle, Infeasible):
            console_on(stderr=True).print(f"{file} has no plan: {bundle.text}", markup=False)
            self._fail(options, [{"code": "no_plan", "message": bundle.text}])
            sys.exit(FAILED)
        for table in (_variants(workflow, bundle), _assignments(workflow, bundle)):
            console.print(table)
        if profiles.illustrative:
            console.print(ILLUSTRATIVE, style="dim", markup=False)
        if options["json"]:
            self.stdout.write(json.dumps(_report(workflow, profiles, bundle), separators=(",", ":")))

    def _fail(self, options: dict[str, Any], errors: list[dict[str, Any]]) -> None:
        """With --json a failure is one line as well."""
        if options["json"]:
            self.stdout.write(json.dumps({"errors": errors}, separators=(",", ":")))


def _options(given: dict[str, Any]) -> PlanOptions:
    """Raises OptionsInvalid."""
    try:
        levels = [float(level) for level in given["levels"].split(",") if level.strip()]
    except ValueError:
        raise OptionsInvalid({"levels": f"give numbers such as 0,1.5,3, got {given['levels']!r}"}) from None
    return PlanOptions.of(effort=given["effort"], weights=given["weights"], levels=levels)


def _profiles() -> ProfileSet:
    """The database's, where there is a migrated one; a fresh clone has none."""
    try:
        return active_profiles()
    except (DatabaseError, NoActiveProfiles):
        return load_profiles()


def _compile(workflow: Workflow, profiles: ProfileSet, options: PlanOptions) -> Bundle | Infeasible:
    problem = PlanningProblem(
        workflow=workflow,
        catalog=demo_catalog(),
        profiles=profiles,
        weights=options.weights,
        effort=options.effort,
    )
    return compile_bundle(problem, options.levels, time_limit_s=settings.COMPILE_TIME_LIMIT_S)


# --- For people ------------------------------------------------------------------------------------------------------


def _variants(workflow: Workflow, bundle: Bundle) -> Table:
    title = f"{workflow.name}: {len(workflow.nodes)} nodes, {len(bundle.variants)} variants"
    caption = "quality: estimated, a surrogate; makespan and work in seconds, without queueing; solve in ms"
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("#", "level", "dominant", "quality", "makespan", "work", "cost", "solver", "solve"):
        left = name in ("dominant", "solver")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for index, plan in enumerate(bundle.variants):
        table.add_row(
            str(index),
            f"{plan.level:g}",
            plan.dominant_model or "-",
            f"{plan.estimated_quality:.3f}",
            f"{plan.makespan_s:.2f}",
            f"{plan.total_demand:.1f}",
            f"{plan.cost:.2f}",
            plan.solver if not plan.gap else f"{plan.solver} (gap {plan.gap:.1%})",
            f"{plan.solve_s * 1000:.0f}",
        )
    return table


def _assignments(workflow: Workflow, bundle: Bundle) -> Table:
    table = Table(title="model.policy per node", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("node", "skill", *(f"variant {index}" for index in range(len(bundle.variants)))):
        table.add_column(name, overflow="fold")
    for node in workflow.llm_nodes:
        table.add_row(node.id, node.skill, *(plan.assignment[node.id].label for plan in bundle.variants))
    return table


# --- For programs ----------------------------------------------------------------------------------------------------


def _report(workflow: Workflow, profiles: ProfileSet, bundle: Bundle) -> dict[str, Any]:
    return {
        "workflow": workflow.name,
        "nodes": len(workflow.nodes),
        "illustrative": profiles.illustrative,
        "emulated": True,
        "key": bundle.key,
        "variants": [_plan(plan) for plan in bundle.variants],
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {**plan.to_json(), "total_demand": plan.total_demand}
