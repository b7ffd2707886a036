"""`manage.py fleet_import FILE`: model classes, backends and replicas from a YAML file, and rates where it asks for."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand

from fleet.calibration import calibrate
from fleet.common.commands import BAD_INPUT, FAILED, read_file
from fleet.errors import CalibrationRefused
from fleet.fleet_file import MAX_BYTES, FleetFileInvalid, parse_fleet
from fleet.fleet_import import Imported, import_fleet
from fleet.models import Backend
from fleet.serving.calibrate import CalibrationFailed
from fleet.serving.errors import ServingError


class Command(BaseCommand):
    help = (
        "Adds and changes what a fleet file describes, and removes nothing. Backends that say `rates: calibrate` are "
        "measured, unless their rates were measured before."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", help="a YAML file; - reads standard input")
        parser.add_argument("--no-calibrate", action="store_true", help="measure nothing")

    def handle(self, *args: Any, file: str, **options: Any) -> None:
        try:
            imported = import_fleet(parse_fleet(read_file(file, MAX_BYTES)))
        except FleetFileInvalid as error:
            self.stderr.write(f"{file} describes no fleet:")
            for place, text in error.problems.items():
                self.stderr.write(f"  {place or '/'}: {text}")
            sys.exit(BAD_INPUT)
        self._tell(imported)
        left = [backend for backend in imported.to_calibrate if options["no_calibrate"] or not self._measured(backend)]
        for backend in left:
            self.stdout.write(f"{backend.name} has no measured rates: manage.py calibrate {backend.name} --activate")
        if left and not options["no_calibrate"]:
            sys.exit(FAILED)

    def _tell(self, imported: Imported) -> None:
        for line in imported.done:
            self.stdout.write(line)
        if not imported.done:
            self.stdout.write(f"the fleet {imported.fleet.name} is as the file says already")

    def _measured(self, backend: Backend) -> bool:
        self.stdout.write(f"measuring {backend.name} ...")
        try:
            found = calibrate(backend, activate=True)
        except (CalibrationRefused, CalibrationFailed, ServingError) as error:
            self.stderr.write(f"{backend.name} was not calibrated: {error}")
            return False
        rates = found.calibration.rates
        self.stdout.write(
            f"{backend.name}: {rates.decode_tokens_per_s:.4g} tokens/s at concurrency {rates.concurrency}, "
            f"capacity {rates.capacity} (rates version {found.stored.version})"
        )
        for note in found.calibration.notes:
            self.stdout.write(f"  note: {note}")
        return found.stored.active
