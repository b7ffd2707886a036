"""How many examples a property test looks at: few with fixed seeds in `make test`, many at random in `make soak`."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

SOAK = bool(os.environ.get("DYSERVE_SOAK"))
SOAK_FACTOR = 50


def sampled(examples: int, **others: Any) -> settings:
    """Settings for a test that is too slow for hypothesis' own number of examples."""
    return settings(max_examples=examples * (SOAK_FACTOR if SOAK else 1), **others)
