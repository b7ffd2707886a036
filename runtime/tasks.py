"""Celery tasks of the runtime: each takes ids and calls one service."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task
from celery.signals import worker_ready, worker_shutdown, worker_shutting_down

from runtime import composition, services

logger = logging.getLogger(__name__)

CLOSE_S = 1.0
RUNS_QUEUE = "runs"


@shared_task(name="runtime.tasks.execute_run")
def execute_run(run_id: str) -> None:
    """Blocks its thread until the run has ended or was let go: so the broker keeps what this process cannot take."""
    composition.worker().execute(run_id)


@shared_task(name="runtime.tasks.housekeeping")
def housekeeping() -> None:
    """Deletes what has outlived its time; the reaper asks for it every few minutes."""
    logger.info("deleted %d old idempotency keys", services.forget_old_keys())


@worker_ready.connect
def begin(sender: Any, **_: Any) -> None:
    """A worker of the queue `runs` beats before its first run, so that /readyz knows whether there is one."""
    if RUNS_QUEUE in sender.app.amqp.queues.consume_from:
        composition.worker().start()


@worker_shutting_down.connect
def let_go(**_: Any) -> None:
    """Without it a worker that was told to stop would hang until its last run ends."""
    worker = composition.started_worker()
    if worker is not None:
        worker.drain()


@worker_shutdown.connect
def close(**_: Any) -> None:
    """The last thing a worker does: runs that were given back are enqueued, connections closed."""
    composition.close(timeout_s=CLOSE_S)
