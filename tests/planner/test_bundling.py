"""Bundles in the database: one row per structure whoever comes first, prepared once, found again by everyone."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
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

from fleet.models import Backend, Fleet, ModelClass
from fleet.redis import connection as redis_connection
from fleet.selectors import rates_value
from fleet.services import record_rates
from fleet.serving.rates import ServiceRates
from planner import bundling, selectors
from planner.bundling import (
    CONTROL_GROUP,
    LOST_AFTER_S,
    CompiledVersion,
    compile_version,
    notify_bundle,
    prepare_variants,
    requeue_lost_bundles,
)
from planner.compiler import pricing, solve
from planner.compiler.bundle import compile_bundle, to_positions
from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Solution
from planner.compiler.plan import Bundle, Infeasible, Plan
from planner.compiler.policies import POLICIES
from planner.compiler.pricing import PRICE_LEVELS
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import ProfileSet
from planner.compiler.solve import compile_plan, decode
from planner.data import load_profiles
from planner.errors import NoActiveProfiles, OptionsInvalid, PlanInfeasible, PlanRefused
from planner.models import PlanBundle, PlanVariant, RefusedPlan
from planner.options import PlanOptions
from planner.outbox import outbox
from planner.selectors import bundle_value, options_of_bundle, outdated_bundles, problem_for, workflow_value
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


def test_all_runs_of_a_bundle_start_from_its_own_pi_0(fleet: Fleet) -> None:
    """A tie, or an incumbent at the time limit, may give another plan: the stored one counts."""
    first = compiled(fleet)
    other = slowest(problem_for(version(), fleet, PlanOptions()))
    assert other.makespan_s > first.plan.makespan_s
    store(first.bundle, other)
    found = compiled(fleet, prefix="y").plan
    assert (found.makespan_s, found.objective) == (other.makespan_s, other.objective)
    assert set(found.assignment) == {"ydraft", "yanswer"}


def slowest(problem: PlanningProblem) -> Plan:
    """A plan that is what it says, though nobody would choose it."""
    coefficients = problem.coefficients
    assert isinstance(coefficients, Coefficients)
    choice = {name: max(node.columns, key=lambda c: c.duration_s) for name, node in coefficients.nodes.items()}
    return decode(coefficients, Solution(choice=choice, solver="cbc"), 0.0)


def store(bundle: PlanBundle, plan: Plan) -> None:
    """In place of the bundle's pi(0)."""
    stored = to_positions(plan, workflow_value(version()))
    bundle.variants.filter(index=0).update(plan=stored.to_json(), digest=stored.digest)


# --- Hits and misses ---


