"""Fills the home that DYSERVE_HOME names: tables, the demo fleet, the shipped profiles, one user. A process of its own.

Usage: python -m tests.browser.seed FIRST_REPLICA_PORT
"""

from __future__ import annotations

import os
import sys

USER = "ann"
PASSWORD = "a password for the browser"
TIME_SCALE = 10.0


def main(base_port: int) -> None:
    import django
    from django.conf import settings
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    settings.STATIC_ROOT.mkdir(exist_ok=True)

    from django.contrib.auth.models import User

    from fleet.services import seed_demo_fleet
    from planner.services import ensure_profiles

    User.objects.create_superuser(USER, password=PASSWORD)
    seed_demo_fleet(base_port, TIME_SCALE)
    ensure_profiles()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dyserve_site.settings")
    main(int(sys.argv[1]))
