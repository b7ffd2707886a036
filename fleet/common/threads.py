"""Blocking reads from async code."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from channels.db import database_sync_to_async

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`read` in a thread of the loop's pool, on a database connection that is closed afterwards.

    The thread belongs to no request, so that tasks which outlive the request that started them may use it.
    """
    return cast(T, await database_sync_to_async(read, thread_sensitive=False)(*args, **kwargs))
