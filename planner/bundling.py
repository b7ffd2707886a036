"""Bundles in the database (paper 4.4): pi(0) for every request at once, the other variants once per structure.

One row per structural key, shared by every run and version of that structure. Whoever creates the row has the plans
worker prepare it; everyone else gets what is there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from fleet.catalogs import catalog_from_json, catalog_to_json
from fleet.models import Fleet
from fleet.redis import REDIS_ERRORS
from planner.compiler.bundle import compile_bundle, structural_key, to_positions
from planner.compiler.certificate import verify_plan
from planner.compiler.limits import check_limits
from planner.compiler.plan import Bundle, Infeasible, Plan
from planner.compiler.problem import PlanningProblem
from planner.compiler.solve import compile_plan
from planner.compiler.workflow import Workflow
from planner.errors import NoActiveProfiles, OptionsInvalid, PlanInfeasible, PlanRefused
from planner.models import PlanBundle, PlanVariant, RefusedPlan, WorkflowVersion
from planner.options import PlanOptions
from planner.outbox import BROKER_ERRORS, outbox
from planner.selectors import (
    active_profile_version,
    chosen_problem,
    problem_for,
    profiles_of,
    variant_value,
    workflow_of_document,
)

logger = logging.getLogger(__name__)

CONTROL_GROUP = "dyserve.control"
UNSENT_AFTER_S = 5.0
LOST_AFTER_S = 60.0
RETRY_FAILED_AFTER_S = 60.0
TELL_TIMEOUT_S = 2.0
_GIVEN = ("fleet", "state", "ready_at", "kind", "levels", "weights", "effort", "versions", "request")
"""What the request that makes a row gives it, beside the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledVersion:
    """`plan` is pi(0) under the workflow's own node ids; `compile_s` covers everything a request waited for."""

    bundle: PlanBundle
    plan: Plan
    compile_s: float


# --- A request -------------------------------------------------------------------------------------------------------


def compile_version(
    version: WorkflowVersion,
    *,
    fleet: Fleet,
    options: PlanOptions,
    known_prompt_tokens: Mapping[str, int] | None = None,
) -> CompiledVersion:
    """Solves pi(0), and finds or creates the bundle of the version's structure.

    Raises PlanInfeasible with every reason, OptionsInvalid on limits that name nothing, PlanRefused, NoActiveProfiles,
    ValueError on prompt lengths of unknown nodes.
    """
    started = time.perf_counter()
    problem = problem_for(version, fleet, options, known_prompt_tokens)
    wrong = check_limits(problem)
    if wrong:
        raise OptionsInvalid({f"limits.{name}": message for name, message in wrong.items()})
    plan = compile_plan(problem, options.levels[0], time_limit_s=settings.COMPILE_TIME_LIMIT_S)
    if isinstance(plan, Infeasible):
        raise PlanInfeasible.of(plan)
    wanted = _row(version, fleet, options, problem)
    _check(wanted, problem, plan)
    bundle, created = _find_or_create(wanted, to_positions(plan, problem.workflow))
    if not created:
        plan = _shared(bundle, plan, problem)
    return CompiledVersion(bundle=bundle, plan=plan, compile_s=time.perf_counter() - started)


def _row(version: WorkflowVersion, fleet: Fleet, options: PlanOptions, problem: PlanningProblem) -> PlanBundle:
    """The row that the request would make; not stored."""
    alone = len(options.levels) == 1
    return PlanBundle(
        key=structural_key(problem, options.levels),
        fleet=fleet,
        state=PlanBundle.State.READY if alone else PlanBundle.State.PREPARING,
        ready_at=timezone.now() if alone else None,
        kind=options.bundle,
        levels=list(options.levels),
        weights=asdict(options.weights),
        effort=options.effort,
        versions=dict(problem.versions),
        request=_request(version, options, problem),
    )


def _find_or_create(wanted: PlanBundle, plan: Plan) -> tuple[PlanBundle, bool]:
    """The row of the structure, and whether this request made it; a row is never seen without its variant 0."""
    alone = wanted.state == PlanBundle.State.READY
    values = {name: getattr(wanted, name) for name in _GIVEN}
    with transaction.atomic():
        bundle, created = PlanBundle.objects.get_or_create(key=wanted.key, defaults=values)
        if created:
            _store_variant(bundle, 0, plan)
            if not alone:
                _enqueue_on_commit(bundle.pk)
        else:
            PlanBundle.objects.filter(pk=bundle.pk).update(hits=F("hits") + 1)
            _retry_failed(bundle)
    return bundle, created


