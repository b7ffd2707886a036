"""`manage.py emulate`: serves the emulated replicas of the configuration in the home folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from fleet.emulator.__main__ import main


class Command(BaseCommand):
    help = "Serves the emulated replicas, one port each, until it is told to stop."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        default = Path(settings.HOME) / "emulator.json"
        parser.add_argument("config", nargs="?", type=Path, default=default, help=f"JSON file (default: {default})")

    def handle(self, *args: Any, config: Path, **options: Any) -> None:
        status = main([str(config)])
        if status:
            sys.exit(status)
