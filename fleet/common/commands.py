"""What the management commands share: exit statuses, and reading a file that a person names."""

from __future__ import annotations

import sys
from pathlib import Path

from django.core.management.base import CommandError

FAILED = 1
BAD_INPUT = 2


def read_file(name: str, most: int) -> bytes:
    """The file's bytes, of standard input for `-`: one more than `most` at the most, by which too large ones show.

    Raises CommandError.
    """
    try:
        if name == "-":
            return sys.stdin.buffer.read(most + 1)
        with Path(name).open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}", returncode=BAD_INPUT) from error
