"""Everything that changes runs for a person or a program; their execution is the worker's."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import isfinite
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.utils import timezone

from fleet.models import Fleet
from fleet.selectors import default_fleet
from planner.compiler.limits import check_limits
from planner.errors import NoActiveProfiles, OptionsInvalid
from planner.importers.inputs import CheckedInputs, validate_inputs
from planner.importers.problems import Problem, pointer
from planner.models import WorkflowVersion
from planner.options import PlanOptions
from planner.selectors import problem_for, workflow_value
from runtime import composition
from runtime.engine.events import EventKind, RunState
from runtime.errors import IdempotencyConflict, InputsRejected
from runtime.models import ControllerSettings, IdempotencyKey, Run, RunEvent

logger = logging.getLogger(__name__)

KEY_LIFETIME = timedelta(hours=24)
MAX_DEADLINE_S = 7 * 86400.0
MAX_KEY_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedRun:
    """`created` is False when the idempotency key came before, with the same request."""

    run: Run
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    owner: AbstractBaseUser
    key: str
    digest: str


def submit_run(
    *,
    owner: AbstractBaseUser,
    version: WorkflowVersion,
    inputs: Mapping[str, Any],
    fleet: Fleet | None = None,
    deadline_s: float | None = None,
    effort: float | None = None,
    weights: Mapping[str, float] | str | None = None,
    bundle: str | None = None,
    limits: Mapping[str, Any] | None = None,
    controller: str = "",
    seed: int | None = None,
    source: str = "api",
    idempotency_key: str | None = None,
    request_digest: str = "",
) -> SubmittedRun:
    """Accept a run: once this returns it is in the database, and it will be executed.

    `deadline_s` is a target, by default the workflow's; `weights` a preset's name or overrides; `bundle` the kind of
    the plan's bundle, `limits` its hard limits as JSON. The caller has checked that the version is the owner's to run.
    Raises InputsRejected with every problem (pointers into the request), fleet.errors.NoDefaultFleet, and
    IdempotencyConflict when the key came before with another `request_digest`.
    """
    key = _Key(owner=owner, key=idempotency_key, digest=request_digest) if idempotency_key else None
    known = _run_of(key)
    if known is not None:
        return SubmittedRun(run=known, created=False)
    workflow = workflow_value(version)
    checked = validate_inputs(workflow.inputs, inputs, at="/inputs")
    planning = {"effort": effort, "weights": weights, "bundle": bundle, "limits": limits}
    options = _checked(checked, planning, _setting_problems(deadline_s, controller, seed, idempotency_key))
    fleet = fleet or default_fleet()
    _check_limits(version, fleet, options)
    run = Run(
        owner_id=owner.pk,
        fleet=fleet,
        version=version,
        inputs=dict(checked.values),
        source=source[:16],
        effort=options.effort,
        weights=options.to_json()["weights"],
        bundle_kind=options.bundle,
        limits=options.limits.to_json(),
        controller=controller,
        deadline_s=workflow.deadline_s if deadline_s is None else deadline_s,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        nodes_total=len(workflow.nodes),
        last_seq=1,
    )
    return _accept(run, key)


def _accept(run: Run, key: _Key | None) -> SubmittedRun:
    try:
        with transaction.atomic():
            run.save(force_insert=True)
            _append(run, 1, EventKind.RUN_ACCEPTED, run.accepted_at.timestamp(), _accepted(run))
            if key is not None:
                _remember(key, run)
            transaction.on_commit(partial(composition.publisher().run, run.pk))
    except IntegrityError:
        # The same key came at the same moment: the other request's run is found now.
        known = _run_of(key)
        if known is None:
            raise
        return SubmittedRun(run=known, created=False)
    return SubmittedRun(run=run, created=True)


def _accepted(run: Run) -> dict[str, Any]:
    return {
        "workflow": run.version.document.get("name", ""),
        "version": run.version.number,
        "deadline_s": run.deadline_s,
        "effort": run.effort,
        "bundle": run.bundle_kind,
        "limits": run.limits,
        "controller": run.controller,
    }


def _append(run: Run, seq: int, kind: EventKind, at: float, data: dict[str, Any]) -> None:
    RunEvent.objects.create(run=run, seq=seq, kind=kind, at=at, data=data)


# --- Validation ------------------------------------------------------------------------------------------------------


def _checked(checked: CheckedInputs, planning: Mapping[str, Any], settings: Iterable[Problem]) -> PlanOptions:
    """The planning options of a valid request. Raises InputsRejected with everything that is wrong."""
    problems = [*checked.problems, *settings]
    for name, value in planning.items():
        problems += _option_problems(**{name: value})
    if problems:
        raise InputsRejected(problems)
    return PlanOptions.of(**planning)


def _check_limits(version: WorkflowVersion, fleet: Fleet, options: PlanOptions) -> None:
    """Raises InputsRejected on limits that name nothing in the workflow or the fleet."""
    if options.limits.is_empty:
        return
    try:
        wrong = check_limits(problem_for(version, fleet, options))
    except NoActiveProfiles:
        return  # the run is accepted like any other: planning will say so
    if wrong:
        raise InputsRejected(_option_problem(f"limits.{name}", message) for name, message in wrong.items())


def _option_problems(**given: Any) -> list[Problem]:
    """What is wrong with one planning option; each is tried alone, so that the first does not hide the second."""
    try:
        PlanOptions.of(**given)
    except OptionsInvalid as error:
        return [_option_problem(option, message) for option, message in error.problems.items()]
    return []


def _option_problem(option: str, message: str) -> Problem:
    return Problem(
        code="invalid_option",
        pointer=pointer(*option.split(".", 2)),  # names of model classes and nodes hold dots
        message=f"{option} {message}.",
        remedy="Correct it, or leave it out for the default.",
    )


def _setting_problems(
    deadline_s: float | None, controller: str, seed: int | None, key: str | None
) -> Iterator[Problem]:
    if deadline_s is not None and not (isfinite(deadline_s) and 0 < deadline_s <= MAX_DEADLINE_S):
        yield _invalid("deadline_s", f"{deadline_s:g} s is no deadline", f"between 0 and {MAX_DEADLINE_S:g} seconds")
    if controller and controller not in ControllerSettings.Controller.values:
        known = ", ".join(ControllerSettings.Controller.values)
        yield _invalid("controller", f"there is no controller {controller!r:.40}", f"one of: {known}")
    if seed is not None and not 0 <= seed < 2**63:
        yield _invalid("seed", f"{seed} is no seed", "a whole number from 0 to 2^63 - 1")
    if key is not None and len(key) > MAX_KEY_LENGTH:
        yield Problem(
            code="invalid_option",
            message=f"The idempotency key has {len(key)} characters.",
            remedy=f"Use at most {MAX_KEY_LENGTH}.",
        )


def _invalid(option: str, what: str, wanted: str) -> Problem:
    return Problem(
        code="invalid_option",
        pointer=pointer(option),
        message=f"{what[0].upper()}{what[1:]}.",
        remedy=f"Give {wanted}, or leave it out.",
    )


# --- Idempotency -----------------------------------------------------------------------------------------------------


def _run_of(key: _Key | None) -> Run | None:
    """The run that the key made. Raises IdempotencyConflict when it came with another request."""
    if key is None:
        return None
    row = IdempotencyKey.objects.select_related("run__version").filter(owner_id=key.owner.pk, key=key.key).first()
    if row is None or row.created_at < timezone.now() - KEY_LIFETIME:
        return None
    if row.digest != key.digest:
        raise IdempotencyConflict(key.key)
    return row.run


def _remember(key: _Key, run: Run) -> None:
    """Raises IntegrityError when the key is taken; one that has outlived its time is not."""
    IdempotencyKey.objects.filter(
        owner_id=key.owner.pk, key=key.key, created_at__lt=timezone.now() - KEY_LIFETIME
    ).delete()
    IdempotencyKey.objects.create(owner_id=key.owner.pk, key=key.key, digest=key.digest, run=run)


def forget_old_keys() -> int:
    """Delete idempotency keys that have outlived their time; how many."""
    deleted, _ = IdempotencyKey.objects.filter(created_at__lt=timezone.now() - KEY_LIFETIME).delete()
    return deleted


# --- Cancel ----------------------------------------------------------------------------------------------------------


def cancel_run(*, run: Run, by: AbstractBaseUser) -> bool:
    """Ask a run to end as cancelled; False when it has ended already. A second request changes nothing.

    No dispatch intent is committed after this returns; a call whose intent came before may finish. A run that nobody
    has claimed ends at once.
    """
    now = time.time()
    with transaction.atomic():
        row = Run.objects.select_for_update(no_key=True).get(pk=run.pk)
        if RunState(row.state).ended:
            return False
        if row.cancel_requested_at is None:
            _record_cancel(row, by.get_username(), now)
    run.refresh_from_db()
    return True


def _record_cancel(row: Run, by: str, now: float) -> None:
    row.last_seq += 1
    row.cancel_requested_at, row.cancelled_by = now, by[:150]
    _append(row, row.last_seq, EventKind.CANCEL_REQUESTED, now, {"by": by})
    if row.state == RunState.QUEUED:
        row.last_seq += 1
        row.state, row.finished_at = RunState.CANCELLED, now
        _append(row, row.last_seq, EventKind.RUN_CANCELLED, now, {"duration_s": now - row.accepted_at.timestamp()})
    row.save(update_fields=["last_seq", "cancel_requested_at", "cancelled_by", "state", "finished_at"])
    publisher = composition.publisher()
    transaction.on_commit(partial(publisher.control, cancel=[row.pk]))
    transaction.on_commit(partial(publisher.poke, [(row.pk, row.last_seq)]))