def test_every_request_solves_pi_0_and_is_a_miss_or_a_hit(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[float] = []

    def solve_and_note(problem: PlanningProblem, level: float, **more: Any) -> Plan | Infeasible:
        solved.append(level)
        return compile_plan(problem, level, **more)

    monkeypatch.setattr("planner.bundling.compile_plan", solve_and_note)
    for prefix in ("", "x", "y"):
        compiled(fleet, prefix=prefix)
    compiled(fleet, bundle="priced")
    assert solved == [0.0, 0.0, 0.0, PRICE_LEVELS[0]]
    assert sorted(PlanBundle.objects.values_list("kind", "hits")) == [("levels", 2), ("priced", 0)]
    assert queued() == 2, "one preparation per miss"


CHANGES: dict[str, Callable[[], object]] = {
    "profiles": lambda: record_profiles(fewer_profiles(), name="new"),
    "rates": lambda: record_rates(Backend.objects.get(name="h200-27b"), rates()),
    "step times": lambda: record_rates(Backend.objects.get(name="h200-27b"), unfitted("h200-27b")),
    "price per token": lambda: ModelClass.objects.filter(name="qwen3.5-27b").update(price_out=99.0),
    "fleet": lambda: Backend.objects.filter(name="h200-4b").update(enabled=False),
}


def fewer_profiles() -> ProfileSet:
    """The same version, other content."""
    return replace(load_profiles(), pairs=load_profiles().pairs[:-1])


def unfitted(name: str) -> ServiceRates:
    now = rates_value(Backend.objects.get(name=name).rates.get(active=True))
    return replace(now, step_base_s=None, step_per_sequence_s=None)


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_planning_reads_invalidates(fleet: Fleet, what: str) -> None:
    before = compiled(fleet, bundle="priced").bundle
    CHANGES[what]()
    assert_another(before, compiled(fleet, bundle="priced").bundle)


def test_other_policies_invalidate(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another release would have them."""
    before = compiled(fleet).bundle
    fewer = {name: policy for name, policy in POLICIES.items() if name != "debate"}
    chosen = selectors.chosen_problem
    monkeypatch.setattr(selectors, "chosen_problem", lambda *given: replace(chosen(*given), policies=fewer))
    assert_another(before, compiled(fleet).bundle)


def test_other_prices_of_gpu_seconds_invalidate_priced_bundles_alone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels, priced = compiled(fleet).bundle, compiled(fleet, bundle="priced").bundle
    monkeypatch.setattr(pricing, "OTHER_PRICE", 0.8)
    assert_another(priced, compiled(fleet, bundle="priced").bundle)
    assert compiled(fleet).bundle == levels


def assert_another(before: PlanBundle, after: PlanBundle) -> None:
    assert after.key != before.key
    assert (fresh(before).hits, fresh(after).hits) == (0, 0)


def test_the_same_rates_under_another_number_find_the_same_bundle(fleet: Fleet) -> None:
    before = compiled(fleet, bundle="priced").bundle
    backend = Backend.objects.get(name="h200-27b")
    record_rates(backend, rates_value(backend.rates.get(active=True)))
    again = record_rates(backend, replace(rates_value(backend.rates.get(active=True)), source="calibrated"))
    assert again.version == 3
    assert compiled(fleet, bundle="priced").bundle == before
    assert fresh(before).hits == 1
    assert outdated_bundles() == 0


# --- Two kinds, and limits ---


def test_a_priced_bundle_is_prepared_with_the_fleets_prices(fleet: Fleet) -> None:
    bundle = compiled(fleet, bundle="priced").bundle
    assert (bundle.kind, bundle.levels) == ("priced", list(PRICE_LEVELS))
    prepare_variants(bundle.pk)
    found = bundle_value(fresh(bundle), workflow_value(version()))
    wanted = compile_bundle(problem_for(version(), fleet, PlanOptions(bundle="priced")))
    assert isinstance(wanted, Bundle)
    assert (found.kind, found.key, found.complete) == ("priced", wanted.key, True)
    assert [v.digest for v in found.variants] == [v.digest for v in wanted.variants]
    assert set(found.variants[0].terms) == {"log_quality", "gpu", "latency"}


def test_a_request_of_a_version_without_kinds_still_loads(fleet: Fleet) -> None:
    bundle = compiled(fleet).bundle
    old = {name: value for name, value in bundle.request["options"].items() if name not in ("bundle", "limits")}
    PlanBundle.objects.filter(pk=bundle.pk).update(request={**bundle.request, "options": old})
    prepare_variants(bundle.pk)
    assert fresh(bundle).state == "ready", fresh(bundle).error
    assert options_of_bundle(fresh(bundle), workflow_value(version())) == PlanOptions()


def test_limits_hold_and_are_shared_by_position(fleet: Fleet) -> None:
    """A pin names a node of its request's document; another document of the structure has other ids."""
    first = compiled(fleet, limits={"pin": {"draft": ["qwen3.5-9b"], "*": ["*/none"]}})
    assert first.plan.assignment["draft"].label == "qwen3.5-9b.none"
    second = compiled(fleet, prefix="x", limits={"pin": {"xdraft": ["qwen3.5-9b"], "*": ["*/none"]}})
    assert second.bundle == first.bundle
    assert second.plan.assignment["xanswer"].policy == "none"
    pinned = options_of_bundle(fresh(first.bundle), workflow_value(version(prefix="x"))).limits.pinned
    assert dict(pinned) == {"xdraft": ("qwen3.5-9b",), "*": ("*/none",)}
    prepare_variants(first.bundle.pk)
    assert fresh(first.bundle).state == "ready", fresh(first.bundle).error
    assert compiled(fleet).bundle != first.bundle


def test_limits_that_name_nothing_are_refused(fleet: Fleet) -> None:
    with pytest.raises(OptionsInvalid) as caught:
        compiled(fleet, limits={"pin": {"moon": ["qwen3.5-9b"]}, "calls": {"qwen9.5-4b": 3}})
    assert set(caught.value.problems) == {"limits.pin.moon", "limits.calls.qwen9.5-4b"}
    assert not PlanBundle.objects.exists()


# --- Plans that are not what they say ---


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler with a defect: every plan promises more than the inputs give."""
    honest = solve.decode
    monkeypatch.setattr(solve, "decode", lambda *given: replace(plan := honest(*given), makespan_s=plan.makespan_s / 2))


def test_a_plan_that_is_not_what_it_says_is_not_handed_out(
    fleet: Fleet, lying: None, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with pytest.raises(PlanRefused, match="defect of dyserve") as caught:
            compiled(fleet)
    assert caught.value.discrepancies[0].startswith("makespan_s")
    assert not PlanBundle.objects.exists()
    row = RefusedPlan.objects.get()
    assert (row.level, row.times, row.fleet) == (0.0, 2, fleet)
    assert row.discrepancies == list(caught.value.discrepancies)
    assert row.request["document"]["name"] == "Pair"
    assert "is refused: makespan_s" in caplog.text
    assert {record.levelname for record in caplog.records if "is refused" in record.message} == {"ERROR"}


def test_a_variant_that_is_not_what_it_says_is_not_stored(fleet: Fleet, request: pytest.FixtureRequest) -> None:
    bundle = compiled(fleet).bundle
    request.getfixturevalue("lying")
    prepare_variants(bundle.pk)
    assert fresh(bundle).state == "failed"
    assert fresh(bundle).error.startswith("PlanRefused")
    assert fresh(bundle).variants.count() == 1
    assert RefusedPlan.objects.get().level > 0


def test_a_stored_pi_0_that_is_not_what_it_says_is_set_aside(fleet: Fleet) -> None:
    """The next request plans anew: a damaged row does not block its structure for ever."""
    first = compiled(fleet).bundle
    store(first, replace(slowest(problem_for(version(), fleet, PlanOptions())), cost=0.0))
    with pytest.raises(PlanRefused):
        compiled(fleet, prefix="x")
    second = compiled(fleet, prefix="x").bundle
    assert second != first
    assert second.key == first.key
    assert fresh(first).key != first.key


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
