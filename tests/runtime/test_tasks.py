from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery.signals import worker_shutdown, worker_shutting_down

from dyserve_site.celery import app
from runtime import composition
from runtime.tasks import begin, execute_run


class Worker:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def execute(self, run_id: str) -> None:
        self.heard.append(run_id)

    def start(self) -> None:
        self.heard.append("start")

    def drain(self) -> None:
        self.heard.append("drain")

    def stop(self) -> None:
        self.heard.append("stop")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    made: dict[str, Any] = {}
    monkeypatch.setattr(composition, "_made", made)
    return made


def test_a_task_is_its_runs_execution(made: dict[str, Any]) -> None:
    worker = made["worker"] = Worker()
    execute_run("run_1")
    assert worker.heard == ["run_1"]


@pytest.mark.parametrize(("queue", "heard"), [("runs", ["start"]), ("plans", [])])
def test_a_worker_of_the_runs_queue_beats_before_its_first_run(
    made: dict[str, Any], queue: str, heard: list[str]
) -> None:
    worker = made["worker"] = Worker()
    consumer = SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=SimpleNamespace(consume_from={queue}))))
    begin(sender=consumer)
    assert worker.heard == heard


def test_a_worker_that_is_told_to_stop_lets_go_and_closes(made: dict[str, Any]) -> None:
    worker = made["worker"] = Worker()
    worker_shutting_down.send(sender="test", sig="TERM", how="warm", exitcode=0)
    assert worker.heard == ["drain"]
    worker_shutdown.send(sender="test")
    assert worker.heard == ["drain", "drain", "stop"]
    assert made == {}


def test_a_process_that_never_ran_anything_makes_nothing_to_stop_it(made: dict[str, Any]) -> None:
    worker_shutting_down.send(sender="test", sig="TERM", how="warm", exitcode=0)
    worker_shutdown.send(sender="test")
    assert made == {}


@pytest.mark.parametrize(
    ("task", "queue"),
    [
        ("runtime.tasks.execute_run", "runs"),
        ("runtime.tasks.housekeeping", "jobs"),
        ("planner.tasks.prepare_bundle", "plans"),
    ],
)
def test_queues_keep_kinds_of_work_apart(task: str, queue: str) -> None:
    assert app.amqp.router.route({}, task)["queue"].name == queue
