"""`manage.py bench NAME`: measures this machine; needs no database, server or Redis."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from planner.benchmarks import cost_page
from planner.benchmarks.compile import SIZES, SOLVERS, event_loop_stall_ms, measure, measure_size, report
from planner.benchmarks.instances import INSTANCES, instances, large_instances, real_instances

FAILED = 1
PER_SIZE = 20
REAL = Path(settings.BASE_DIR).parent / "shared" / "data" / "workflows"


class Command(BaseCommand):
    help = "Benchmarks. compile: the planner's own solver against CBC and HiGHS, on the same instances in the same run."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", choices=["compile"])
        parser.add_argument("--instances", type=_count, default=INSTANCES, help=f"seeded workflows ({INSTANCES})")
        parser.add_argument("--per-size", type=int, default=PER_SIZE, help=f"problems of every size ({PER_SIZE})")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--workflows", type=Path, default=REAL, help="folder of real workflow files, if present")
        parser.add_argument("--page", type=Path, help="writes a page with table and plot (development packages)")
        parser.add_argument("--json", action="store_true", help="one line of JSON, the last on standard output")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        """Fails when an objective differs from a reference solver's or a small plan is not proved optimal."""
        errors = Console(stderr=True)
        small = [*instances(options["seed"], options["instances"]), *real_instances(options["workflows"])]
        measured = [
            [measure(instance, solver) for solver in SOLVERS] for instance in track(small, "compiling", console=errors)
        ]
        found = report(measured) | {"event_loop_stall_ms": event_loop_stall_ms(small), "by_size": []}
        found["machine"] = f"Python {platform.python_version()}, {os.cpu_count()} cores"
        for size in track(SIZES if options["per_size"] > 0 else (), "sizes", console=errors):
            large = large_instances(options["seed"], options["per_size"], size.nodes, size.backends, size.width)
            found["by_size"].append(measure_size(size, large))
        console = errors if options["json"] else Console()
        console.print(_table(found))
        console.print(_sizes(found["by_size"]))
        if options["page"]:
            cost_page.write_page(found, options["page"])
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
        "warm_ms": "menus known",
        "variant_ms": "further level",
        "cold_ms": "first of a process",
        "cbc_ms": "CBC initial",
        "cbc_variant_ms": "CBC further level",
        "highs_ms": "HiGHS initial",
        "highs_variant_ms": "HiGHS further level",
        "event_loop_stall_ms": "event loop beside it, late",
    }
    for key, title in names.items():
        table.add_row(title, *(f"{found[key][q]:.2f}" for q in ("p50", "p95", "max")))
    return table


def _sizes(rows: list[dict[str, Any]]) -> Table:
    caption = "ms from the workflow to the plan, nothing known before; at most 2 s each; gap: proven"
    table = Table(title="by size", caption=caption, box=box.SIMPLE_HEAD)
    for column in ("nodes", "implementations", "width", "problems", "p50", "p95", "max", "largest gap", "unproved"):
        table.add_column(column, justify="right")
    for row in rows:
        times = (f"{row['initial_ms'][q]:.1f}" for q in ("p50", "p95", "max"))
        shape = (str(row["nodes"]), str(row["implementations"]), str(row["width"] or "-"), str(row["instances"]))
        table.add_row(*shape, *times, f"{row['gap']['max']:.2%}", str(row["unproved"]))
    return table
