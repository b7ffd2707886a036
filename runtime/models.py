"""Runs and everything that is known of them. Engine rows: written by the store alone, read-only in the admin.

Times that the engine writes are epoch seconds; leases are on database time.
"""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from fleet.models import Fleet
from planner.models import PlanBundle, WorkflowVersion
from runtime.engine.events import EVENT_SCHEMA, NodeState, RunState
from runtime.identifiers import new_run_id


class ControllerSettings(models.Model):
    """MATH.md's switching rule for one fleet; bounds keep it meaningful. Effective without a restart."""

    class Controller(models.TextChoices):
        OFF = "off", "off (admission only)"
        THRESHOLD = "threshold", "threshold (the paper's rule)"

    fleet = models.OneToOneField(Fleet, on_delete=models.CASCADE, related_name="controller_settings")
    controller = models.CharField(max_length=12, choices=Controller.choices, default=Controller.THRESHOLD)
    high = models.FloatField(default=0.85, validators=[MinValueValidator(0.05), MaxValueValidator(10)])
    low = models.FloatField(default=0.5, validators=[MinValueValidator(0.01), MaxValueValidator(10)])
    ratio = models.FloatField(default=0.7, validators=[MinValueValidator(0.01), MaxValueValidator(1)])
    dwell_s = models.FloatField(default=5.0, validators=[MinValueValidator(0), MaxValueValidator(3600)])
    drop_absolute = models.FloatField(default=0.15, validators=[MinValueValidator(0), MaxValueValidator(1)])
    drop_relative = models.FloatField(default=0.25, validators=[MinValueValidator(0), MaxValueValidator(1)])
    count_planned = models.BooleanField(default=True, help_text="Count planned demand of switched runs into load.")

    class Meta:
        verbose_name = "controller settings"
        verbose_name_plural = "controller settings"
        constraints = [models.CheckConstraint(condition=models.Q(low__lt=models.F("high")), name="low_below_high")]

    def __str__(self) -> str:
        return f"{self.fleet}: {self.controller}"


class Run(models.Model):
    """One execution of a workflow. Accepted only once it is here; one owner worker at a time (lease with an epoch)."""

    id = models.CharField(primary_key=True, max_length=32, default=new_run_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="runs")
    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="runs")
    version = models.ForeignKey(WorkflowVersion, on_delete=models.PROTECT, related_name="runs")
    state = models.CharField(max_length=10, choices=[(s.value, s.value) for s in RunState], default=RunState.QUEUED)
    inputs = models.JSONField(default=dict)
    output = models.JSONField(null=True)
    error = models.JSONField(null=True)
    source = models.CharField(max_length=16, default="api")

    effort = models.FloatField(default=0.5)
    weights = models.JSONField(default=dict, help_text="Overrides of the planner's weights.")
    bundle_kind = models.CharField(max_length=10, choices=PlanBundle.Kind.choices, default=PlanBundle.Kind.LEVELS)
    limits = models.JSONField(default=dict, blank=True, help_text="Hard limits of the plan.")
    controller = models.CharField(max_length=12, blank=True, help_text="Empty: the fleet's.")
    deadline_s = models.FloatField(null=True)
    timeout_s = models.FloatField(null=True)
    seed = models.PositiveBigIntegerField(default=0)

    bundle = models.ForeignKey(PlanBundle, null=True, on_delete=models.PROTECT, related_name="runs")
    active_variant = models.PositiveSmallIntegerField(default=0)
    last_switch_at = models.FloatField(null=True)
    compile_s = models.FloatField(null=True)
    last_seq = models.PositiveIntegerField(default=0)

    epoch = models.PositiveIntegerField(default=0)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_expires_at = models.FloatField(null=True)
    enqueued_at = models.FloatField(null=True)
    enqueues = models.PositiveIntegerField(default=0, help_text="How often the reaper sent it to the broker again.")
    cancel_requested_at = models.FloatField(null=True)
    cancelled_by = models.CharField(max_length=150, blank=True)

    accepted_at = models.DateTimeField(auto_now_add=True)
    started_at = models.FloatField(null=True)
    finished_at = models.FloatField(null=True)
    late = models.BooleanField(null=True)

    nodes_total = models.PositiveIntegerField(default=0)
    nodes_done = models.PositiveIntegerField(default=0)
    calls = models.PositiveIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    switches = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["owner", "-id"], name="run_by_owner"),
            models.Index(fields=["state", "lease_expires_at"], name="run_by_lease"),
            models.Index(fields=["finished_at"], name="run_by_end"),
        ]

    def __str__(self) -> str:
        return self.id


