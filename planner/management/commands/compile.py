"""`manage.py compile FILE`: the plans of a workflow, without a database, a server or Redis.

Profiles are the database's active ones when it is migrated and has some, else the shipped ones; the fleet is the demo
fleet of the package at its real speed.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from rich.console import Console

from fleet.common.commands import FAILED, read_file
from fleet.demo import demo_catalog
from planner.compiler.bundle import compile_bundle
from planner.compiler.explain import Explanation, explain_plan
from planner.compiler.limits import LimitsInvalid, check_limits, parse_limits
from planner.compiler.pareto import Front, pareto_front
from planner.compiler.plan import Bundle, Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import ProfileSet
from planner.compiler.sensitivity import NotOptimal, Range, sensitivity
from planner.compiler.stability import Stability, stability
from planner.data import load_profiles
from planner.errors import NoActiveProfiles, OptionsInvalid
from planner.importers.problems import WorkflowRejected
from planner.importers.registry import import_workflow
from planner.importers.values import MAX_BYTES
from planner.management import plan_tables
from planner.management.reporting import console_on, problems_of, rejected
from planner.options import KINDS, PlanOptions
from planner.selectors import active_profiles, chosen_problem

ILLUSTRATIVE = "profiles are illustrative, not measured; the fleet is emulated"
NO_RANGES = "no ranges: the plan was accepted with a proven gap, and a better one exists at its own weights"
NO_STABILITY = "no stability: a redraw of the profiles does not keep caps on the whole plan; ask without them"
ALTERNATIVES = 5
"""Alternatives a node in JSON; the planned one always is among them."""
POINTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Everything that `--explain` adds, about pi(0). No `stability` under caps on the whole plan.

    `ranges`: None for a plan that is not the best one; those of large workflows are accepted with a proven gap.
    """

    explanation: Explanation
    ranges: tuple[Range, ...] | None
    fronts: tuple[Front, ...]
    stability: Stability | None

    def to_json(self) -> dict[str, Any]:
        return {
            "explanation": self.explanation.to_json(ALTERNATIVES),
            "sensitivity": None if self.ranges is None else [found.to_json() for found in self.ranges],
            "fronts": [front.to_json(POINTS) for front in self.fronts],
            "stability": self.stability.to_json() if self.stability else None,
        }


class Command(BaseCommand):
    help = "Compiles a workflow for the demo fleet and prints its plans. Needs no database and no server."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", help="a workflow document in any known format; - reads standard input")
        parser.add_argument("--levels", default=None, help="specialization levels, comma-separated (0,1.5,3)")
        parser.add_argument("--bundle", default=None, help=f"kind of bundle: {' or '.join(KINDS)} (levels)")
        parser.add_argument("--effort", type=float, default=None, help="between 0 and 1 (0.5)")
        parser.add_argument("--weights", default=None, help="a preset: quality_leaning, balanced or fast")
        parser.add_argument(
            "--limit",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="max_cost, max_calls, max_tokens, max_makespan_s, min_quality, work_s.MODEL, calls.MODEL, "
            "pin.NODE=MODEL/POLICY/BACKEND, forbid.NODE=...; may be repeated",
        )
        parser.add_argument("--explain", action="store_true", help="prices of alternatives, ranges, fronts, stability")
        parser.add_argument("--json", action="store_true", help="one line of JSON, the last on standard output")

    def handle(self, *args: Any, file: str, **options: Any) -> None:
        console = console_on(stderr=options["json"])
        try:
            chosen = _options(options)
            workflow = import_workflow(read_file(file, MAX_BYTES), filename=Path(file).name).workflow
            profiles = _profiles()
            problem = chosen_problem(workflow, demo_catalog(), profiles, chosen)
            _check(problem)
        except (WorkflowRejected, OptionsInvalid) as error:
            self._fail(options, problems_of(error))
            sys.exit(rejected(file, error))
        except CommandError as error:
            self._fail(options, [{"code": "unreadable", "message": str(error)}])
            raise
        bundle = compile_bundle(problem, chosen.levels, time_limit_s=settings.COMPILE_TIME_LIMIT_S)
        if isinstance(bundle, Infeasible):
            self._no_plan(file, options, bundle)
            sys.exit(FAILED)
        explained = _explained(problem, bundle.variants[0]) if options["explain"] else None
        for table in plan_tables.of_bundle(workflow, bundle):
            console.print(table)
        if explained is not None:
            _print_explained(console, explained)
        if profiles.illustrative:
            console.print(ILLUSTRATIVE, style="dim", markup=False)
        if options["json"]:
            self.stdout.write(json.dumps(_report(problem, bundle, explained), separators=(",", ":")))

    def _no_plan(self, file: str, options: dict[str, Any], found: Infeasible) -> None:
        console = console_on(stderr=True)
        console.print(f"{file} has no plan:", markup=False)
        for reason in found.reasons:
            console.print(f"  {reason}", markup=False)
        conflicts = [asdict(conflict) for conflict in found.conflicts]
        self._fail(options, [{"code": "no_plan", "message": found.text, "conflicts": conflicts}])

    def _fail(self, options: dict[str, Any], errors: list[dict[str, Any]]) -> None:
        """With --json a failure is one line as well."""
        if options["json"]:
            self.stdout.write(json.dumps({"errors": errors}, separators=(",", ":")))


