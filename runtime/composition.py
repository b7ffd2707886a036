"""How the apps reach the composition root: one publisher, worker and reaper per process, made on first use.

`settings.DYSERVE_WIRING` names the module that constructs them; nothing below it knows an adapter.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from django.conf import settings

if TYPE_CHECKING:
    from runtime.publisher import Publisher
    from runtime.reaper import Reaper
    from runtime.worker import RunsWorker


class Wiring(Protocol):
    """The composition root."""

    def publisher(self) -> Publisher: ...

    def worker(self) -> RunsWorker: ...

    def reaper(self) -> Reaper: ...


_made: dict[str, Any] = {}
_making = threading.RLock()


def wiring() -> Wiring:
    return cast("Wiring", import_module(settings.DYSERVE_WIRING))


def publisher() -> Publisher:
    return cast("Publisher", _one("publisher"))


def worker() -> RunsWorker:
    return cast("RunsWorker", _one("worker"))


def reaper() -> Reaper:
    return cast("Reaper", _one("reaper"))


def started_worker() -> RunsWorker | None:
    """The worker of a process that has executed a run, else None; takes no lock, for signal handlers."""
    return cast("RunsWorker | None", _made.get("worker"))


def close(timeout_s: float | None = None) -> None:
    """Stop everything that this process has made; the next use makes it anew. What is still queued for the broker is
    sent, for at most `timeout_s`; the reaper finds what was not."""
    with _making:
        made = dict(_made)
        _made.clear()
    if "worker" in made:
        made["worker"].drain()
        made["worker"].stop()
    if "publisher" in made:
        made["publisher"].stop(timeout_s)


def _one(name: str) -> object:
    with _making:
        if name not in _made:
            _made[name] = getattr(wiring(), name)()
        return _made[name]
