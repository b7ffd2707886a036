"""What `demo` adds up."""

from __future__ import annotations

from typing import Any

from dyserve_site.client import Run
from dyserve_site.demo import summarise


def run(workflow: str, state: str, seconds: float | None, **counts: Any) -> Run:
    finished = None if seconds is None else 100.0 + seconds
    return Run(id="run", state=state, workflow=workflow, accepted_at=100.0, finished_at=finished, **counts)


def test_a_line_a_workflow_and_one_of_all() -> None:
    runs = [
        run("b", "succeeded", 4.0, calls=3, prompt_tokens=10, output_tokens=5, switches=1),
        run("a", "succeeded", 2.0, calls=1, prompt_tokens=1, output_tokens=1),
        run("b", "failed", 9.0, calls=2),
    ]
    first, second, total = summarise(runs)
    assert (first.workflow, first.runs, first.done, first.p95_s) == ("a", 1, 1, 2.0)
    assert (second.workflow, second.runs, second.done, second.p50_s) == ("b", 2, 1, 4.0)
    assert (total.workflow, total.runs, total.done, total.switches, total.calls, total.tokens) == (
        "all",
        3,
        2,
        1,
        6,
        17,
    )
    assert (total.p50_s, total.p95_s) == (2.0, 4.0)


def test_no_latency_without_a_run_that_succeeded() -> None:
    assert summarise([run("a", "failed", 1.0)])[-1].p50_s is None
