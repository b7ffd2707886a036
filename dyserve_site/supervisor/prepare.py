"""What `up` does before the processes start: migrate, seed the demo, write the emulator's configuration.

Everything here may run again: a second `up` continues with the same data and changes nothing of the user's.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.core.management import call_command

from dyserve_site import tokens, wiring
from dyserve_site.supervisor.credentials import Credentials
from fleet.common.scopes import ALL_SCOPES
from fleet.models import Fleet
from fleet.services import seed_demo_fleet
from planner.data import demo_workflow_sources
from planner.services import ensure_profiles, store_workflow
from runtime.models import ControllerSettings

ADMIN = "admin"


def migrate() -> None:
    call_command("migrate", verbosity=0, interactive=False)


def seed(base_port: int) -> Credentials:
    """Profiles, demo fleet, first login, demo workflows; returns the login."""
    ensure_profiles()
    fleet = seed_demo_fleet(base_port, settings.EMULATOR_TIME_SCALE)
    ControllerSettings.objects.get_or_create(fleet=fleet)
    owner, credentials = _first_login(Path(settings.HOME) / "admin.json")
    for name, text in demo_workflow_sources().items():
        store_workflow(owner=owner, data=text.encode(), filename=name)
    _write_private(Path(settings.HOME) / "emulator.json", emulator_json(fleet))
    return credentials


def emulator_json(fleet: Fleet) -> str:
    return json.dumps(
        wiring.emulator_config(fleet, time_scale=settings.EMULATOR_TIME_SCALE, seed=settings.EMULATOR_SEED), indent=1
    )


def _first_login(path: Path) -> tuple[AbstractUser, Credentials]:
    """A random password on the first start, kept in a 0600 file so that the next start can print it again."""
    users = get_user_model()
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    owner = users.objects.filter(username=ADMIN).first()
    if owner is None:
        password = secrets.token_urlsafe(15)
        owner = users.objects.create_superuser(ADMIN, "admin@localhost", password)
        _, plain = tokens.create_token(owner, "first start", ALL_SCOPES)
        known = {"username": ADMIN, "password": password, "token": plain}
        _write_private(path, json.dumps(known))
    if known is None:
        return owner, Credentials(username=ADMIN, password="", token="", current=False)
    current = owner.check_password(known["password"])
    return owner, Credentials(**known, current=current)


def _write_private(path: Path, text: str) -> None:
    """Replaces the file in one step; only its owner can read it."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    scratch.replace(path)
