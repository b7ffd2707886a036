"""What the overview page shows of a user's runs and of the fleet, as one JSON document."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db.models import F

from fleet.common.presentation import model_token
from fleet.consumers import pressure_message
from runtime.listing import listed, workflow_name
from runtime.models import LedgerEntry, Run
from runtime.selectors import runs_for
from runtime.stats import WINDOW_S, recent_stats

RECENT_RUNS = 20
RECENT_SWITCHES = 10


def overview(user: User, now: float) -> dict[str, Any]:
    """`stats` are of runs that are active now and of those that ended within `window_s`; times in epoch seconds."""
    runs = runs_for(user)
    pressure = pressure_message(now)
    return {
        "type": "overview",
        "server_time": now,
        "window_s": WINDOW_S,
        "stats": recent_stats(user, now).to_json(),
        "runs": [run_row(run) for run in listed(runs).order_by("-pk")[:RECENT_RUNS]],
        "switches": _switches(user),
        "fleet": pressure["fleet"],
        "loads": [_load(item) for item in (pressure["pressure"] or {}).get("classes", ())],
        "pressure_at": pressure["pressure"]["at"] if pressure["pressure"] else None,
    }


def _load(item: dict[str, Any]) -> dict[str, Any]:
    """A class's published load, with the name of its colour."""
    return {**item, "token": model_token(item["model"])}


def run_row(run: Run) -> dict[str, Any]:
    """One line of a list of runs; `run` comes from `listed`."""
    return {
        "id": run.pk,
        "workflow": workflow_name(run),
        "state": run.state,
        "nodes_done": run.nodes_done,
        "nodes_total": run.nodes_total,
        "active_variant": run.active_variant,
        "switches": run.switches,
        "calls": run.calls,
        "tokens": run.prompt_tokens + run.output_tokens,
        "deadline_s": run.deadline_s,
        "accepted_at": run.accepted_at.timestamp(),
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "late": run.late,
    }


def _switches(user: User) -> list[dict[str, Any]]:
    rows = LedgerEntry.objects.filter(run__owner_id=user.pk, to_variant__isnull=False).annotate(
        workflow_name=F("run__version__workflow__name")
    )
    return [
        {
            "run": row.run_id,
            "workflow": row.workflow_name or "inline workflow",
            "seq": row.seq,
            "at": row.at,
            "from_variant": row.active_variant,
            "to_variant": row.to_variant,
            "reason": row.reason,
            "text": row.text,
        }
        for row in rows.order_by("-pk")[:RECENT_SWITCHES]
    ]
