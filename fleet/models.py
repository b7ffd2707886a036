"""Model classes, fleets, backends, replicas and their rates, as an operator manages them."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q

NAME = RegexValidator(r"^[a-z0-9][a-z0-9._-]{0,62}$", "use lower-case letters, digits, dots, dashes, underscores")
KEY_ENVIRONMENT = RegexValidator(r"^(DYSERVE_KEY_[A-Z0-9_]+)?$", "name an environment variable DYSERVE_KEY_...")


class ModelClass(models.Model):
    """One served model. Prices are per token, relative; the default follows the number of parameters."""

    name = models.CharField(max_length=63, unique=True, validators=[NAME])
    size_rank = models.PositiveSmallIntegerField(help_text="Orders model classes from small to large.")
    parameters_b = models.FloatField("parameters (billions)", validators=[MinValueValidator(0.01)])
    context_tokens = models.PositiveIntegerField(default=32768)
    price_in = models.FloatField(validators=[MinValueValidator(0.0)], help_text="Relative price of a prompt token.")
    price_out = models.FloatField(validators=[MinValueValidator(0.0)], help_text="Relative price of an output token.")
    reasoning = models.BooleanField(default=True, help_text="The model thinks by default.")

    class Meta:
        ordering = ["size_rank", "name"]
        verbose_name_plural = "model classes"

    def __str__(self) -> str:
        return self.name


class Fleet(models.Model):
    """Backends that are planned for together."""

    name = models.CharField(max_length=63, unique=True, validators=[NAME])
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="fleets",
        help_text="Empty: shared by everyone.",
    )
    is_default = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["is_default"], condition=Q(is_default=True), name="one_default_fleet")
        ]

    def __str__(self) -> str:
        return self.name


class Backend(models.Model):
    """A pool of identical replicas: one model class, one hardware type, one set of calibrated rates."""

    fleet = models.ForeignKey(Fleet, on_delete=models.CASCADE, related_name="backends")
    name = models.CharField(max_length=63, unique=True, validators=[NAME])
    model_class = models.ForeignKey(ModelClass, on_delete=models.PROTECT, related_name="backends")
    served_name = models.CharField(
        max_length=200, blank=True, help_text="The model's name on the server; empty: the class's name."
    )
    hardware = models.CharField(max_length=63, default="h200")
    max_num_seqs = models.PositiveIntegerField(default=128, validators=[MinValueValidator(1)])
    emulated = models.BooleanField(default=False, help_text="Served by the emulator: every figure is marked so.")
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Replica(models.Model):
    """One server URL."""

    class State(models.TextChoices):
        ENABLED = "enabled"
        DRAINING = "draining"
        DISABLED = "disabled"

    backend = models.ForeignKey(Backend, on_delete=models.CASCADE, related_name="replicas")
    name = models.CharField(max_length=63, unique=True, validators=[NAME])
    url = models.URLField(unique=True, help_text="Base address, without /v1.")
    api_key_env = models.CharField(max_length=100, blank=True, validators=[KEY_ENVIRONMENT])
    state = models.CharField(max_length=10, choices=State.choices, default=State.ENABLED)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class RatesVersion(models.Model):
    """One calibration of a backend; never overwritten, one is active."""

    class Source(models.TextChoices):
        ILLUSTRATIVE = "illustrative"
        ROOFLINE = "roofline"
        CALIBRATED = "calibrated"

    backend = models.ForeignKey(Backend, on_delete=models.CASCADE, related_name="rates")
    version = models.PositiveIntegerField()
    decode_tokens_per_s = models.FloatField(validators=[MinValueValidator(0.001)])
    prefill_base_s = models.FloatField(validators=[MinValueValidator(0.0)])
    prefill_per_token_s = models.FloatField(validators=[MinValueValidator(0.0)])
    concurrency = models.PositiveIntegerField(help_text="Concurrency at which the rates hold.")
    capacity = models.PositiveIntegerField(help_text="Sequences a replica serves before time per token doubles.")
    time_scale = models.FloatField(default=1.0, help_text="Emulated backends: durations are divided by this.")
    step_base_s = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0.0)],
        help_text="Fitted seconds of a decode step: this plus the next per running sequence. Empty: by the capacity.",
    )
    step_per_sequence_s = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0.0)])
    source = models.CharField(max_length=12, choices=Source.choices)
    active = models.BooleanField(default=False)
    note = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["backend", "-version"]
        verbose_name = "rates"
        verbose_name_plural = "rates"
        constraints = [
            models.UniqueConstraint(fields=["backend", "version"], name="rates_version_once"),
            models.UniqueConstraint(fields=["backend"], condition=Q(active=True), name="one_active_rates"),
        ]

    def __str__(self) -> str:
        return f"{self.backend} v{self.version}"


class PressureSample(models.Model):
    """Load of one model class at one time, for charts; `at` in epoch seconds, `load` empty when unknown."""

    fleet = models.ForeignKey(Fleet, on_delete=models.CASCADE, related_name="samples")
    model = models.CharField(max_length=63)
    at = models.FloatField()
    load = models.FloatField(null=True)
    state = models.CharField(max_length=12)
    outstanding = models.FloatField()
    planned = models.FloatField()
    capacity = models.FloatField()

    class Meta:
        ordering = ["at"]
        indexes = [models.Index(fields=["fleet", "at"], name="sample_by_time")]

    def __str__(self) -> str:
        return f"{self.model} at {self.at:.0f}"
