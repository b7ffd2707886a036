"""`/metrics` for Prometheus, read from the database and Redis at every scrape: any web process tells the same.

Counters are sums over rows: they fall when retention deletes runs, which Prometheus takes for a restart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from django.db.models import Count, Q, Sum
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from dyserve_site.callers import may_see_figures
from fleet.common.problems import forbidden, problem_response
from fleet.models import Backend, Fleet
from fleet.redis import REDIS_ERRORS, monitor_age_s
from fleet.selectors import pressure
from fleet.serving.pressure import FleetPressure
from planner.models import PlanBundle, RefusedPlan
from planner.selectors import outdated_bundles
from runtime.engine.events import RunState
from runtime.models import LedgerEntry, Run


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    if not may_see_figures(request):
        return problem_response(request, forbidden("Ask from this machine, or send a token with the scope fleet:read."))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class Figures(Collector):
    """Everything of one scrape; a handful of aggregate queries."""

    def collect(self) -> Iterator[Metric]:
        yield from _runs()
        yield from _bundles()
        yield from _monitor(time.time())
        yield from _fleets()


def _runs() -> Iterator[Metric]:
    states = GaugeMetricFamily("dyserve_runs", "Runs by state.", labels=["state"])
    counts = dict(Run.objects.order_by().values_list("state").annotate(Count("pk")))
    for state in RunState:
        states.add_metric([state.value], counts.get(state.value, 0))
    yield states
    sums = Run.objects.aggregate(calls=Sum("calls"), prompt=Sum("prompt_tokens"), output=Sum("output_tokens"))
    yield CounterMetricFamily("dyserve_calls", "HTTP calls to replicas.", value=sums["calls"] or 0)
    tokens = CounterMetricFamily("dyserve_tokens", "Tokens by kind.", labels=["kind"])
    tokens.add_metric(["prompt"], sums["prompt"] or 0)
    tokens.add_metric(["output"], sums["output"] or 0)
    yield tokens
    late = Run.objects.filter(late=True).count()
    yield CounterMetricFamily("dyserve_late_runs", "Runs that ended after their deadline.", value=late)
    decisions = CounterMetricFamily("dyserve_switch_decisions", "Ledger entries.", labels=["outcome", "reason"])
    refused = Q(to_variant=None)
    rows = LedgerEntry.objects.order_by().values("reason")
    for row in rows.annotate(refused=Count("pk", filter=refused), switched=Count("pk", filter=~refused)):
        for outcome in ("refused", "switched"):
            decisions.add_metric([outcome, row["reason"]], row[outcome])
    yield decisions


def _bundles() -> Iterator[Metric]:
    sums = PlanBundle.objects.aggregate(hits=Sum("hits"), misses=Count("pk"))
    yield CounterMetricFamily("dyserve_bundle_hits", "Requests that found their bundle.", value=sums["hits"] or 0)
    yield CounterMetricFamily("dyserve_bundle_misses", "Bundles that had to be made.", value=sums["misses"])
    states = GaugeMetricFamily("dyserve_bundles", "Bundles by state.", labels=["state"])
    counts = dict(PlanBundle.objects.order_by().values_list("state").annotate(Count("pk")))
    for state in PlanBundle.State:
        states.add_metric([state.value], counts.get(state.value, 0))
    yield states
    outdated = outdated_bundles()
    yield GaugeMetricFamily("dyserve_bundles_outdated", "Bundles that no request finds any more.", value=outdated)
    times = RefusedPlan.objects.aggregate(times=Sum("times"))["times"] or 0
    yield CounterMetricFamily("dyserve_plans_refused", "Plans that failed their check, a defect.", value=times)


def _monitor(now: float) -> Iterator[Metric]:
    """No sample at all without a heartbeat: an age that is unknown is no number."""
    family = GaugeMetricFamily("dyserve_monitor_age_seconds", "Seconds since the monitor's heartbeat.")
    try:
        age_s = monitor_age_s(now)
    except REDIS_ERRORS:
        age_s = None
    if age_s is not None:
        family.add_metric([], age_s)
    yield family


def _fleets() -> Iterator[Metric]:
    published = {fleet.name: pressure(fleet) for fleet in Fleet.objects.all()}
    known = {name: item for name, item in published.items() if item is not None}
    emulated = GaugeMetricFamily(
        "dyserve_backend_emulated", "1: its figures come from an emulator.", labels=["backend"]
    )
    for name, is_emulated in Backend.objects.values_list("name", "emulated"):
        emulated.add_metric([name], float(is_emulated))
    yield emulated
    yield from _classes(known)
    yield from _replicas(known)


def _classes(known: dict[str, FleetPressure]) -> Iterator[Metric]:
    """An unknown load has no sample; no healthy replica is +Inf."""
    labels = ["fleet", "model"]
    load = GaugeMetricFamily("dyserve_class_load", "Load per model class, a fraction of capacity.", labels=labels)
    planned = GaugeMetricFamily("dyserve_class_planned", "Planned demand per model class, sequences.", labels=labels)
    capacity = GaugeMetricFamily("dyserve_class_capacity", "Capacity per model class, sequences.", labels=labels)
    for fleet, item in known.items():
        for one in item.classes:
            if one.load is not None:
                load.add_metric([fleet, one.model], math.inf if one.state == "overloaded" else one.load)
            planned.add_metric([fleet, one.model], one.planned)
            capacity.add_metric([fleet, one.model], one.capacity)
    yield from (load, planned, capacity)


_SIGNALS = {
    "running": "Requests running.",
    "waiting": "Requests waiting.",
    "inflight": "Own calls in flight.",
    "load": "Outstanding over capacity.",
    "kv_usage": "Share of the KV cache in use.",
    "prompt_tokens_per_s": "Prompt tokens per second.",
    "generation_tokens_per_s": "Output tokens per second.",
    "age_s": "Seconds since the last good scrape.",
}


def _replicas(known: dict[str, FleetPressure]) -> Iterator[Metric]:
    """A signal that is missing has no sample: it must not be read as 0."""
    labels = ["fleet", "replica", "model"]
    families = {
        name: GaugeMetricFamily(f"dyserve_replica_{name}", help_text, labels=labels)
        for name, help_text in _SIGNALS.items()
    }
    health = GaugeMetricFamily("dyserve_replica_state", "1 for the replica's state.", labels=[*labels, "state"])
    for fleet, item in known.items():
        for one in item.replicas:
            who = [fleet, one.replica, one.model]
            health.add_metric([*who, one.state], 1)
            for name, family in families.items():
                value = getattr(one, name)
                if value is not None:
                    family.add_metric(who, value)
    yield health
    yield from families.values()
