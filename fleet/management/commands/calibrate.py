"""`manage.py calibrate BACKEND`: measures a backend's rates on one replica, and stores them as a new version."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fleet.calibration import Calibrated, calibrate
from fleet.common.commands import BAD_INPUT
from fleet.errors import CalibrationRefused
from fleet.models import Backend
from fleet.serving.calibrate import CalibrationFailed
from fleet.serving.errors import ServingError


class Command(BaseCommand):
    help = (
        "Measures prefill and decode rates of a backend at several concurrencies and stores them as a new version "
        "beside the one in use. Drain the replica first: other requests distort what is measured."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("backend", help="name of the backend")
        parser.add_argument("--replica", default=None, help="the replica to measure (the first enabled one)")
        parser.add_argument("--at", type=int, default=None, help="concurrency at which the rates shall hold (half)")
        parser.add_argument("--most", type=int, default=None, help="largest concurrency to measure (what it admits)")
        parser.add_argument("--repeats", type=int, default=2, help="groups that count, after a warm-up (2)")
        parser.add_argument("--tokens", type=int, default=128, help="output tokens of a decode call (128)")
        parser.add_argument(
            "--activate", action="store_true", help="plan with the new rates from now on, if the fit is good"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        backend = Backend.objects.select_related("model_class").filter(name=options["backend"]).first()
        if backend is None:
            known = ", ".join(Backend.objects.values_list("name", flat=True)) or "none yet"
            raise CommandError(f"no backend {options['backend']}: there is {known}", returncode=BAD_INPUT)
        for name in ("at", "most", "repeats", "tokens"):
            if options[name] is not None and options[name] < 1:
                raise CommandError(f"--{name}: must be at least 1", returncode=BAD_INPUT)
        try:
            found = self._calibrated(backend, options)
        except CalibrationRefused as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from error
        except (CalibrationFailed, ServingError) as error:
            raise CommandError(f"{backend.name} was not calibrated, nothing was stored: {error}") from error
        if options["json"]:
            self.stdout.write(json.dumps(found.to_json()))
        else:
            self._print(found)

    def _calibrated(self, backend: Backend, options: dict[str, Any]) -> Calibrated:
        columns = TextColumn("[progress.description]{task.description}"), BarColumn(), MofNCompleteColumn()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(f"measuring {backend.name}", total=None)
            return calibrate(
                backend,
                replica=options["replica"],
                at=options["at"],
                most=options["most"],
                repeats=options["repeats"],
                output_tokens=options["tokens"],
                activate=options["activate"],
                on_progress=lambda done, of: progress.update(task, completed=done, total=of),
            )

    def _print(self, found: Calibrated) -> None:
        """For people: one line a concurrency, then the rates, what changed, and what is to be noted."""
        rates, backend = found.calibration.rates, found.stored.backend
        self.stdout.write(f"{backend.name} on {found.replica}{', emulated' if backend.emulated else ''}")
        self.stdout.write(f"{'concurrency':>12} {'calls':>6} {'ms per token':>13} {'fitted':>8}")
        for level in found.calibration.levels:
            per_token, fitted = 1000 * level.token_s, 1000 * level.fitted_s
            self.stdout.write(f"{level.concurrency:>12} {level.calls:>6} {per_token:>13.3f} {fitted:>8.3f}")
        self.stdout.write(
            f"decode {rates.decode_tokens_per_s:.4g} tokens/s at concurrency {rates.concurrency}; prefill "
            f"{1000 * rates.prefill_base_s:.3g} ms + {1e6 * rates.prefill_per_token_s:.3g} us a token; capacity "
            f"{rates.capacity}; the lines miss by {found.calibration.prefill_residual:.1%} (prefill) and "
            f"{found.calibration.step_residual:.1%} (decode)"
        )
        for name, factor in found.changes.items():
            drifted = "  drifted" if name in found.drifted else ""
            self.stdout.write(f"  {name}: {factor:.3f} times the rates in use{drifted}")
        for note in found.calibration.notes:
            self.stdout.write(f"  note: {note}")
        state = "in use from now on" if found.stored.active else "not in use: make it active in the admin"
        self.stdout.write(f"version {found.stored.version}, {state}")
