"""Words and numbers that several of the runtime's pages write."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fleet.common.presentation import seconds

MAX_SHOWN = 20_000
"""Characters of one text that a page shows; the rest is a download away."""

REASONS = {
    "congested": "its class is congested",
    "relieved": "an earlier variant's class is free again",
    "within_limits": "loads are within limits",
    "not_relieved": "the earlier variants' classes are not free yet",
    "no_candidate": "no variant passes",
    "no_effect": "it would change nothing any more",
    "bundle_pending": "the other variants are not ready yet",
    "unknown_load": "a load is unknown",
    "dwell": "the last switch was too recent",
}
CANDIDATE_REASONS = {
    "accepted": "passes",
    "same_class": "same class",
    "unknown_load": "load unknown",
    "overloaded": "overloaded",
    "not_enough_relief": "too little relief",
    "quality_drop": "quality drop",
    "not_low": "not free",
    "no_effect": "no effect",
    "dwell": "dwell time",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A person's or a model's text, cut to what a page can hold."""

    shown: str
    length: int

    @property
    def cut(self) -> bool:
        return self.length > len(self.shown)


def text_of(value: Any) -> Text:
    """Text as it is, anything else as indented JSON."""
    whole = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return Text(shown=whole[:MAX_SHOWN], length=len(whole))


def after(at: float, origin: float) -> str:
    """`+12.3 s`: a moment as the time since a run was accepted."""
    return "+" + seconds(max(0.0, at - origin))


def moment(at: float | None) -> datetime | None:
    """Epoch seconds as a time that templates can format."""
    return None if at is None else datetime.fromtimestamp(at, UTC)


def reason_words(reason: str) -> str:
    """A decision's stable code as a person reads it; a code of a later version stands for itself."""
    return REASONS.get(reason, reason.replace("_", " "))
