"""Catalogs that know their version: a digest of their content, so that equal fleets share cached plans (ours)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from fleet.serving.catalog import Backend, Catalog, ModelClass
from fleet.serving.rates import ServiceRates


def versioned_catalog(models: Iterable[ModelClass], backends: Iterable[Backend]) -> Catalog:
    """The catalog with `version` set to 16 hex digits over everything in it but the numbering of its rates."""
    models, backends = tuple(models), tuple(backends)
    content = {"models": [asdict(model) for model in models], "backends": [_content(backend) for backend in backends]}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return Catalog(models=models, backends=backends, version=hashlib.sha256(text.encode()).hexdigest()[:16])


def _content(backend: Backend) -> dict[str, object]:
    return {
        "name": backend.name,
        "model": backend.model,
        "hardware": backend.hardware,
        "rates": _rates(backend.rates),
    }


def _rates(rates: ServiceRates) -> dict[str, object]:
    """The values without their number: the same calibration recorded twice plans the same."""
    found = asdict(rates).items()
    return {name: value for name, value in found if name not in ("version", "source") and value is not None}


def catalog_to_json(catalog: Catalog) -> dict[str, Any]:
    return {
        "models": [asdict(model) for model in catalog.models],
        "backends": [asdict(backend) for backend in catalog.backends],
    }


def catalog_from_json(data: Mapping[str, Any]) -> Catalog:
    """The same catalog with the same version. Raises ValueError on a value that another program wrote."""
    try:
        return versioned_catalog(
            (ModelClass(**model) for model in data["models"]),
            (Backend(**{**backend, "rates": ServiceRates(**backend["rates"])}) for backend in data["backends"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a catalog: {error}") from error
