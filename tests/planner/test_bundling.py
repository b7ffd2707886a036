"""Bundles in the database: one row per structure whoever comes first, prepared once, found again by everyone."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from celery import current_app
from channels.layers import get_channel_layer
from django.db import connection
from pytest_django import Settings

from fleet.models import Backend, Fleet
from fleet.redis import connection as redis_connection
from fleet.services import record_rates
from planner import bundling
from planner.bundling import (
    CONTROL_GROUP,
    LOST_AFTER_S,
    CompiledVersion,
    compile_version,
    notify_bundle,
    prepare_variants,
    requeue_lost_bundles,
)
from planner.compiler.bundle import compile_bundle
from planner.compiler.plan import Bundle
from planner.data import load_profiles
from planner.errors import NoActiveProfiles, PlanInfeasible
from planner.models import PlanBundle, PlanVariant
from planner.options import PlanOptions
from planner.outbox import outbox
from planner.selectors import bundle_value, problem_for, workflow_value
from planner.services import record_profiles
from planner.tasks import prepare_bundle
from tests.fleet.rows import rates
from tests.planner.rows import demo, version

QUEUE = "dyserve:plans"


@pytest.fixture
def fleet(valkey: str, transactional_db: None) -> Iterator[Fleet]:
    yield demo()
    assert outbox().flush(60), "every message was tried before the rows go away"


def compiled(fleet: Fleet, prefix: str = "", **options: Any) -> CompiledVersion:
    chosen = PlanOptions.of(**options)
    return compile_version(version(prefix=prefix), fleet=fleet, options=chosen)


def fresh(bundle: PlanBundle) -> PlanBundle:
    return PlanBundle.objects.get(pk=bundle.pk)


def queued() -> int:
    assert outbox().flush(60)
    return int(redis_connection().llen(QUEUE))


# --- pi(0) ---


def test_the_first_request_creates_the_row_with_variant_0_and_has_it_prepared(fleet: Fleet) -> None:
    result = compiled(fleet)
    row = fresh(result.bundle)
    assert (row.state, row.hits, row.fleet) == ("preparing", 0, fleet)
    variant = row.variants.get()
    assert (variant.index, variant.level, variant.makespan_s) == (0, 0.0, result.plan.makespan_s)
    assert set(result.plan.assignment) == {"draft", "answer"}
    assert set(variant.plan["assignment"]) == {"0", "2"}
    assert result.compile_s >= result.plan.solve_s > 0
    assert queued() == 1
    assert fresh(row).enqueued_at is not None


def test_a_structure_is_shared_whatever_its_nodes_are_called(fleet: Fleet) -> None:
    first = compiled(fleet)
    second = compiled(fleet, prefix="x")
    assert second.bundle == first.bundle
    assert set(second.plan.assignment) == {"xdraft", "xanswer"}
    assert second.plan.assignment["xdraft"] == first.plan.assignment["draft"]
    assert fresh(first.bundle).hits == 1
    assert queued() == 1, "only the creator enqueues"


def test_other_options_make_another_bundle(fleet: Fleet) -> None:
    keys = {
        compiled(fleet).bundle.key,
        compiled(fleet, effort=0.9).bundle.key,
        compiled(fleet, weights="fast").bundle.key,
        compiled(fleet, levels=[0, 5]).bundle.key,
    }
    assert len(keys) == 4


def test_new_rates_and_known_prompt_lengths_make_another_bundle(fleet: Fleet) -> None:
    before = compiled(fleet).bundle.key
    known = compile_version(version(), fleet=fleet, options=PlanOptions(), known_prompt_tokens={"draft": 900}).bundle
    record_rates(Backend.objects.get(name="h200-27b"), rates())
    assert len({before, known.key, compiled(fleet).bundle.key}) == 3
    assert known.request["known_prompt_tokens"] == {"draft": 900}


def test_one_level_is_ready_at_once_and_never_enqueued(fleet: Fleet) -> None:
    bundle = compiled(fleet, levels=[0]).bundle
    assert fresh(bundle).state == "ready"
    assert fresh(bundle).ready_at is not None
    assert queued() == 0


def test_requests_at_the_same_moment_make_one_row(fleet: Fleet) -> None:
    versions = [version(prefix=prefix) for prefix in "abcdef"]
    together = threading.Barrier(len(versions))

    def request(number: int) -> CompiledVersion:
        together.wait()
        try:
            return compile_version(versions[number], fleet=fleet, options=PlanOptions())
        finally:
            connection.close()

    with ThreadPoolExecutor(len(versions)) as threads:
        results = list(threads.map(request, range(len(versions))))
    assert len({result.bundle.pk for result in results}) == 1
    row = PlanBundle.objects.get()
    assert row.hits == len(versions) - 1
    assert row.variants.count() == 1
    assert queued() == 1


def test_all_runs_of_a_bundle_start_from_its_own_pi_0(fleet: Fleet) -> None:
    """A tie, or an incumbent at the time limit, may give another plan: the stored one counts."""
    first = compiled(fleet)
    stored = first.bundle.variants.get()
    other = {**stored.plan, "makespan_s": 123.0, "digest": "another"}
    PlanVariant.objects.filter(pk=stored.pk).update(plan=other, digest="another")
    assert compiled(fleet, prefix="y").plan.makespan_s == 123.0


# --- No plan ---


def test_a_workflow_without_a_plan_says_why(fleet: Fleet) -> None:
    odd = version("Odd", nodes=[{"id": "a", "kind": "llm", "skill": "juggling", "prompt": "Juggle."}], output="a")
    with pytest.raises(PlanInfeasible, match="juggling") as caught:
        compile_version(odd, fleet=fleet, options=PlanOptions())
    assert len(caught.value.reasons) == 1
    assert not PlanBundle.objects.exists()


def test_a_fleet_that_serves_nothing_has_no_plan(fleet: Fleet) -> None:
    with pytest.raises(PlanInfeasible):
        compile_version(version(), fleet=Fleet.objects.create(name="empty"), options=PlanOptions())


@pytest.mark.django_db
def test_without_profiles_nothing_is_planned() -> None:
    empty = Fleet.objects.create(name="empty")
    with pytest.raises(NoActiveProfiles):
        compile_version(version(), fleet=empty, options=PlanOptions())


# --- The further variants ---


def test_prepared_bundle_is_what_the_compiler_makes(fleet: Fleet) -> None:
    result = compiled(fleet)
    prepare_bundle(result.bundle.pk)
    row = fresh(result.bundle)
    assert (row.state, row.error) == ("ready", "")
    assert row.ready_at is not None
    workflow = workflow_value(version())
    found = bundle_value(row, workflow)
    wanted = compile_bundle(problem_for(version(), fleet, PlanOptions()))
    assert isinstance(wanted, Bundle)
    assert found.complete
    assert found.key == wanted.key
    assert [(v.level, v.assignment, v.digest) for v in found.variants] == [
        (v.level, v.assignment, v.digest) for v in wanted.variants
    ]
    assert len(found.variants) > 1


def test_an_unprepared_bundle_is_incomplete(fleet: Fleet) -> None:
    result = compiled(fleet)
    found = bundle_value(fresh(result.bundle), workflow_value(version()))
    assert not found.complete
    assert found.variants == (result.plan,)


def test_preparing_again_changes_nothing(fleet: Fleet) -> None:
    bundle = compiled(fleet).bundle
    prepare_variants(bundle.pk)
    before = list(PlanVariant.objects.values()), list(PlanBundle.objects.values())
    prepare_variants(bundle.pk)
    assert (list(PlanVariant.objects.values()), list(PlanBundle.objects.values())) == before


def test_preparing_the_same_bundle_twice_at_once_stores_it_once(fleet: Fleet) -> None:
    bundle = compiled(fleet).bundle

    def prepare(_: int) -> None:
        try:
            prepare_variants(bundle.pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(prepare, range(3)))
    assert fresh(bundle).state == "ready"
    indexes = list(fresh(bundle).variants.values_list("index", flat=True))
    assert indexes == list(range(len(indexes)))


def test_a_bundle_is_prepared_as_it_was_asked_for(fleet: Fleet) -> None:
    """The fleet and the profiles may have changed since: the request holds what is needed."""
    bundle = compiled(fleet).bundle
    record_rates(Backend.objects.get(name="h200-27b"), rates())
    shipped = load_profiles()
    record_profiles(replace(shipped, version="2", pairs=shipped.pairs[:9]), name="new")
    prepare_variants(bundle.pk)
    assert fresh(bundle).state == "ready", fresh(bundle).error


def test_a_bundle_that_is_gone_is_no_error(fleet: Fleet) -> None:
    prepare_variants(4711)


def test_a_failure_is_kept_in_the_row(fleet: Fleet) -> None:
    bundle = compiled(fleet).bundle
    PlanBundle.objects.filter(pk=bundle.pk).update(request={"options": {}})
    prepare_variants(bundle.pk)
    row = fresh(bundle)
    assert row.state == "failed"
    assert row.error.startswith("KeyError")
    assert not bundle_value(row, workflow_value(version())).complete


def test_a_request_of_another_release_is_refused(fleet: Fleet) -> None:
    bundle = compiled(fleet).bundle
    PlanBundle.objects.filter(pk=bundle.pk).update(key="0" * 16)
    prepare_variants(bundle.pk)
    assert "dyserve was updated" in fresh(bundle).error


def test_a_failed_bundle_is_tried_again_by_a_later_request_but_not_at_once(fleet: Fleet) -> None:
    bundle = compiled(fleet).bundle
    assert queued() == 1
    failed = PlanBundle.objects.filter(pk=bundle.pk)
    failed.update(state="failed", error="broken")
    compiled(fleet)
    assert fresh(bundle).state == "failed"
    failed.update(enqueued_at=time.time() - bundling.RETRY_FAILED_AFTER_S - 1)
    compiled(fleet)
    assert (fresh(bundle).state, fresh(bundle).error) == ("preparing", "")
    assert queued() == 2


# --- Messages ---


def test_ready_is_told_to_the_workers(fleet: Fleet) -> None:
    bundle = compiled(fleet).bundle

    async def hear() -> dict[str, object]:
        layer = get_channel_layer()
        channel = await layer.new_channel()
        await layer.group_add(CONTROL_GROUP, channel)
        await asyncio.to_thread(notify_bundle, bundle.pk)
        message: dict[str, object] = await layer.receive(channel)
        await layer.group_discard(CONTROL_GROUP, channel)
        return message

    assert async_to_sync(hear)() == {"type": "control", "bundles": [bundle.pk]}


def test_a_redis_that_hangs_holds_up_no_preparation(
    fleet: Fleet, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """It takes connections and never answers, as a stopped process does."""
    bundle = compiled(fleet).bundle
    monkeypatch.setattr(bundling, "TELL_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "valkey.sock"))
        hung.listen()
        settings.CHANNEL_LAYERS = {
            "default": {
                "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
                "CONFIG": {"hosts": [f"unix://{tmp_path}/valkey.sock"]},
            }
        }
        prepare_variants(bundle.pk)
    assert fresh(bundle).state == "ready"
    assert "nobody could be told: TimeoutError" in caplog.text


def test_redis_away_fails_no_preparation(fleet: Fleet, settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    bundle = compiled(fleet).bundle
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": ["unix:///nonexistent/valkey.sock"]},
        }
    }
    prepare_variants(bundle.pk)
    assert fresh(bundle).state == "ready"
    assert "nobody could be told" in caplog.text


@pytest.fixture
def broker_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery with the address of a server that is not there."""
    nowhere = "redis+socket:///nonexistent/valkey.sock"
    # In this order: the write address defaults to the other one, so it is the one to remember first.
    monkeypatch.setattr(current_app.conf, "broker_write_url", nowhere)
    monkeypatch.setattr(current_app.conf, "broker_url", nowhere)
    monkeypatch.setattr(current_app, "_pool", None)
    monkeypatch.setattr(current_app.amqp, "_producer_pool", None)


