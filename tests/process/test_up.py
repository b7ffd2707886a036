"""`up` as an operator meets it: starting, stopping, crashing children, ports in use, a second start."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from dyserve_site import demo
from dyserve_site.client import Client
from planner.data import demo_workflow_sources
from tests.process.conftest import MANAGE

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


def start(home: Path, port: int, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(MANAGE), "up", "--quiet"],
        env={**os.environ, "DYSERVE_HOME": str(home), "DYSERVE_PORT": str(port), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_announcement(process: subprocess.Popen[str]) -> str:
    """What `up` prints once it is ready."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if "Ctrl-C" in line:
            return "".join(lines)
    raise AssertionError(f"`up` ended: {process.stderr.read() if process.stderr else ''}")


def child(parent: int, *words: str) -> psutil.Process:
    found = [
        process
        for process in psutil.Process(parent).children()
        if all(word in " ".join(process.cmdline()) for word in words)
    ]
    assert len(found) == 1, [process.cmdline() for process in found]
    return found[0]


def until(condition: Callable[[], bool]) -> None:
    """Polls without a limit of its own: the test's time limit ends it."""
    while not condition():
        psutil.cpu_percent(interval=0.1)


def ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_how_to_get_in_and_stops_without_a_trace(tmp_path: Path, number: signal.Signals) -> None:
    port = demo.free_port()
    process = start(tmp_path, port)
    try:
        announced = read_announcement(process)
        login = json.loads((tmp_path / "admin.json").read_text())
        assert f"http://127.0.0.1:{port}" in announced
        assert login["password"] in announced
        assert login["token"] in announced
        assert "emulated" in announced
        for private in ("admin.json", "secret_key", "emulator.json"):
            assert stat.S_IMODE((tmp_path / private).stat().st_mode) == 0o600
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 7
        process.send_signal(number)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()
    assert [survivor for survivor in family if survivor.is_running()] == []


def test_a_second_start_continues_with_the_same_data(tmp_path: Path) -> None:
    port = demo.free_port()
    seen: list[tuple[str, list[str], list[str]]] = []
    for _ in range(2):
        process = start(tmp_path, port)
        try:
            announced = read_announcement(process)
            login = json.loads((tmp_path / "admin.json").read_text())
            with Client(f"http://127.0.0.1:{port}", login["token"]) as client:
                slugs = sorted(workflow.slug for workflow in client.workflows())
                if not seen:
                    done = client.wait(client.submit_run(workflow=slugs[0]).run.id, timeout_s=120)
                    assert done.state == "succeeded"
                runs = [run.id for run in client.runs()]
            seen.append((login["password"], slugs, runs))
            assert login["password"] in announced
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
            process.communicate()
    assert seen[0] == seen[1]
    assert len(seen[0][1]) == len(demo_workflow_sources())


def test_ports_in_use_are_named_and_nothing_starts(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = busy.getsockname()[1]
        web = start(tmp_path, taken)
        _, errors = web.communicate(timeout=60)
        assert web.returncode == 1
        assert f"port {taken} is in use" in errors
        assert "DYSERVE_PORT" in errors
        fleet = start(tmp_path, demo.free_port(), DYSERVE_EMULATOR_PORT=str(taken))
        _, errors = fleet.communicate(timeout=60)
        assert fleet.returncode == 1
        assert "DYSERVE_EMULATOR_PORT" in errors
    assert not (tmp_path / "dyserve.sqlite3").exists()


def test_one_home_is_served_once(instance: demo.Instance) -> None:
    second = start(instance.home, demo.free_port())
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 1
    assert f"pid {instance.pid}" in errors
    assert ready(instance.url)


def test_two_instances_run_side_by_side(instance: demo.Instance) -> None:
    with demo.instance(MANAGE) as other:
        assert other.url != instance.url
        for one in (instance, other):
            with Client(one.url, one.token) as client:
                slug = next(iter(client.workflows())).slug
                run = client.wait(client.submit_run(workflow=slug).run.id, timeout_s=120)
                assert run.state == "succeeded"
        with Client(other.url, other.token) as client:
            assert len(list(client.runs())) == 1


def test_a_killed_web_process_comes_back(instance: demo.Instance) -> None:
    first = child(instance.pid, "uvicorn")
    first.kill()
    until(lambda: not first.is_running() and ready(instance.url))
    log = (instance.home / "log" / "dyserve.log").read_text()
    assert f"web (pid {first.pid}) was killed by signal 9; restarting it" in log


def test_a_killed_worker_loses_no_run_and_repeats_no_node(instance: demo.Instance, client: Client) -> None:
    slugs = [workflow.slug for workflow in client.workflows()]
    runs = [client.submit_run(workflow=slug).run.id for slug in slugs for _ in range(3)]
    until(lambda: sum(run.nodes_done for run in client.runs() if run.id in runs) >= 5)
    child(instance.pid, "-Q runs").kill()
    for run_id in runs:
        run = client.wait(run_id, timeout_s=200)
        assert run.state == "succeeded", run.error
        events = list(client.events(run_id))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        committed = [event.data["node"] for event in events if event.kind == "node_committed"]
        assert sorted(committed) == sorted(set(committed))
        assert len(committed) == run.nodes_total
    assert "expired the leases of" in (instance.home / "log" / "dyserve.log").read_text()


def test_a_supervisor_that_is_killed_takes_its_children_along(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux tells children of their parent's death")
    process = start(tmp_path, demo.free_port())
    try:
        read_announcement(process)
        family = psutil.Process(process.pid).children()
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(family, timeout=60)
        assert alive == []
    finally:
        process.communicate()
