"""The parts as they are put together, end to end: real emulator over HTTP, real Valkey, real database."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.conf import settings
from django.db import connection as django_connection

from dyserve_site import wiring
from fleet.emulator.config import EmulatorConfig, parse_config
from fleet.emulator.server import serve
from fleet.models import Replica
from fleet.redis import WORKER_KEY, connection
from fleet.selectors import catalog_for
from planner.compiler.policies import POLICIES
from planner.compiler.profile import mean_answer_tokens
from planner.data import demo_workflow_sources
from planner.models import WorkflowVersion
from planner.selectors import active_profiles
from planner.services import prepare_variants, store_workflow
from runtime import composition, reaper
from runtime.engine.events import RunState
from runtime.loop import LoopThread
from runtime.models import Call, Invocation, Run, RunEvent
from runtime.reaper import Sweep
from runtime.services import submit_run
from runtime.tasks import execute_run
from tests.runtime.rows import World, make_world

SCALE = 200.0


@pytest.fixture
def world(transactional_db: None) -> World:
    return make_world()


def config_of(world: World) -> EmulatorConfig:
    return parse_config(wiring.emulator_config(world.fleet, time_scale=SCALE, seed=3))


def test_the_emulator_serves_what_the_fleet_says(world: World) -> None:
    config = config_of(world)
    replicas = {replica.name: replica for replica in Replica.objects.select_related("backend__model_class")}
    assert {item.name for item in config.replicas} == set(replicas)
    for item in config.replicas:
        row = replicas[item.name]
        assert f"http://{item.host}:{item.port}" == row.url
        assert item.model == row.backend.model_class.name
        assert item.max_num_seqs == row.backend.max_num_seqs
    assert (config.time_scale, config.seed) == (SCALE, 3)
    assert set(config.reject_probability) == {"qwen3.5-4b", "qwen3.5-9b", "qwen3.5-27b"}
    assert all(0 < probability < 1 for probability in config.reject_probability.values())


def test_answers_are_as_long_as_the_profiles_say(world: World) -> None:
    lengths = config_of(world).mean_output_tokens
    assert lengths["text"] == mean_answer_tokens(active_profiles(), catalog_for(world.fleet))


def test_only_emulated_backends_are_emulated(world: World) -> None:
    world.fleet.backends.filter(name="h200-4b").update(emulated=False)
    assert {item.model for item in config_of(world).replicas} == {"qwen3.5-9b", "qwen3.5-27b"}


@pytest.fixture
def emulator(world: World, request: pytest.FixtureRequest) -> Iterator[Mapping[str, str]]:
    """The world's fleet on free ports of this machine; the rows name them. Its parameter is the time scale."""
    config = config_of(world)
    config = replace(
        config,
        time_scale=getattr(request, "param", SCALE),
        replicas=tuple(replace(item, port=0) for item in config.replicas),
    )
    found: Future[Mapping[str, str]] = Future()

    async def main(ready: Callable[[], None]) -> None:
        def listening(urls: Mapping[str, str]) -> None:
            found.set_result(urls)
            ready()

        await serve(config, listening, stop=asyncio.Event())

    loop = LoopThread(main, on_broken=lambda: None)
    loop.start()
    for name, url in found.result().items():
        Replica.objects.filter(name=name).update(url=url)
    yield found.result()
    loop.stop()


@pytest.fixture
def composed(valkey: str) -> Iterator[None]:
    yield
    composition.close()


def versions(world: World) -> list[WorkflowVersion]:
    return [
        store_workflow(owner=world.owner, data=text.encode(), filename=name).version
        for name, text in demo_workflow_sources().items()
    ]


def test_the_demo_workflows_run_on_the_emulated_fleet(
    world: World, emulator: Mapping[str, str], composed: None
) -> None:
    runs = [submit_run(owner=world.owner, version=version, inputs={}, source="test").run for version in versions(world)]
    with ThreadPoolExecutor(max_workers=len(runs)) as threads:
        for future in [threads.submit(execute_run, run.pk) for run in runs]:
            future.result()
    for run in Run.objects.select_related("version"):
        assert run.state == RunState.SUCCEEDED, (run.version, run.error)
        assert run.nodes_done == run.version.node_count
        assert run.output is not None
        check_calls(run)
    # A vote that is decided early cuts its other samples off: they have no replica.
    answered = Call.objects.filter(error="")
    assert {call.replica for call in answered} <= set(emulator)
    composition.publisher().stop()
    assert connection().keys(f"{WORKER_KEY}*"), "the worker tells its calls in flight"
    assert not Run.objects.filter(enqueued_at__isnull=True).exists(), "the publisher enqueued every run"


