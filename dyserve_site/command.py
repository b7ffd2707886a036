"""Entry point of `manage.py X` and `dyserve X`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dyserve_site.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
