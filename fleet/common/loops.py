"""What code on an event loop shares. Channels and Django construct consumers and views: nothing can be handed to them,
so objects that belong to one loop are looked up by the loop they run on."""

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


def let_cancellation_through() -> None:
    """Raises CancelledError in a task that is being cancelled. For tasks that repeat something: a library may swallow
    the cancellation (redis-py takes one that meets its own time limit for the limit), or replace it by the error of
    its clean-up, and a task that then goes on could never be ended."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
