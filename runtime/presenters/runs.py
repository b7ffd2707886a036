"""Rows of the list of runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from fleet.common.presentation import DASH, compact, seconds
from runtime.engine.events import RunState
from runtime.listing import workflow_name
from runtime.models import Run

ID_TAIL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """`short` is the end of the id: its beginning is a time and nearly the same for neighbours."""

    id: str
    short: str
    workflow: str
    state: str
    live: bool
    progress: str
    share: float
    latency: str
    begin: float
    deadline: str
    late: bool
    in_time: bool
    switches: int
    calls: int
    tokens: str
    accepted: datetime
    cancelling: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTab:
    """`value` is empty for all states."""

    value: str
    word: str
    count: int
    current: bool


def run_rows(runs: Iterable[Run], now: float) -> list[RunRow]:
    """`runs` come from `listed`."""
    return [_row(run, now) for run in runs]


def _row(run: Run, now: float) -> RunRow:
    accepted = run.accepted_at.timestamp()
    live = not RunState(run.state).ended
    past = run.deadline_s is not None and live and now - accepted > run.deadline_s
    return RunRow(
        id=run.pk,
        short=run.pk[-ID_TAIL:],
        workflow=workflow_name(run) or "unnamed",
        state=run.state,
        live=live,
        progress=f"{run.nodes_done}/{run.nodes_total}",
        share=run.nodes_done / run.nodes_total if run.nodes_total else 0.0,
        latency=seconds((run.finished_at if run.finished_at is not None else now) - accepted),
        begin=accepted,
        deadline=DASH if run.deadline_s is None else seconds(run.deadline_s),
        late=bool(run.late) or past,
        in_time=run.late is False and run.deadline_s is not None and run.state == RunState.SUCCEEDED,
        switches=run.switches,
        calls=run.calls,
        tokens=compact(run.prompt_tokens + run.output_tokens),
        accepted=run.accepted_at,
        cancelling=live and run.cancel_requested_at is not None,
    )


def state_tabs(counts: dict[str, int], current: str) -> list[StateTab]:
    tabs = [StateTab(value="", word="all", count=counts["all"], current=not current)]
    return tabs + [
        StateTab(value=state.value, word=state.value, count=counts[state.value], current=state.value == current)
        for state in RunState
    ]
