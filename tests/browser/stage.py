"""A process on the site's database that makes runs go as a test says, and pokes the site as a worker does.

Reads one JSON command a line and answers each with one JSON line: `{"run": id or null, "steps": [[name, ...], ...]}`.
Steps are StagedRun's methods, with a dict as the last element for keyword arguments, and the functions below.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.browser.seed import USER


def main() -> None:
    import django

    django.setup()

    from asgiref.sync import async_to_sync
    from channels.layers import get_channel_layer

    from runtime.models import Run
    from runtime.pokes import RUNS_GROUP, poke_message

    runs: dict[str, Any] = {}
    say({"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        run = runs.get(command.get("run") or "")
        for step in command["steps"]:
            run = perform(run, step)
            if run is None:
                continue
            runs[run.run_id] = run
            seq = Run.objects.values_list("last_seq", flat=True).get(pk=run.run_id)
            async_to_sync(get_channel_layer().group_send)(RUNS_GROUP, poke_message([(run.run_id, seq)]))
        say({"run": run.run_id if run is not None else None})


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def perform(run: Any, step: list[Any]) -> Any:
    name, *given = step
    named = given.pop() if given and isinstance(given[-1], dict) else {}
    steps: dict[str, Callable[..., Any]] = {
        "accept": accept,
        "wide": wide,
        "flood": flood,
        "pressure": pressure,
        "quiet": quiet,
    }
    return steps[name](run, *given, **named) if name in steps else getattr(run, name)(*given, **named)


def accept(_: Any, name: str = "Walk-through", **titles: str) -> Any:
    """A new run of the walk-through; titles by node."""
    from django.contrib.auth.models import User

    from fleet.selectors import default_fleet
    from tests.runtime.pages.staged import StagedRun, flow

    return StagedRun.accept(User.objects.get(username=USER), default_fleet(), flow(name, **titles))


def wide(_: Any, nodes: int) -> Any:
    """A run of a workflow with many nodes, started."""
    from django.contrib.auth.models import User

    from fleet.selectors import default_fleet
    from tests.runtime.engine.samples import bundle, impl, plan
    from tests.runtime.pages.staged import StagedRun, chain_flow

    value = chain_flow(nodes)
    given = bundle(plan({node.id: impl() for node in value.llm_nodes}))
    return StagedRun.accept(User.objects.get(username=USER), default_fleet(), value, given).start()


def flood(run: Any, events: int) -> Any:
    """So many more events of the run's log at once."""
    from runtime.models import Run, RunEvent

    row = run.row
    RunEvent.objects.bulk_create(
        RunEvent(
            run_id=run.run_id,
            seq=row.last_seq + index,
            kind="switch_refused",
            at=run.at,
            data={"decision": row.last_seq + index, "active_variant": 0, "reason": "dwell", "text": f"Kept {index}."},
        )
        for index in range(1, events + 1)
    )
    Run.objects.filter(pk=run.run_id).update(last_seq=row.last_seq + events)
    return run


def pressure(run: Any, load: float, state: str = "ok") -> Any:
    """Publishes the demo fleet's pressure: every replica of 27B holds `load`, the others nothing."""
    from fleet.models import Replica
    from fleet.redis import PRESSURE_KEY, connection
    from fleet.serving.pressure import ReplicaSignals, fuse

    now = time.time()
    replicas = Replica.objects.select_related("backend__model_class", "backend__fleet")
    signals = [
        ReplicaSignals(
            replica=row.name,
            backend=row.backend.name,
            model=row.backend.model_class.name,
            capacity=32,
            running=round(32 * load) if "27b" in row.name else 0,
            waiting=0,
            kv_usage=0.25,
            scraped_at=now if state == "ok" else now - 60,
            progressed_at=now,
        )
        for row in replicas
    ]
    fleet = replicas[0].backend.fleet.name
    connection().set(PRESSURE_KEY + fleet, json.dumps(fuse(signals, {}, now).to_json()))
    return run


def quiet(run: Any) -> Any:
    """Nobody publishes pressure any more."""
    from fleet.redis import PRESSURE_KEY, connection
    from fleet.selectors import default_fleet

    connection().delete(PRESSURE_KEY + default_fleet().name)
    return run


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dyserve_site.settings")
    main()