def test_a_broker_that_is_away_costs_a_request_nothing(
    fleet: Fleet, broker_away: None, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = compiled(fleet).bundle
    assert outbox().flush(60)
    assert (fresh(bundle).state, fresh(bundle).enqueued_at) == ("preparing", None)
    assert "it will be tried again" in caplog.text
    assert requeue_lost_bundles(time.time() + 10) == 0


def test_what_was_never_sent_is_sent_by_the_reaper(fleet: Fleet) -> None:
    bundle = compiled(fleet).bundle
    assert queued() == 1
    PlanBundle.objects.filter(pk=bundle.pk).update(enqueued_at=None)
    assert requeue_lost_bundles() == 0, "its own message may still be on the way"
    PlanBundle.objects.filter(pk=bundle.pk).update(created_at=datetime.fromtimestamp(time.time() - 60, tz=UTC))
    assert requeue_lost_bundles() == 1
    assert queued() == 2
    assert requeue_lost_bundles() == 0, "sent just now"


def test_what_was_sent_and_lost_is_sent_again(fleet: Fleet) -> None:
    bundle = compiled(fleet).bundle
    assert queued() == 1
    assert requeue_lost_bundles(time.time() + LOST_AFTER_S + 1) == 1
    prepare_variants(bundle.pk)
    assert requeue_lost_bundles(time.time() + 10 * LOST_AFTER_S) == 0, "a ready bundle is left alone"
