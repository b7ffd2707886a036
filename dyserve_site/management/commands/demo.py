"""`manage.py demo`: a table for a person; the last line on stdout is one JSON object."""

from __future__ import annotations

import json
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dyserve_site.client import Client, ClientError, Run
from dyserve_site.demo import DemoFailed, Summary, burst, instance, summarise

_COLUMNS = ("workflow", "runs", "done", "p50 s", "p95 s", "switches", "calls", "tokens")


class Command(BaseCommand):
    help = "The main job without a browser, on an emulated fleet: imports workflows, sends a burst, prints a table."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--runs", type=int, default=100, help="runs in the burst (default 100)")
        parser.add_argument("--timeout", type=float, default=90.0, help="seconds for the burst to end (default 90)")
        parser.add_argument("--json", action="store_true", help="the JSON line alone")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["runs"] < 1:
            self.stderr.write("demo: --runs must be at least 1")
            sys.exit(2)
        console = Console(stderr=True)
        # Told to end, it leaves the way a failure does: through the clean-up that stops its instance.
        before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
        try:
            runs = self._run(console, options["runs"], options["timeout"])
        except (DemoFailed, ClientError) as error:
            self.stderr.write(f"demo: {error}")
            sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
            sys.exit(1)
        finally:
            signal.signal(signal.SIGTERM, before)
        summaries = summarise(runs)
        if not options["json"]:
            Console().print(_table(summaries))
        total = asdict(summaries[-1])
        names = ("runs", "done", "switches", "p50_s", "p95_s", "calls", "tokens")
        sys.stdout.write(json.dumps({name: total[name] for name in names}) + "\n")
        sys.exit(0 if summaries[-1].done == len(runs) else 1)

    @staticmethod
    def _run(console: Console, runs: int, timeout_s: float) -> list[Run]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as bar:
            starting = bar.add_task("starting dyserve", total=None)
            with instance(Path(settings.BASE_DIR) / "manage.py") as found, Client(found.url, found.token) as client:
                bar.update(starting, description=f"ready in {found.start_s:.1f} s", total=1, completed=1)
                task = bar.add_task(f"{runs} runs at once", total=runs)
                return burst(
                    client,
                    runs,
                    timeout_s=timeout_s,
                    progress=lambda done, _total: bar.update(task, completed=done),
                )


def _table(summaries: Sequence[Summary]) -> Table:
    caption = f"emulated H200s, time x {settings.EMULATOR_TIME_SCALE:g}; illustrative profiles; wall seconds"
    table = Table(caption=caption, caption_justify="left")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "workflow" else "right")
    for row in summaries:
        if row is summaries[-1]:
            table.add_section()
        seconds = ["-" if value is None else f"{value:.1f}" for value in (row.p50_s, row.p95_s)]
        counts = [f"{value:,}" for value in (row.switches, row.calls, row.tokens)]
        table.add_row(row.workflow, str(row.runs), str(row.done), *seconds, *counts)
    return table
