"""The name that was probably meant: a suggestion for a message, never a decision (ours)."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

MAX_COMPARED = 3_000
"""Characters of one comparison, names times length: a hostile document has hundreds of wrong names among hundreds."""


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name most like `name`; None when none is like it, or there are too many to compare."""
    if len(name) * len(known) > MAX_COMPARED:
        return None
    close = get_close_matches(name, known, n=1)
    return close[0] if close else None
