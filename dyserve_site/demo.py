"""`demo`: the main job without a browser, on the same processes as `up`, in a home and on ports of its own.

Imports the shipped workflows over the API, sends a burst of runs, waits for all of them, and adds up what happened.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dyserve_site.client import Client, Run
from dyserve_site.supervisor.ports import EMULATED_REPLICAS, emulator_base, taken
from dyserve_site.supervisor.supervisor import child_setup
from planner.data import demo_workflow_sources
from runtime.stats import percentile

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
FIRST_PORT, LAST_PORT = 20_000, 29_000
_OF_OTHER_INSTANCES = {"DATABASE_URL", "REDIS_URL", "SECRET_KEY", "DYSERVE_EMULATOR_PORT", "DYSERVE_HTTPS"}
Progress = Callable[[int, int], None]


class DemoFailed(Exception):
    """The instance did not start, or runs did not end in time; the message says what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A running dyserve; `pid` is its supervisor's, `start_s` wall seconds to a green /readyz."""

    url: str
    token: str
    username: str
    password: str
    home: Path
    pid: int
    start_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Latencies in wall seconds, from acceptance to the end, of the runs that succeeded; None without any."""

    workflow: str
    runs: int
    done: int
    switches: int
    p50_s: float | None
    p95_s: float | None
    calls: int
    tokens: int


@contextmanager
def instance(manage: Path, **overrides: str) -> Iterator[Instance]:
    """A whole dyserve in a temporary home; nothing of it is left afterwards. `overrides` go into its environment."""
    with tempfile.TemporaryDirectory(prefix="dyserve-demo-") as home:
        environment = {name: value for name, value in os.environ.items() if name not in _OF_OTHER_INSTANCES}
        environment |= {
            "DYSERVE_HOME": home,
            "DYSERVE_PORT": str(free_port()),
            "DYSERVE_HOST": "127.0.0.1",
            **overrides,
        }
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, str(manage), "up", "--quiet"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A demo that is killed outright takes its instance along.
            preexec_fn=child_setup(nice=0),
        )
        try:
            yield _wait_up(process, Path(home), started)
        finally:
            _stop(process)


def free_port() -> int:
    """A port whose emulated fleet's ports are free as well."""
    while True:
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT)
        base = emulator_base(port)
        if not taken("127.0.0.1", [port, *range(base, base + EMULATED_REPLICAS)]):
            return port


def _wait_up(process: subprocess.Popen[str], home: Path, started: float) -> Instance:
    """`up` writes up.json when /readyz is green."""
    state = home / "up.json"
    while not state.exists():
        if process.poll() is not None:
            raise DemoFailed((process.stderr.read() if process.stderr else "").strip() or "`up` ended at once")
        if time.monotonic() - started > START_TIMEOUT_S:
            raise DemoFailed(f"`up` was not ready after {START_TIMEOUT_S:.0f} s")
        time.sleep(0.1)
    url = json.loads(state.read_text(encoding="utf-8"))["url"]
    login = json.loads((home / "admin.json").read_text(encoding="utf-8"))
    return Instance(url=url, home=home, pid=process.pid, start_s=time.monotonic() - started, **login)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stderr is not None:
        process.stderr.close()


def burst(client: Client, runs: int, *, timeout_s: float, progress: Progress) -> list[Run]:
    """Stores the shipped workflows, submits `runs` runs at once, round the workflows, and waits for all of them."""
    slugs = [client.store_workflow(text, filename=name).workflow.slug for name, text in demo_workflow_sources().items()]
    ids = [client.submit_run(workflow=slugs[index % len(slugs)]).run.id for index in range(runs)]
    until = time.monotonic() + timeout_s
    ended: dict[str, Run] = {}
    while len(ended) < len(ids):
        ended |= {run.id: run for run in _finished(client, set(ids) - set(ended))}
        progress(len(ended), len(ids))
        if time.monotonic() > until:
            raise DemoFailed(f"{len(ids) - len(ended)} of {len(ids)} runs did not end within {timeout_s:.0f} s")
        time.sleep(0.5)
    return [ended[run_id] for run_id in ids]


def _finished(client: Client, waiting: set[str]) -> Iterator[Run]:
    return (run for run in client.runs() if run.id in waiting and run.ended)


def summarise(runs: Sequence[Run]) -> list[Summary]:
    """A line a workflow, by name, and last one of all together."""
    by_workflow: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_workflow[run.workflow].append(run)
    return [*(_summary(name, by_workflow[name]) for name in sorted(by_workflow)), _summary("all", runs)]


def _summary(name: str, runs: Sequence[Run]) -> Summary:
    done = [run for run in runs if run.state == "succeeded"]
    latencies = [run.latency_s for run in done if run.latency_s is not None]
    return Summary(
        workflow=name,
        runs=len(runs),
        done=len(done),
        switches=sum(run.switches for run in runs),
        p50_s=_seconds(percentile(latencies, 0.50)),
        p95_s=_seconds(percentile(latencies, 0.95)),
        calls=sum(run.calls for run in runs),
        tokens=sum(run.prompt_tokens + run.output_tokens for run in runs),
    )


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
