"""`manage.py prepare`: what `up` does before the processes start; stdout ends with the first login as JSON."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from dyserve_site.supervisor import prepare


class Command(BaseCommand):
    help = "Migrates the database and seeds the demo: profiles, emulated fleet, first login, workflows."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--base-port", type=int, required=True, help="first port of the emulated fleet")

    def handle(self, *args: Any, **options: Any) -> None:
        prepare.migrate()
        sys.stdout.write(prepare.seed(options["base_port"]).to_json() + "\n")
