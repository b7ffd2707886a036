"""The emulator's configuration: one JSON file, checked whole before anything starts (ours).

{"time_scale": 10, "seed": 7, "reject_probability": {"qwen3.5-27b": 0.1},
 "mean_output_tokens": {"text": 380, "json": 160, "reasoning": 240}, "sigma": 0.35,
 "request_metrics": true,
 "replicas": [{"name": "27b-1", "model": "qwen3.5-27b", "hardware": "H200", "port": 8101}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from fleet.serving.roofline import Hardware, ModelSpec, hardware_named, kv_capacity_tokens, model_named

RESPONSE_KINDS = ("text", "json", "reasoning")
"""Kinds with a mean length; a choice is as long as it is."""
DEFAULT_MEANS: Mapping[str, float] = MappingProxyType({"text": 380, "json": 160, "reasoning": 240})
DEFAULT_REJECT = 0.2


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the place and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """One emulated server. `port` 0 takes a free one. `max_queued` None: no limit (no 503). `kv_tokens` None: what
    the roofline says the accelerator holds."""

    name: str
    model: str
    hardware: str = "H200"
    host: str = "127.0.0.1"
    port: int = 0
    max_num_seqs: int = 64
    max_queued: int | None = None
    kv_tokens: int | None = None
    max_model_len: int = 32768

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a replica needs a name")
        try:
            held = kv_capacity_tokens(self.hardware_spec, self.model_spec, max(1, self.max_num_seqs))
        except ValueError as error:
            raise ConfigError(f"replica {self.name}: {error}") from error
        self._check_numbers(self.kv_tokens if self.kv_tokens is not None else held)

    def _check_numbers(self, kv_tokens: int) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"replica {self.name}: port must lie in 0..65535, got {self.port}")
        if self.max_num_seqs < 1 or self.max_model_len < 1 or (self.max_queued is not None and self.max_queued < 0):
            raise ConfigError(f"replica {self.name}: max_num_seqs, max_model_len >= 1 and max_queued >= 0")
        if kv_tokens < self.max_model_len:
            raise ConfigError(
                f"replica {self.name}: the KV cache holds {kv_tokens} tokens, fewer than max_model_len "
                f"{self.max_model_len}: such a request could never run; lower max_model_len or raise kv_tokens"
            )

    @property
    def hardware_spec(self) -> Hardware:
        return hardware_named(self.hardware)

    @property
    def model_spec(self) -> ModelSpec:
        return model_named(self.model)

    @property
    def kv_capacity(self) -> int:
        if self.kv_tokens is not None:
            return self.kv_tokens
        return kv_capacity_tokens(self.hardware_spec, self.model_spec, self.max_num_seqs)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorConfig:
    """All replicas of one process. `time_scale` k divides every emulated duration; lengths are lognormal with
    `sigma` around `mean_output_tokens`; `reject_probability` is per served model (default DEFAULT_REJECT)."""

    replicas: tuple[ReplicaConfig, ...]
    time_scale: float = 1.0
    seed: int = 0
    reject_probability: Mapping[str, float] = field(default_factory=dict)
    mean_output_tokens: Mapping[str, float] = field(default_factory=lambda: DEFAULT_MEANS)
    sigma: float = 0.35
    request_metrics: bool = True

    def __post_init__(self) -> None:
        if not self.replicas:
            raise ConfigError("replicas: at least one is needed")
        _unique("name", [item.name for item in self.replicas])
        _unique("address", [f"{item.host}:{item.port}" for item in self.replicas if item.port])
        if not 0 < self.time_scale <= 1000:
            raise ConfigError(f"time_scale must lie in (0, 1000], got {self.time_scale}")
        if not 0 <= self.sigma <= 2:
            raise ConfigError(f"sigma must lie in [0, 2], got {self.sigma}")
        for model, probability in self.reject_probability.items():
            if not 0 <= probability <= 1:
                raise ConfigError(f"reject_probability of {model} must lie in [0, 1], got {probability}")
        for kind, mean in self.mean_output_tokens.items():
            if kind not in RESPONSE_KINDS or mean < 1:
                raise ConfigError(f"mean_output_tokens: {kind!r} = {mean}; known {RESPONSE_KINDS}, at least 1")

    def reject_of(self, model: str) -> float:
        return self.reject_probability.get(model, DEFAULT_REJECT)

    def mean_of(self, kind: str) -> float:
        return self.mean_output_tokens.get(kind, DEFAULT_MEANS[kind])


def _unique(what: str, values: list[str]) -> None:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise ConfigError(f"replicas: the same {what} twice: {', '.join(twice)}")


# --- From JSON -------------------------------------------------------------------------------------------------------

_TYPES: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "name": (str,),
        "model": (str,),
        "hardware": (str,),
        "host": (str,),
        "port": (int,),
        "max_num_seqs": (int,),
        "max_queued": (int, type(None)),
        "kv_tokens": (int, type(None)),
        "max_model_len": (int,),
        "replicas": (list,),
        "time_scale": (int, float),
        "seed": (int,),
        "reject_probability": (dict,),
        "mean_output_tokens": (dict,),
        "sigma": (int, float),
        "request_metrics": (bool,),
    }
)


def parse_config(data: Any) -> EmulatorConfig:
    """A decoded JSON value as a configuration. Raises ConfigError."""
    values = _fields(EmulatorConfig, data, "configuration")
    replicas = values.get("replicas", [])
    values["replicas"] = tuple(
        ReplicaConfig(**_fields(ReplicaConfig, item, f"replicas[{index}]")) for index, item in enumerate(replicas)
    )
    for name in ("reject_probability", "mean_output_tokens"):
        if name in values:
            values[name] = _numbers(values[name], name)
    return EmulatorConfig(**values)


def load_config(path: Path) -> EmulatorConfig:
    """The configuration in a file. Raises ConfigError that names the file."""
    try:
        return parse_config(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def to_json(config: EmulatorConfig) -> dict[str, Any]:
    """What `parse_config` reads back as an equal configuration."""
    data = {item.name: getattr(config, item.name) for item in fields(EmulatorConfig)}
    data["replicas"] = [
        {item.name: getattr(replica, item.name) for item in fields(ReplicaConfig)} for replica in config.replicas
    ]
    data["reject_probability"] = dict(config.reject_probability)
    data["mean_output_tokens"] = dict(config.mean_output_tokens)
    return data


def _fields(kind: type[EmulatorConfig] | type[ReplicaConfig], data: Any, place: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ConfigError(f"{place}: expected an object, got {type(data).__name__}")
    known = {item.name: item for item in fields(kind)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ConfigError(f"{place}: unknown {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    missing = [
        name
        for name, item in known.items()
        if name not in data and item.default is MISSING and item.default_factory is MISSING
    ]
    if missing:
        raise ConfigError(f"{place}: {', '.join(missing)} missing")
    for name, value in data.items():
        wanted = _TYPES[name]
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            expected = " or ".join("null" if item is type(None) else item.__name__ for item in wanted)
            raise ConfigError(f"{place}.{name}: expected {expected}, got {value!r}")
    return cast("dict[str, Any]", dict(data))


def _numbers(data: Mapping[str, Any], place: str) -> dict[str, float]:
    for name, value in data.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{place}.{name}: expected a number, got {value!r}")
    return {name: float(value) for name, value in data.items()}
