"""Objects that belong to one event loop. Channels and Django construct consumers and views: nothing can be handed to
them, so what they share is looked up by the loop they run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

Kept = TypeVar("Kept")

_kept: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Any]] = WeakKeyDictionary()


def of_loop(key: Hashable, make: Callable[[], Kept]) -> Kept:
    """The running loop's object under `key`, made at first use."""
    kept = _kept.setdefault(asyncio.get_running_loop(), {})
    if key not in kept:
        kept[key] = make()
    found: Kept = kept[key]
    return found


def forget(key: Hashable) -> Any | None:
    """Takes the running loop's object under `key` away and gives it back; None when there is none."""
    return _kept.get(asyncio.get_running_loop(), {}).pop(key, None)
