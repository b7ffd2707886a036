"""Digests of values: the same content gives the same digest on every machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any


def content_digest(value: Any) -> str:
    """16 hex digits of SHA-256 over `value` as canonical JSON (dataclasses, mappings, sets and sequences nest).

    1 and 1.0 count as equal, as they do in Python; a number that is not finite raises ValueError.
    """
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_AS_THEY_ARE = frozenset({str, int, bool, type(None)})


def _plain(value: Any) -> Any:
    """Every request makes some digests, so the frequent types come first."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is float:
        return int(value) if value.is_integer() else value
    if kind is tuple or kind is list:
        return [item if type(item) in _AS_THEY_ARE else _plain(item) for item in value]
    names = _FIELDS.get(kind) or _compared_fields(kind)
    if names is not None:
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(_plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


_FIELDS: dict[type, tuple[str, ...]] = {}


def _compared_fields(kind: type) -> tuple[str, ...] | None:
    """The names that a dataclass is compared by, looked up once per class; None for any other type."""
    if not dataclasses.is_dataclass(kind):
        return None
    found = _FIELDS[kind] = tuple(field.name for field in dataclasses.fields(kind) if field.compare)
    return found
