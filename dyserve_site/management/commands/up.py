"""`manage.py up`: everything on one machine."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from dyserve_site.supervisor.main import UpFailed, up


class Command(BaseCommand):
    help = "Starts Valkey, the emulated fleet, the monitor, the workers and the web server; Ctrl-C stops them all."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--quiet", action="store_true", help="keep the processes' lines in the log file alone")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            code = up(quiet=options["quiet"])
        except UpFailed as error:
            self.stderr.write(f"up: {error}")
            code = 1
        sys.exit(code)
