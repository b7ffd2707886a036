"""The version of a catalog follows its content, and a catalog survives the trip through JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fleet.catalogs import catalog_from_json, catalog_to_json, versioned_catalog
from fleet.demo import demo_catalog


def test_json_round_trip_keeps_content_and_version() -> None:
    catalog = demo_catalog(10.0)
    assert catalog_from_json(json.loads(json.dumps(catalog_to_json(catalog)))) == catalog


def test_version_changes_with_a_rate_but_not_with_its_number() -> None:
    catalog = demo_catalog()
    first, *others = catalog.backends
    renumbered = replace(first, rates=replace(first.rates, version=9, source="calibrated"))
    assert versioned_catalog(catalog.models, (renumbered, *others)).version == catalog.version
    faster = replace(first, rates=replace(first.rates, decode_tokens_per_s=first.rates.decode_tokens_per_s * 2))
    assert versioned_catalog(catalog.models, (faster, *others)).version != catalog.version


def test_version_changes_with_a_price() -> None:
    catalog = demo_catalog()
    first, *others = catalog.models
    dearer = versioned_catalog((replace(first, price_out=first.price_out * 2), *others), catalog.backends)
    assert dearer.version != catalog.version


@pytest.mark.parametrize("data", [{}, {"models": [{"name": "x"}], "backends": []}, {"models": 3, "backends": []}])
def test_foreign_json_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a catalog"):
        catalog_from_json(data)


def test_demo_fleet_is_two_plus_two_plus_one() -> None:
    catalog = demo_catalog()
    assert [model.name for model in catalog.served_models()] == ["qwen3.5-4b", "qwen3.5-9b", "qwen3.5-27b"]
    assert all(backend.emulated for backend in catalog.backends)


def test_time_scale_divides_every_duration() -> None:
    real, fast = demo_catalog(), demo_catalog(10.0)
    for slow, quick in zip(real.backends, fast.backends, strict=True):
        assert quick.rates.call_s(700, 300) == pytest.approx(slow.rates.call_s(700, 300) / 10)
        assert quick.rates.time_scale == 10
