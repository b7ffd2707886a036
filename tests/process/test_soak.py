"""The long version of the crash test: waves of runs while the runs worker is killed again and again."""

from __future__ import annotations

from functools import partial

import pytest

from dyserve_site import demo
from dyserve_site.client import Client
from tests.process.test_up import child, until

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(3600)]

KILLS = 20
RUNS_A_KILL = 50


def under_way(client: Client, runs: list[str]) -> bool:
    return sum(client.run(run_id).nodes_done for run_id in runs[:10]) >= 5


def test_many_killed_workers_lose_no_run_and_repeat_no_node(instance: demo.Instance, client: Client) -> None:
    slugs = [workflow.slug for workflow in client.workflows()]
    runs: list[str] = []
    for kill in range(KILLS):
        wave = [client.submit_run(workflow=slugs[(kill + index) % len(slugs)]).run.id for index in range(RUNS_A_KILL)]
        runs += wave
        until(partial(under_way, client, wave))
        child(instance.pid, "-Q runs").kill()
    for run_id in runs:
        run = client.wait(run_id, timeout_s=600)
        assert run.state == "succeeded", run.error
        committed = [event.data["node"] for event in client.events(run_id) if event.kind == "node_committed"]
        assert len(committed) == len(set(committed)) == run.nodes_total
