"""Hard limits: `declared` says what is asked, `patterns` and `caps` how it binds, `conflicts` why none fits (ours)."""

from __future__ import annotations

from planner.compiler.limits.declared import (
    EVERY_NODE,
    NO_LIMITS,
    Limits,
    LimitsInvalid,
    check_limits,
    parse_limits,
)

__all__ = ["EVERY_NODE", "NO_LIMITS", "Limits", "LimitsInvalid", "check_limits", "parse_limits"]