def _shared(bundle: PlanBundle, plan: Plan, problem: PlanningProblem) -> Plan:
    """The bundle's own pi(0) where this solve found another plan (a tie, or an incumbent at the time limit).

    Variants are compared with each other, so all runs of a bundle start from the same one.
    """
    stored = bundle.variants.get(index=0)
    if stored.digest == to_positions(plan, problem.workflow).digest:
        return plan
    logger.info("bundle %s: pi(0) of this request differs from the stored one, which is used", bundle)
    used = replace(variant_value(stored, problem.workflow), solve_s=plan.solve_s)
    try:
        _check(bundle, problem, used)
    except PlanRefused:
        _set_aside(bundle)
        raise
    return used


# --- Plans that are not what they say --------------------------------------------------------------------------------


def _check(bundle: PlanBundle, problem: PlanningProblem, plan: Plan) -> None:
    """Every plan is certified before it is stored or handed out. Raises PlanRefused, once the plan is recorded."""
    discrepancies = verify_plan(problem, plan)
    if discrepancies:
        logger.error("bundle %s: the plan at level %g is refused: %s", bundle, plan.level, "; ".join(discrepancies))
        _record_refused(bundle, plan, discrepancies)
        raise PlanRefused(discrepancies)


def _set_aside(bundle: PlanBundle) -> None:
    """The next request makes a new bundle; runs that have this one keep it."""
    PlanBundle.objects.filter(pk=bundle.pk).update(key=f"{bundle.key}-refused-{bundle.pk}")


def _record_refused(bundle: PlanBundle, plan: Plan, discrepancies: tuple[str, ...]) -> None:
    """One row per key and level, however often it happens."""
    values = {"fleet_id": bundle.fleet_id, "discrepancies": list(discrepancies), "plan": plan.to_json()}
    row, created = RefusedPlan.objects.get_or_create(
        key=bundle.key, level=plan.level, defaults={**values, "request": bundle.request}
    )
    if not created:
        RefusedPlan.objects.filter(pk=row.pk).update(times=F("times") + 1, last_at=timezone.now())


def _store_variant(bundle: PlanBundle, index: int, plan: Plan) -> PlanVariant:
    """`plan` names its nodes by position."""
    return PlanVariant.objects.create(
        bundle=bundle,
        index=index,
        level=plan.level,
        dominant_model=plan.dominant_model or "",
        estimated_quality=plan.estimated_quality,
        makespan_s=plan.makespan_s,
        cost=plan.cost,
        objective=plan.objective,
        solver=plan.solver,
        solve_s=plan.solve_s,
        gap=plan.gap,
        digest=plan.digest,
        plan=plan.to_json(),
    )


# --- What the plans worker needs -------------------------------------------------------------------------------------


def _request(version: WorkflowVersion, options: PlanOptions, problem: PlanningProblem) -> dict[str, Any]:
    """Everything to build the same problem again, whatever changes in the fleet or the profiles meanwhile."""
    profiles = active_profile_version()
    if profiles is None:
        raise NoActiveProfiles
    return {
        "document": version.document,
        "options": options.to_json(),
        "catalog": catalog_to_json(problem.catalog),
        "profiles": {"id": profiles.pk, "digest": profiles.digest},
        "known_prompt_tokens": dict(problem.known_prompt_tokens),
    }


def _problem(request: Mapping[str, Any], options: PlanOptions) -> PlanningProblem:
    return chosen_problem(
        workflow_of_document(request["document"]),
        catalog_from_json(request["catalog"]),
        profiles_of(request["profiles"]["id"], request["profiles"]["digest"]),
        options,
        request["known_prompt_tokens"],
    )


# --- The plans worker ------------------------------------------------------------------------------------------------


def prepare_variants(bundle_id: int) -> None:
    """Solves the further levels and stores them; running it again changes nothing. A failure is stored, not raised."""
    bundle = PlanBundle.objects.filter(pk=bundle_id, state=PlanBundle.State.PREPARING).first()
    if bundle is None:
        return
    try:
        prepared = _solve(bundle)
    except Exception as error:  # kept in the row, where people look for it; the broker could only repeat it
        logger.exception("bundle %s could not be prepared", bundle)
        _fail(bundle, f"{type(error).__name__}: {error}")
        return
    if isinstance(prepared, Infeasible):
        _fail(bundle, prepared.text)
        return
    _store(bundle_id, prepared)


