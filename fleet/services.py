"""Everything that changes the fleet. Changes by a person are audited in Django's log entries."""

from __future__ import annotations

import logging

from django.conf import settings
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import models, transaction

from fleet import demo
from fleet.errors import ReplicaRejected
from fleet.models import Backend, Fleet, ModelClass, RatesVersion, Replica
from fleet.serving.addresses import AddressPolicy, parse_networks
from fleet.serving.errors import AddressRefused
from fleet.serving.rates import ServiceRates

logger = logging.getLogger(__name__)


def address_policy() -> AddressPolicy:
    """The networks that the settings allow replicas to live in."""
    return AddressPolicy(networks=parse_networks(",".join(settings.ALLOWED_NETWORKS)))


def audit(by: AbstractBaseUser | None, row: models.Model, message: str, *, action: int = CHANGE) -> None:
    """Records who did what; a change that dyserve made itself (`by` None) leaves no entry."""
    if by is not None:
        LogEntry.objects.log_actions(by.pk, [row], action, message, single_object=True)


def set_replica_state(replica: Replica, state: str, by: AbstractBaseUser | None) -> Replica:
    """Enables, drains (no new calls, running ones finish) or disables a replica. Raises ValueError on another state."""
    new = Replica.State(state)
    with transaction.atomic():
        changed = Replica.objects.filter(pk=replica.pk).exclude(state=new).update(state=new)
        if changed:
            audit(by, replica, f"State set to {new.value}.")
    replica.state = new
    if changed:
        logger.info("replica %s is now %s (by %s)", replica.name, new.value, by or "dyserve")
    return replica


def register_replica(
    *, backend: Backend, name: str, url: str, api_key_env: str = "", by: AbstractBaseUser | None = None
) -> Replica:
    """A new replica of a backend. Raises ReplicaRejected with every problem by field."""
    replica = Replica(backend=backend, name=name, url=url.rstrip("/"), api_key_env=api_key_env)
    problems = check_address(replica.url)
    try:
        replica.full_clean()
    except ValidationError as error:
        problems = {**error.message_dict, **problems}
    if problems:
        raise ReplicaRejected(problems)
    with transaction.atomic():
        replica.save()
        audit(by, replica, "Registered.", action=ADDITION)
    return replica


def check_address(url: str) -> dict[str, list[str]]:
    """Problems of a replica's address by field; a host name is checked again whenever it is resolved."""
    try:
        address_policy().check_url(url)
    except AddressRefused as error:
        return {"url": [error.message]}
    return {}


def record_rates(backend: Backend, rates: ServiceRates, *, note: str = "", activate: bool = True) -> RatesVersion:
    """A new version of a backend's rates; earlier ones stay as they are, and inactive where the new one is active."""
    with transaction.atomic():
        # The backend's row is the lock: two calibrations at once get two numbers.
        Backend.objects.select_for_update().get(pk=backend.pk)
        last = backend.rates.aggregate(last=models.Max("version"))["last"] or 0
        if activate:
            backend.rates.filter(active=True).update(active=False)
        return RatesVersion.objects.create(
            backend=backend,
            version=last + 1,
            decode_tokens_per_s=rates.decode_tokens_per_s,
            prefill_base_s=rates.prefill_base_s,
            prefill_per_token_s=rates.prefill_per_token_s,
            concurrency=rates.concurrency,
            capacity=rates.capacity,
            time_scale=rates.time_scale,
            step_base_s=rates.step_base_s,
            step_per_sequence_s=rates.step_per_sequence_s,
            source=rates.source,
            active=activate,
            note=note,
        )


def activate_rates(rates: RatesVersion, by: AbstractBaseUser | None) -> None:
    """Makes an earlier version of a backend's rates the active one again."""
    with transaction.atomic():
        Backend.objects.select_for_update().get(pk=rates.backend_id)
        RatesVersion.objects.filter(backend_id=rates.backend_id, active=True).update(active=False)
        RatesVersion.objects.filter(pk=rates.pk).update(active=True)
        audit(by, rates, "Made active.")
    rates.active = True


# --- The demo fleet --------------------------------------------------------------------------------------------------


def seed_demo_fleet(base_port: int, time_scale: float) -> Fleet:
    """The demo fleet, with its replicas at 127.0.0.1:base_port and following; what exists already stays.

    A changed base port moves the replicas, a changed time scale makes new versions of the rates.
    """
    with transaction.atomic():
        fleet, _ = Fleet.objects.get_or_create(
            name=demo.FLEET, defaults={"is_default": not Fleet.objects.filter(is_default=True).exists()}
        )
        for backend in demo.BACKENDS:
            _seed_backend(fleet, backend, time_scale)
        _seed_replicas(base_port)
    return fleet


def _seed_backend(fleet: Fleet, given: demo.DemoBackend, time_scale: float) -> None:
    value = given.model_class()
    model_class, _ = ModelClass.objects.get_or_create(
        name=value.name,
        defaults={
            "size_rank": value.size_rank,
            "parameters_b": value.parameters_b,
            "context_tokens": value.context_tokens,
            "price_in": value.price_in,
            "price_out": value.price_out,
            "reasoning": value.reasoning,
        },
    )
    backend, _ = Backend.objects.get_or_create(
        name=given.name,
        defaults={
            "fleet": fleet,
            "model_class": model_class,
            "hardware": demo.HARDWARE,
            "max_num_seqs": demo.MAX_NUM_SEQS,
            "emulated": True,
        },
    )
    active = backend.rates.filter(active=True).first()
    if active is None or (active.source == RatesVersion.Source.ROOFLINE and active.time_scale != time_scale):
        record_rates(backend, given.rates(time_scale), note=f"emulated H200, time x {time_scale:g}")


def _seed_replicas(base_port: int) -> None:
    """In two steps where ports move, since an address may be another replica's until that one has moved as well."""
    wanted = {name: demo.replica_url(base_port, name) for name in demo.REPLICAS}
    existing = {replica.name: replica for replica in Replica.objects.filter(name__in=wanted)}
    moving = [replica for replica in existing.values() if replica.url != wanted[replica.name]]
    for replica in moving:
        Replica.objects.filter(pk=replica.pk).update(url=f"{wanted[replica.name]}/moving")
    for replica in moving:
        Replica.objects.filter(pk=replica.pk).update(url=wanted[replica.name])
    for given in demo.BACKENDS:
        backend = Backend.objects.get(name=given.name)
        for name in given.replicas:
            if name not in existing:
                Replica.objects.create(backend=backend, name=name, url=wanted[name])
