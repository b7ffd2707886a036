"""Runs whose logs grow as a test says, written and poked the way the worker does it."""

from __future__ import annotations

from typing import Any

from channels.layers import get_channel_layer
from django.contrib.auth.models import User
from django.db import transaction

from runtime.engine.events import EventKind, RunState
from runtime.models import Run, RunEvent
from runtime.pokes import RUNS_GROUP, poke_message
from tests.runtime import rows
from tests.runtime.engine import samples


def start_run(owner: User) -> Run:
    """A run with one event, `run_accepted`."""
    run = rows.accept(samples.snapshot(samples.chain("a", "b")), planned=False)
    Run.objects.filter(pk=run.pk).update(owner=owner, state=RunState.RUNNING)
    return Run.objects.get(pk=run.pk)


def append(run_id: str, *kinds: EventKind, state: RunState | None = None) -> int:
    """The last event's seq. `state`: the run is in this state afterwards."""
    with transaction.atomic():
        run = Run.objects.select_for_update().get(pk=run_id)
        for kind in kinds:
            run.last_seq += 1
            data: dict[str, Any] = {"node": "a", "n": run.last_seq}
            RunEvent.objects.create(run=run, seq=run.last_seq, kind=kind, at=float(run.last_seq), data=data)
        run.state = state or run.state
        run.save()
    return run.last_seq


def end(run_id: str) -> int:
    return append(run_id, EventKind.RUN_SUCCEEDED, state=RunState.SUCCEEDED)


async def poke(run_id: str, seq: int) -> None:
    await get_channel_layer().group_send(RUNS_GROUP, poke_message([(run_id, seq)]))
