"""Celery tasks of the plans worker: each takes ids and calls one service."""

from __future__ import annotations

from celery import shared_task

from planner import services


@shared_task(name="planner.tasks.prepare_bundle")
def prepare_bundle(bundle_id: int) -> None:
    services.prepare_variants(bundle_id)
