"""Workflows and their immutable versions, profiles, and the plans made of them."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from fleet.models import Fleet


class Workflow(models.Model):
    """A named workflow of one owner; its content lives in its versions."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="workflows")
    name = models.CharField(max_length=200)
    slug = models.SlugField(max_length=80)
    description = models.TextField(blank=True)
    archived = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [models.UniqueConstraint(fields=["owner", "slug"], name="workflow_slug_once")]

    def __str__(self) -> str:
        return self.name


class WorkflowVersion(models.Model):
    """An immutable DAG. Without a workflow it belongs to runs that brought their DAG inline."""

    workflow = models.ForeignKey(Workflow, null=True, on_delete=models.CASCADE, related_name="versions")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    number = models.PositiveIntegerField(null=True)
    document = models.JSONField(help_text="The canonical native document.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the canonical document.")
    source_format = models.CharField(max_length=32)
    source_name = models.CharField(max_length=255, blank=True)
    source = models.TextField(blank=True, help_text="The document as it was uploaded.")
    notes = models.JSONField(default=list, help_text="What the importer derived, and why.")
    node_count = models.PositiveIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["workflow", "number"], name="version_number_once"),
            models.UniqueConstraint(fields=["workflow", "digest"], name="version_content_once"),
            models.UniqueConstraint(
                fields=["owner", "digest"], condition=Q(workflow__isnull=True), name="inline_content_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.document.get('name', 'workflow')} v{self.number or 'inline'}"


class ProfileVersion(models.Model):
    """Measured (or illustrative) pair profiles and vulnerabilities; never overwritten, one is active."""

    name = models.CharField(max_length=100)
    version = models.PositiveIntegerField(unique=True)
    document = models.JSONField()
    digest = models.CharField(max_length=64)
    illustrative = models.BooleanField(help_text="Not measured on this fleet; marked so wherever it is used.")
    active = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-version"]
        constraints = [models.UniqueConstraint(fields=["active"], condition=Q(active=True), name="one_active_profile")]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


class PlanBundle(models.Model):
    """The variants of one planning structure, shared by every run and version of that structure (MATH.md, Bundle)."""

    class State(models.TextChoices):
        PREPARING = "preparing"
        READY = "ready"
        FAILED = "failed"

    class Kind(models.TextChoices):
        LEVELS = "levels"
        PRICED = "priced"

    key = models.CharField(max_length=64, unique=True)
    fleet = models.ForeignKey(Fleet, on_delete=models.CASCADE, related_name="bundles")
    state = models.CharField(max_length=10, choices=State.choices, default=State.PREPARING)
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.LEVELS)
    levels = models.JSONField(help_text="Specialization levels, or prices m in a priced bundle.")
    weights = models.JSONField()
    effort = models.FloatField()
    versions = models.JSONField(help_text="Versions of profiles, rates and policies the plans were made with.")
    request = models.JSONField(help_text="The canonical document and settings to prepare the variants from.")
    error = models.TextField(blank=True)
    hits = models.PositiveIntegerField(default=0)
    enqueued_at = models.FloatField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ready_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.key[:12]


class PlanVariant(models.Model):
    """One plan of a bundle. `plan` is planner.compiler.plan.Plan as JSON with nodes named by their position."""

    bundle = models.ForeignKey(PlanBundle, on_delete=models.CASCADE, related_name="variants")
    index = models.PositiveSmallIntegerField()
    level = models.FloatField()
    dominant_model = models.CharField(max_length=63, blank=True)
    estimated_quality = models.FloatField()
    makespan_s = models.FloatField()
    cost = models.FloatField()
    objective = models.FloatField()
    solver = models.CharField(max_length=40)
    solve_s = models.FloatField()
    gap = models.FloatField()
    digest = models.CharField(max_length=64)
    plan = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["bundle", "index"]
        constraints = [models.UniqueConstraint(fields=["bundle", "index"], name="variant_index_once")]

    def __str__(self) -> str:
        return f"{self.bundle} variant {self.index}"


class RefusedPlan(models.Model):
    """A plan that was not what it said: never handed out, kept to be looked into. One row per bundle key and level."""

    key = models.CharField(max_length=64)
    level = models.FloatField()
    fleet = models.ForeignKey(Fleet, on_delete=models.CASCADE, related_name="+")
    discrepancies = models.JSONField(help_text="What the certificate found, as sentences.")
    plan = models.JSONField()
    request = models.JSONField(help_text="The canonical document and settings that it was made from.")
    times = models.PositiveIntegerField(default=1)
    last_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["key", "level"], name="refused_plan_once")]

    def __str__(self) -> str:
        return f"{self.key[:12]} at level {self.level:g}"
