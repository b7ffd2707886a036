"""`manage.py doctor`: exit 0 when nothing is wrong, 1 with the remedies otherwise."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand
from rich.console import Console
from rich.table import Table

from dyserve_site.doctor import Finding, examine

_MARKS = {"ok": "[green]✓ ok[/]", "note": "[yellow]• note[/]", "failed": "[red]✗ failed[/]"}


class Command(BaseCommand):
    help = "Names what is missing or wrong on this machine, and the remedy."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one line of JSON on stdout")

    def handle(self, *args: Any, **options: Any) -> None:
        findings = examine()
        failed = sum(finding.status == "failed" for finding in findings)
        if options["json"]:
            line = {"ok": not failed, "failed": failed, "findings": [asdict(finding) for finding in findings]}
            sys.stdout.write(json.dumps(line) + "\n")
        else:
            Console().print(_table(findings))
        sys.exit(1 if failed else 0)


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("check", "", "found", "remedy"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        table.add_row(finding.name, _MARKS[finding.status], finding.detail, finding.remedy)
    return table