def _options(given: dict[str, Any]) -> PlanOptions:
    """Raises OptionsInvalid."""
    levels = None
    if given["levels"] is not None:
        try:
            levels = [float(level) for level in given["levels"].split(",") if level.strip()]
        except ValueError:
            raise OptionsInvalid({"levels": f"give numbers such as 0,1.5,3, got {given['levels']!r}"}) from None
    try:
        limits = parse_limits(given["limit"])
    except LimitsInvalid as error:
        raise OptionsInvalid({f"limit {name}": text for name, text in error.problems.items()}) from error
    return PlanOptions.of(
        effort=given["effort"],
        weights=given["weights"],
        bundle=given["bundle"],
        levels=levels,
        limits=limits.to_json(),
    )


def _check(problem: PlanningProblem) -> None:
    """Raises OptionsInvalid on a limit that names nothing in the workflow or the fleet."""
    wrong = check_limits(problem)
    if wrong:
        raise OptionsInvalid({f"limit {name}": text for name, text in wrong.items()})


def _profiles() -> ProfileSet:
    """The database's, where there is a migrated one; a fresh clone has none."""
    try:
        return active_profiles()
    except (DatabaseError, NoActiveProfiles):
        return load_profiles()


def _explained(problem: PlanningProblem, plan: Plan) -> Explained:
    """Each question but the first takes up to the time limit of a solve, which many nodes use up."""
    limit_s = settings.COMPILE_TIME_LIMIT_S
    fronts = (pareto_front(problem, axis, plan=plan, time_limit_s=limit_s) for axis in ("makespan_s", "cost"))
    return Explained(
        explanation=explain_plan(problem, plan),
        ranges=_ranges(problem, plan, limit_s),
        fronts=tuple(front for front in fronts if isinstance(front, Front)),
        stability=None if problem.limits.coupled else stability(problem, plan, time_limit_s=limit_s),
    )


def _ranges(problem: PlanningProblem, plan: Plan, limit_s: float) -> tuple[Range, ...] | None:
    try:
        return sensitivity(problem, plan, time_limit_s=limit_s)
    except NotOptimal:
        return None


def _print_explained(console: Console, explained: Explained) -> None:
    for table in plan_tables.of_explanation(explained.explanation, explained.ranges or (), explained.fronts):
        console.print(table)
    if explained.ranges is None:
        console.print(NO_RANGES, markup=False)
    if explained.stability is None:
        console.print(NO_STABILITY, markup=False)
    else:
        console.print(plan_tables.of_stability(explained.stability))
        console.print(explained.stability.advice, markup=False)


def _report(problem: PlanningProblem, bundle: Bundle, explained: Explained | None) -> dict[str, Any]:
    report = {
        "workflow": problem.workflow.name,
        "nodes": len(problem.workflow.nodes),
        "illustrative": problem.profiles.illustrative,
        "emulated": True,
        "kind": bundle.kind,
        "key": bundle.key,
        "limits": problem.limits.to_json(),
        "variants": [{**plan.to_json(), "total_demand": plan.total_demand} for plan in bundle.variants],
    }
    return report if explained is None else report | explained.to_json()
