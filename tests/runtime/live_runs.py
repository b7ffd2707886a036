"""Runs whose logs grow as a test says, written and poked the way the worker does it."""

from __future__ import annotations

from typing import Any

from channels.layers import get_channel_layer
from django.contrib.auth.models import User
from django.db import transaction

from fleet.models import Fleet
from planner.services import inline_version
from runtime.engine.events import EventKind, RunState
from runtime.models import Run, RunEvent
from runtime.pokes import RUNS_GROUP, poke_message

DOCUMENT = b"dyserve: 1\nname: One step\nnodes:\n  - {id: a, kind: llm, skill: writing, prompt: Write.}\n"


def start_run(owner: User) -> Run:
    """A running run with one event, `run_accepted`."""
    fleet, _ = Fleet.objects.get_or_create(is_default=True, defaults={"name": "test"})
    run = Run.objects.create(
        owner=owner,
        fleet=fleet,
        version=inline_version(owner=owner, data=DOCUMENT),
        state=RunState.RUNNING,
        nodes_total=1,
        last_seq=1,
    )
    RunEvent.objects.create(run=run, seq=1, kind=EventKind.RUN_ACCEPTED, at=1.0, data={"workflow": "One step"})
    return run


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