def _solve(bundle: PlanBundle) -> tuple[Plan, ...] | Infeasible:
    """The further variants, named by position, in order of level. Raises PlanRefused when one fails its check."""
    options = PlanOptions.from_json(bundle.request["options"])
    problem = _problem(bundle.request, options)
    if structural_key(problem, options.levels) != bundle.key:
        raise ValueError("its request makes another key now: dyserve was updated meanwhile, a new request plans anew")
    first = variant_value(bundle.variants.get(index=0), problem.workflow)
    solved = compile_bundle(problem, options.levels, first=first, time_limit_s=settings.COMPILE_TIME_LIMIT_S)
    if isinstance(solved, Infeasible):
        return solved
    for plan in solved.variants[1:]:
        _check(bundle, problem, plan)
    return _further(solved, problem.workflow)


def _further(bundle: Bundle, workflow: Workflow) -> tuple[Plan, ...]:
    return tuple(to_positions(plan, workflow) for plan in bundle.variants[1:])


def _store(bundle_id: int, plans: tuple[Plan, ...]) -> None:
    with transaction.atomic():
        bundle = PlanBundle.objects.select_for_update().get(pk=bundle_id)
        if bundle.state != PlanBundle.State.PREPARING:
            return
        for index, plan in enumerate(plans, start=1):
            _store_variant(bundle, index, plan)
        bundle.state, bundle.ready_at, bundle.error = PlanBundle.State.READY, timezone.now(), ""
        bundle.save(update_fields=["state", "ready_at", "error"])
        transaction.on_commit(partial(notify_bundle, bundle_id))


def _fail(bundle: PlanBundle, error: str) -> None:
    PlanBundle.objects.filter(pk=bundle.pk, state=PlanBundle.State.PREPARING).update(
        state=PlanBundle.State.FAILED, error=error[:2000]
    )


def notify_bundle(bundle_id: int) -> None:
    """Tells the workers that a bundle is ready. A lost message costs time only: they look again by themselves."""
    try:
        async_to_sync(_tell)({"type": "control", "bundles": [bundle_id]})
    except REDIS_ERRORS as error:
        reason = str(error) or type(error).__name__
        logger.warning("bundle %s is ready, but nobody could be told: %s", bundle_id, reason)


async def _tell(message: Mapping[str, Any]) -> None:
    """Raises one of REDIS_ERRORS, TimeoutError for a server that hangs: the next bundle must not wait for it."""
    async with asyncio.timeout(TELL_TIMEOUT_S):
        await get_channel_layer().group_send(CONTROL_GROUP, message)


# --- Messages to the plans worker ------------------------------------------------------------------------------------


def _enqueue_on_commit(bundle_id: int) -> None:
    send = partial(send_preparation, bundle_id)
    transaction.on_commit(lambda: outbox().put(f"the preparation of bundle {bundle_id}", send))


def send_preparation(bundle_id: int) -> None:
    """Sends the task and notes when. Raises one of BROKER_ERRORS."""
    from planner.tasks import prepare_bundle  # the tasks module imports the services

    prepare_bundle.apply_async(args=(bundle_id,), retry=False)
    PlanBundle.objects.filter(pk=bundle_id).update(enqueued_at=time.time())


def _retry_failed(bundle: PlanBundle) -> None:
    """A request for a failed bundle has it prepared again, at most once a minute; one of several requests does it."""
    if bundle.state != PlanBundle.State.FAILED:
        return
    now = time.time()
    due = Q(enqueued_at__isnull=True) | Q(enqueued_at__lt=now - RETRY_FAILED_AFTER_S)
    rows = PlanBundle.objects.filter(due, pk=bundle.pk, state=PlanBundle.State.FAILED)
    if rows.update(state=PlanBundle.State.PREPARING, error="", enqueued_at=now):
        bundle.state = PlanBundle.State.PREPARING
        _enqueue_on_commit(bundle.pk)


def requeue_lost_bundles(now: float | None = None) -> int:
    """Sends again what was never sent, or was sent a minute ago and is still not prepared; returns how many.

    For the reaper: it may wait for the broker, and stops at the first message that the broker does not take.
    """
    now = time.time() if now is None else now
    created_before = datetime.fromtimestamp(now - UNSENT_AFTER_S, tz=UTC)
    lost = Q(enqueued_at__isnull=True, created_at__lt=created_before) | Q(enqueued_at__lt=now - LOST_AFTER_S)
    waiting = PlanBundle.objects.filter(lost, state=PlanBundle.State.PREPARING).order_by("pk")
    sent = 0
    for bundle_id in list(waiting.values_list("pk", flat=True)[:100]):
        try:
            send_preparation(bundle_id)
        except BROKER_ERRORS as error:
            logger.warning("%d bundles wait for the broker: %s", waiting.count(), error)
            break
        sent += 1
    return sent
