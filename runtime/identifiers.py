"""Run ids sort by time: 48 bits of milliseconds and 80 random bits in Crockford's base 32 (the layout of a ULID)."""

from __future__ import annotations

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_run_id() -> str:
    value = (int(time.time() * 1000) << 80) | secrets.randbits(80)
    return "run_" + "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))
