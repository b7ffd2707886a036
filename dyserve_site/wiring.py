"""The composition root: the only module that puts adapters together. Apps reach it through runtime.composition."""

from __future__ import annotations

import os
import signal
from typing import Any
from urllib.parse import urlsplit

from channels.layers import get_channel_layer
from django.conf import settings

from fleet.emulator.config import EmulatorConfig, ReplicaConfig, to_json
from fleet.models import Fleet, Replica
from fleet.selectors import catalog_for
from fleet.services import address_policy
from fleet.serving.client import ServingClient
from fleet.serving.pool import PoolSettings
from planner.compiler.profile import mean_answer_tokens, rejection_probabilities
from planner.selectors import active_profiles
from planner.services import compile_version, requeue_lost_bundles
from runtime import composition, leases
from runtime.adapters.fleet import FleetLink
from runtime.engine.clock import SystemClock
from runtime.pokes import PokeSender
from runtime.publisher import Publisher
from runtime.reaper import Reaper, ReaperSettings
from runtime.store import DjangoRunStore, Journal, write_batch
from runtime.tasks import execute_run, housekeeping
from runtime.worker import RunsWorker, WorkerParts, WorkerSettings
from runtime.writer import Writer


def enqueue_run(run_id: str) -> None:
    """Raises the broker's errors; never tries for longer than the broker's time-outs."""
    execute_run.apply_async((run_id,), retry=False)


def enqueue_housekeeping() -> None:
    """Raises the broker's errors."""
    housekeeping.apply_async(retry=False)


def publisher() -> Publisher:
    return Publisher(enqueue=enqueue_run, layer=get_channel_layer())


def reaper() -> Reaper:
    return Reaper(
        settings=ReaperSettings(lease_s=settings.LEASE_S),
        enqueue=enqueue_run,
        requeue_bundles=requeue_lost_bundles,
        housekeeping=enqueue_housekeeping,
    )


def worker() -> RunsWorker:
    worker_id, clock, layer = leases.new_worker_id(), SystemClock(), get_channel_layer()
    pokes = PokeSender(layer)
    writer = Writer(
        write=write_batch,
        new_journal=Journal,
        window_s=settings.COMMIT_WINDOW_S,
        patience_s=settings.LEASE_S,
        on_written=pokes.add_from_thread,
    )
    parts = WorkerParts(
        worker_id=worker_id,
        clock=clock,
        writer=writer,
        store=DjangoRunStore(writer),
        link=FleetLink(
            worker=worker_id,
            client=ServingClient(policy=address_policy()),
            clock=clock,
            settings=PoolSettings(choice=settings.REPLICA_CHOICE, affinity_margin=settings.AFFINITY_MARGIN),
        ),
        pokes=pokes,
        layer=layer,
        compile_plan=compile_version,
        publish=composition.publisher().run,
        on_broken=lambda: os.kill(os.getpid(), signal.SIGTERM),
    )
    return RunsWorker(parts, WorkerSettings(runs=settings.RUNS_PER_WORKER, lease_s=settings.LEASE_S))


# --- The emulated fleet ----------------------------------------------------------------------------------------------


def emulator_config(fleet: Fleet, *, time_scale: float, seed: int) -> dict[str, Any]:
    """The emulator's configuration file as JSON: its replicas from the fleet's emulated backends, its rejections and
    the length of its answers from the active profiles (the fleet imports no planner, so they meet here).

    Raises planner.errors.NoActiveProfiles, and ConfigError when the emulator cannot serve such a replica.
    """
    replicas = (
        Replica.objects.filter(backend__fleet=fleet, backend__emulated=True)
        .select_related("backend__model_class")
        .order_by("backend__name", "name")
    )
    profiles, catalog = active_profiles(), catalog_for(fleet)
    answer_tokens = mean_answer_tokens(profiles, catalog)
    config = EmulatorConfig(
        replicas=tuple(_emulated(replica) for replica in replicas),
        time_scale=time_scale,
        seed=seed,
        reject_probability=rejection_probabilities(profiles, catalog),
        mean_output_tokens={} if answer_tokens is None else {"text": answer_tokens},
    )
    return to_json(config)


def _emulated(replica: Replica) -> ReplicaConfig:
    backend, address = replica.backend, urlsplit(replica.url)
    return ReplicaConfig(
        name=replica.name,
        model=backend.served_name or backend.model_class.name,
        hardware=backend.hardware,
        host=address.hostname or "127.0.0.1",
        port=address.port or 80,
        max_num_seqs=backend.max_num_seqs,
        max_model_len=backend.model_class.context_tokens,
    )
