"""`manage.py bench NAME`: measures this machine; needs no database, server or Redis."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from django.core.management.base import BaseCommand
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from planner.benchmarks.compile import SOLVERS, Measured, measure, report
from planner.benchmarks.instances import INSTANCES, instances

FAILED = 1


class Command(BaseCommand):
    help = "Benchmarks. compile: the planner's own solver against CBC, on the same instances in the same run."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", choices=["compile"])
        parser.add_argument("--instances", type=_count, default=INSTANCES, help=f"seeded workflows ({INSTANCES})")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--json", action="store_true", help="one line of JSON, the last on standard output")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        """Fails when an objective differs from CBC's or a plan is not proved optimal."""
        errors = Console(stderr=True)
        measured: list[tuple[Measured, Measured]] = []
        for instance in track(instances(options["seed"], options["instances"]), "compiling", console=errors):
            own, cbc = (measure(instance, solver) for solver in SOLVERS)
            measured.append((own, cbc))
        found = report(measured)
        (errors if options["json"] else Console()).print(_table(found))
        if options["json"]:
            self.stdout.write(json.dumps(found, separators=(",", ":")))
        if found["mismatches"] or found["unproved"]:
            sys.exit(FAILED)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("give at least 1 instance")
    return count


def _table(found: dict[str, Any]) -> Table:
    title = f"{found['instances']} workflows, 24 implementations a node (illustrative profiles, emulated fleet)"
    caption = (
        f"ms; CBC / own at p95: {found['speedup_p95']:.1f} initial, {found['variant_speedup_p95']:.1f} further level; "
        f"{found['mismatches']} mismatches, {found['unproved']} unproved"
    )
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD)
    for column in ("", "p50", "p95", "max"):
        table.add_column(column, justify="right" if column else "left")
    names = {
        "initial_ms": "initial",
        "warm_ms": "initial, menus known",
        "variant_ms": "further level",
        "cbc_ms": "CBC initial",
        "cbc_variant_ms": "CBC further level",
    }
    for key, title in names.items():
        table.add_row(title, *(f"{found[key][q]:.2f}" for q in ("p50", "p95", "max")))
    return table