class RunEvent(models.Model):
    """One line of a run's append-only log (runtime/engine/events.py has the payloads)."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=24)
    schema = models.PositiveSmallIntegerField(default=EVENT_SCHEMA)
    at = models.FloatField()
    data = models.JSONField()

    class Meta:
        ordering = ["run", "seq"]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="event_seq_once")]

    def __str__(self) -> str:
        return f"{self.run_id} {self.seq} {self.kind}"


class Invocation(models.Model):
    """One dispatched binding of a node and what came of it."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="invocations")
    node = models.CharField(max_length=64)
    attempt = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=4, choices=[("llm", "llm"), ("tool", "tool")])
    state = models.CharField(max_length=10, choices=[(s.value, s.value) for s in NodeState])
    variant = models.PositiveSmallIntegerField(null=True)
    binding = models.JSONField(null=True)
    arguments = models.JSONField(null=True)
    predicted_s = models.FloatField(default=0.0)
    dispatched_at = models.FloatField()
    finished_at = models.FloatField(null=True)
    output = models.JSONField(null=True)
    error = models.JSONField(null=True)
    calls = models.PositiveIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ["run", "id"]
        constraints = [models.UniqueConstraint(fields=["run", "node", "attempt"], name="invocation_once")]

    def __str__(self) -> str:
        return f"{self.run_id} {self.node} #{self.attempt}"


class Call(models.Model):
    """One HTTP request of an invocation: what was asked, what came back, when and where."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="call_rows")
    node = models.CharField(max_length=64)
    attempt = models.PositiveSmallIntegerField()
    stage = models.PositiveSmallIntegerField()
    role = models.CharField(max_length=32)
    copy = models.PositiveSmallIntegerField()
    model = models.CharField(max_length=63)
    backend = models.CharField(max_length=63)
    replica = models.CharField(max_length=63, blank=True)
    request_id = models.CharField(max_length=120)
    messages = models.JSONField()
    text = models.TextField(blank=True)
    reasoning = models.TextField(blank=True)
    verdict = models.CharField(max_length=16, blank=True)
    error = models.TextField(blank=True)
    finish_reason = models.CharField(max_length=32, blank=True)
    prompt_tokens = models.PositiveIntegerField()
    output_tokens = models.PositiveIntegerField()
    tries = models.PositiveSmallIntegerField(default=1)
    started_at = models.FloatField()
    finished_at = models.FloatField()
    queue_s = models.FloatField(null=True)
    ttft_s = models.FloatField(null=True)

    class Meta:
        ordering = ["run", "id"]
        indexes = [models.Index(fields=["run", "node", "attempt"], name="call_by_invocation")]

    def __str__(self) -> str:
        return self.request_id


class LedgerEntry(models.Model):
    """One switch or one refusal with everything the rule read; `seq` is its event's."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="ledger")
    seq = models.PositiveIntegerField()
    at = models.FloatField()
    active_variant = models.PositiveSmallIntegerField()
    to_variant = models.PositiveSmallIntegerField(null=True)
    reason = models.CharField(max_length=40)
    text = models.TextField()
    loads = models.JSONField()
    thresholds = models.JSONField()
    candidates = models.JSONField()
    changed = models.JSONField()
    kept = models.JSONField()

    class Meta:
        ordering = ["run", "seq"]
        verbose_name_plural = "ledger entries"
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="ledger_seq_once")]

    def __str__(self) -> str:
        return f"{self.run_id} {self.seq} {self.reason}"


class IdempotencyKey(models.Model):
    """A key that an owner sent with POST of runs, with the digest of what came with it."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    digest = models.CharField(max_length=64)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="idempotency_key_once")]

    def __str__(self) -> str:
        return self.key
