"""How pages write numbers and name colours: one place, so that a class has one colour and a second one look."""

from __future__ import annotations

import math
import re
import unicodedata
import zlib

DASH = "–"
_SIZE = re.compile(r"(?:^|[-_.])(\d+(?:\.\d+)?)b(?:$|[-_.])")
_NAMED_SIZES = {"4": "4b", "9": "9b", "27": "27b"}
_OTHER_TOKENS = ("other-1", "other-2", "other-3", "other-4")


def model_size(model: str) -> str:
    """`27B` of `qwen3.5-27b`; the name itself where it states no size."""
    found = _SIZE.search(model.lower())
    return f"{found.group(1)}B" if found else model


def model_token(model: str | None) -> str:
    """The suffix of a model class's colour token: `--model-<token>` in app.css, `.model-<token>` as a class.

    The shipped sizes have their own; any other class keeps one of four by its name.
    """
    if not model:
        return "none"
    found = _SIZE.search(model.lower())
    if found and found.group(1) in _NAMED_SIZES:
        return _NAMED_SIZES[found.group(1)]
    return _OTHER_TOKENS[zlib.crc32(model.encode()) % len(_OTHER_TOKENS)]


def seconds(value: float | None) -> str:
    """`340 ms`, `12.3 s`, `2 min 05 s`, `3 h 10 min`; a dash for None and for what is not finite."""
    if value is None or not math.isfinite(value):
        return DASH
    sign, value = ("−" if value < 0 else ""), abs(value)
    if value < 0.0005:
        return "0 s"
    if value < 0.9995:
        return f"{sign}{value * 1000:.0f} ms"
    if value < 99.95:
        return f"{sign}{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{sign}{whole // 60} min {whole % 60:02d} s"
    return f"{sign}{whole // 3600} h {whole % 3600 // 60:02d} min"


def compact(value: float | None) -> str:
    """Counts and relative prices in at most four characters and a suffix: `950`, `12.4k`, `3.1M`."""
    if value is None or not math.isfinite(value):
        return DASH
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return _trimmed(value / (limit if suffix != "k" else 1e3)) + suffix
    return _trimmed(value)


def _trimmed(value: float) -> str:
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−")


def quality(value: float | None) -> str:
    """A rate in [0, 1] with three digits; what they cannot show is said."""
    if value is None or not math.isfinite(value):
        return DASH
    return "< 0.001" if 0 < value < 0.0005 else f"{value:.3f}"


def percent(value: float | None) -> str:
    """A share in [0, 1] as whole per cent; `< 1%` is said where rounding would hide it."""
    if value is None or not math.isfinite(value):
        return DASH
    return "< 1%" if 0 < value < 0.005 else f"{value:.0%}"


def signed(text: str, value: float) -> str:
    """`text` of an absolute value, with the sign of `value` in front (a true minus sign)."""
    return ("+" if value > 0 else "−" if value < 0 else "±") + text


def shortened(text: str, columns: int) -> str:
    """`text` cut to a display width; wide East Asian characters count twice."""
    used = 0
    for position, character in enumerate(text):
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > columns:
            return text[: max(0, position - 1)].rstrip() + "…"
    return text
