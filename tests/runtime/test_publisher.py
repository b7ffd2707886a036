from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from channels_redis.pubsub import RedisPubSubChannelLayer
from django.conf import settings

from runtime.engine.events import RunState
from runtime.models import Run
from runtime.publisher import Publisher
from tests.runtime import rows
from tests.runtime.engine.samples import snapshot
from tests.runtime.engine.store_contract import FLOW, FULL
from tests.runtime.workers import DeafLayer


class RecordingLayer(DeafLayer):
    def __init__(self, error: Exception | None = None) -> None:
        self.sent: list[tuple[str, Mapping[str, Any]]] = []
        self._error = error

    async def group_send(self, group: str, message: Mapping[str, Any]) -> None:
        if self._error is not None:
            raise self._error
        self.sent.append((group, message))


def a_run() -> str:
    return rows.accept(snapshot(FLOW, FULL)).pk


def test_a_run_is_sent_and_marked(database: str) -> None:
    sent: list[str] = []
    run_ids = [a_run() for _ in range(3)]
    publisher = Publisher(enqueue=sent.append, layer=DeafLayer())
    for run_id in run_ids:
        publisher.run(run_id)
    publisher.stop()
    assert sent == run_ids
    assert not Run.objects.filter(enqueued_at__isnull=True).exists()


def test_a_bug_in_one_message_does_not_stop_the_others(database: str, caplog: pytest.LogCaptureFixture) -> None:
    sent, failed = threading.Event(), threading.Event()
    bad, good = a_run(), a_run()

    def enqueue(run_id: str) -> None:
        if run_id == bad:
            failed.set()
            raise ValueError("a bug")
        sent.set()

    publisher = Publisher(enqueue=enqueue, layer=DeafLayer())
    publisher.run(bad)
    assert failed.wait(timeout=30)
    publisher.run(good)
    assert sent.wait(timeout=30)
    publisher.stop()
    assert "a bug" in caplog.text


def test_a_broker_that_hangs_blocks_nobody(database: str) -> None:
    asked, release = threading.Event(), threading.Event()

    def hang(run_id: str) -> None:
        asked.set()
        release.wait()
        raise ConnectionRefusedError("no broker")

    run_ids = [a_run() for _ in range(3)]
    publisher = Publisher(enqueue=hang, layer=DeafLayer())
    publisher.run(run_ids[0])
    assert asked.wait(timeout=30)
    # The broker hangs in the publisher's thread; the callers below return although it does.
    publisher.run(run_ids[1])
    publisher.run(run_ids[2])
    assert not release.is_set()
    release.set()
    publisher.stop()
    waiting = Run.objects.filter(enqueued_at__isnull=True, state=RunState.QUEUED)
    assert set(waiting.values_list("pk", flat=True)) == set(run_ids), "the reaper would not find them"


def test_a_broker_that_comes_back_gets_later_runs(database: str) -> None:
    sent: list[str] = []
    away = True

    def enqueue(run_id: str) -> None:
        if away:
            raise ConnectionRefusedError("no broker")
        sent.append(run_id)

    publisher = Publisher(enqueue=enqueue, layer=DeafLayer())
    lost, kept = a_run(), a_run()
    publisher.run(lost)
    publisher.stop()
    away = False
    publisher.run(kept)
    publisher.stop()
    assert sent == [kept]
    assert Run.objects.get(pk=lost).enqueued_at is None


def test_messages_go_to_their_groups(transactional_db: None) -> None:
    layer = RecordingLayer()
    publisher = Publisher(enqueue=lambda run_id: None, layer=layer)
    publisher.control(cancel=["run_1"])
    publisher.poke([("run_1", 3), ("run_1", 2)])
    publisher.stop()
    assert layer.sent == [
        ("dyserve.control", {"type": "control", "cancel": ["run_1"], "bundles": []}),
        ("dyserve.runs", {"type": "poke", "runs": [["run_1", 3]]}),
    ]


@pytest.mark.parametrize("error", [ConnectionRefusedError("no"), TimeoutError()])
def test_a_lost_message_is_no_error(transactional_db: None, error: Exception) -> None:
    publisher = Publisher(enqueue=lambda run_id: None, layer=RecordingLayer(error))
    publisher.control(cancel=["run_1"])
    publisher.stop()


def test_a_real_broker_without_a_server_blocks_nobody(transactional_db: None, tmp_path: Path) -> None:
    """Celery's and the channel layer's own transports, with nobody listening on the socket."""
    socket = tmp_path / "nobody"
    app = Celery(broker=f"redis+socket://{socket}", set_as_current=False)
    app.conf.broker_transport_options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
    layer = RedisPubSubChannelLayer(hosts=[f"unix://{socket}"])
    run_id = a_run()

    def enqueue(run: str) -> None:
        app.send_task("runtime.tasks.execute_run", args=(run,), retry=False)

    publisher = Publisher(enqueue=enqueue, layer=layer)
    publisher.run(run_id)
    publisher.control(cancel=[run_id])
    publisher.stop()
    assert Run.objects.get(pk=run_id).enqueued_at is None
