"""`manage.py monitor`: polls the replicas, publishes pressure, runs the periodic jobs of the upper layers."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils.module_loading import import_string

from fleet.monitor import Hook, Monitor, MonitorSettings
from fleet.records import DatabaseRecords, in_a_thread
from fleet.redis import LeaderLock, async_connection
from fleet.services import address_policy
from fleet.serving.client import ServingClient
from fleet.watch import WatchSettings

DEFAULT_HOOKS = ("runtime.reaper.sweep",)


def load_hooks() -> Mapping[str, Hook]:
    """The periodic jobs that DYSERVE_MONITOR_HOOKS names by dotted path; the fleet itself knows none of them."""
    paths = getattr(settings, "DYSERVE_MONITOR_HOOKS", DEFAULT_HOOKS)
    try:
        return {path: in_a_thread(import_string(path)) for path in paths}
    except ImportError as error:
        raise CommandError(f"DYSERVE_MONITOR_HOOKS: {error}; name existing functions by dotted path") from error


def monitor_settings() -> MonitorSettings:
    interval_s = settings.POLL_INTERVAL_S
    return MonitorSettings(
        watch=WatchSettings(interval_s=interval_s, timeout_s=max(1.0, interval_s)),
        retention_s=settings.SAMPLE_RETENTION_S,
    )


def holder() -> str:
    """Unique over hosts, processes and containers, which may share a host name and a process number."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


async def watch_fleet(hooks: Mapping[str, Hook]) -> None:
    """Runs one monitor until SIGINT or SIGTERM."""
    connection = async_connection()
    try:
        async with ServingClient(policy=address_policy()) as client:
            monitor = Monitor(
                lock=LeaderLock(holder=holder()),
                client=client,
                connection=connection,
                records=DatabaseRecords(),
                settings=monitor_settings(),
                hooks=hooks,
            )
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, monitor.stop)
            await monitor.run()
    finally:
        await connection.aclose()


class Command(BaseCommand):
    help = "Polls all replicas and publishes pressure. Several may run; one leads, the others stand by."

    def handle(self, *args: Any, **options: Any) -> None:
        asyncio.run(watch_fleet(load_hooks()))