def check_calls(run: Run) -> None:
    """Every stage of every policy really ran: base calls always, conditional ones as the verdicts say."""
    for invocation in Invocation.objects.filter(run=run, kind="llm"):
        assert invocation.binding is not None
        policy = POLICIES[invocation.binding["policy"]]
        calls = Call.objects.filter(run=run, node=invocation.node, attempt=invocation.attempt)
        always = sum(call.count for stage in policy.stages if stage.when == "always" for call in stage.calls)
        assert always <= calls.count() <= policy.max_calls
        assert invocation.calls == calls.count()
        assert sum(call.output_tokens for call in calls) == invocation.output_tokens


def test_variants_that_are_prepared_meanwhile_reach_later_runs(
    world: World, emulator: Mapping[str, str], composed: None
) -> None:
    version = versions(world)[0]
    first = submit_run(owner=world.owner, version=version, inputs={}).run
    execute_run(first.pk)
    first.refresh_from_db()
    assert first.bundle is not None
    prepare_variants(first.bundle.pk)
    second = submit_run(owner=world.owner, version=version, inputs={}).run
    execute_run(second.pk)
    second.refresh_from_db()
    assert second.bundle == first.bundle, "runs of one structure share their bundle"
    assert second.events.filter(kind="bundle_ready").exists()


def test_a_run_without_replicas_fails_with_its_reason(world: World, composed: None) -> None:
    version = versions(world)[0]
    run = submit_run(owner=world.owner, version=version, inputs={}).run
    Replica.objects.update(state=Replica.State.DISABLED)
    execute_run(run.pk)
    run.refresh_from_db()
    assert run.state == RunState.FAILED
    assert run.error is not None
    assert run.error["code"] == "no_plan"


def test_the_reaper_of_this_process_works(world: World, composed: None) -> None:
    assert composition.reaper() is composition.reaper()
    reaper.sweep()
    assert composition.reaper().sweep() == Sweep()
    assert connection().llen("dyserve:jobs") == 1, "housekeeping was asked for, once"


# --- In processes of their own ---------------------------------------------------------------------------------------


@contextmanager
def worker_process() -> Iterator[subprocess.Popen[bytes]]:
    """A real Celery worker of the runs queue, on the test's database."""
    argv = (
        sys.executable,
        "-m",
        "celery",
        "-A",
        "dyserve_site",
        "worker",
        "-Q",
        "runs",
        "--pool",
        "threads",
        "-c",
        "16",
    )
    quiet = ("-c", "16", "--without-mingle", "--without-gossip", "--without-heartbeat", "-l", "WARNING")
    name = django_connection.settings_dict["NAME"]
    process = subprocess.Popen(
        [*argv, *quiet],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DATABASE_URL": f"sqlite://{name}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for something that another process does."""
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.05)


def committed_twice() -> list[tuple[str, object]]:
    nodes = Counter((run, data["node"]) for run, data in events("node_committed"))
    return [node for node, count in nodes.items() if count > 1]


def events(kind: str) -> list[tuple[str, dict[str, object]]]:
    return list(RunEvent.objects.filter(kind=kind).values_list("run_id", "data"))


@pytest.mark.process
@pytest.mark.parametrize("emulator", [10.0], indirect=True)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_process_that_ends_is_followed_by_another(
    world: World, emulator: Mapping[str, str], composed: None, how: signal.Signals
) -> None:
    runs = [submit_run(owner=world.owner, version=version, inputs={}).run for version in versions(world)]
    with worker_process() as first:
        until(lambda: len(events("node_committed")) >= 3, "nodes to be committed")
        first.send_signal(how)
        first.wait(timeout=30)
        expired = reaper.expire_leases(first.pid)
    done_before = {(run, data["node"]) for run, data in events("node_committed")}
    bound = {(row.run_id, row.node): row.binding for row in Invocation.objects.all()}
    assert (expired > 0) == (how is signal.SIGKILL), "a worker that is told to stop releases its runs itself"
    assert Run.objects.filter(state__in=["queued", "running"]).exists(), "nothing was left to take over"
    with worker_process():
        until(lambda: bool(composition.reaper().sweep()) and all_ended(), "all runs to end")
    assert {run.state for run in Run.objects.all()} == {RunState.SUCCEEDED}
    assert committed_twice() == []
    assert Run.objects.filter(epoch__gte=2).exists()
    for row in Invocation.objects.filter(run__in=runs):
        assert bound.get((row.run_id, row.node), row.binding) == row.binding, "a binding changed"
    dispatched = Counter((run, data["node"]) for run, data in events("node_dispatched"))
    assert all(dispatched[node] == 1 for node in done_before), "a committed node was dispatched again"


def all_ended() -> bool:
    return not Run.objects.filter(state__in=["queued", "running"]).exists()
