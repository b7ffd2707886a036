"""JSON pointers (RFC 6901) from the locations that validators report."""

from __future__ import annotations

from collections.abc import Iterable


def json_pointer(parts: Iterable[str | int]) -> str:
    """`("nodes", 3, "a/b")` is `/nodes/3/a~1b`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
