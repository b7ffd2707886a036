"""`manage.py calibrate` on an emulated replica over HTTP: what is stored, shown and refused."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from fleet.models import Backend, Replica
from fleet.selectors import active_rates
from tests.fleet.rows import backend, demo
from tests.fleet.threaded import emulated_url

__all__ = ["emulated_url"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def pool(emulated_url: str) -> Backend:
    """The 9B backend, whose first replica answers."""
    demo(time_scale=20.0)
    Replica.objects.filter(name="9b-0").update(url=emulated_url)
    Backend.objects.filter(name="h200-9b").update(max_num_seqs=4)
    return backend()


def calibrated(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command("calibrate", "h200-9b", "--repeats", "1", "--tokens", "16", "--json", *arguments, stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def test_a_new_version_lies_beside_the_one_in_use(pool: Backend) -> None:
    before = active_rates(pool)
    found = calibrated()
    after = active_rates(backend())
    assert before is not None
    assert after == before
    stored = pool.rates.get(version=found["version"])
    assert (stored.version, stored.active, stored.source) == (before.version + 1, False, "calibrated")
    assert stored.time_scale == before.time_scale
    assert stored.decode_tokens_per_s == found["rates"]["decode_tokens_per_s"] > 0
    assert found["rates"]["version"] == stored.version
    assert [level["concurrency"] for level in found["levels"]] == [1, 2, 4]
    assert (found["backend"], found["replica"], found["emulated"]) == ("h200-9b", "9b-0", True)
    assert found["rates"]["capacity"] <= 4
    assert set(found["changes"]) >= {"decode_tokens_per_s", "capacity"}


def test_it_is_planned_with_only_on_demand(pool: Backend) -> None:
    found = calibrated("--activate", "--most", "2")
    now = active_rates(backend())
    assert now is not None
    assert (now.version, found["active"]) == (found["version"], True)
    assert pool.rates.filter(active=True).count() == 1


def test_a_rough_fit_takes_no_place_by_itself(pool: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.serving.calibrate.ROUGH", -1.0)
    assert calibrated("--activate", "--most", "2")["active"] is False
    pool.rates.all().delete()
    assert calibrated("--activate", "--most", "2")["active"] is True, "better than no rates at all"


def test_people_read_every_level_and_what_changed(pool: Backend) -> None:
    out = StringIO()
    call_command("calibrate", "h200-9b", "--repeats", "1", "--tokens", "8", "--most", "2", stdout=out)
    text = out.getvalue()
    assert "h200-9b on 9b-0, emulated" in text
    assert "times the rates in use" in text
    assert "make it active in the admin" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no backend nowhere: there is h200-27b"),
        (["h200-9b", "--replica", "4b-0"], "has no replica 4b-0: it has 9b-0, 9b-1"),
        (["h200-9b", "--most", "0"], "--most: must be at least 1"),
        (["h200-9b", "--tokens", "1"], "output_tokens >= 2"),
    ],
)
def test_what_cannot_be_measured_is_bad_input(pool: Backend, arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message) as refused:
        call_command("calibrate", *arguments)
    assert refused.value.returncode == 2
    assert pool.rates.count() == 1


def test_a_backend_without_an_enabled_replica_says_so(pool: Backend) -> None:
    Replica.objects.update(state=Replica.State.DISABLED)
    with pytest.raises(CommandError, match="no enabled replica"):
        call_command("calibrate", "h200-9b")


def test_a_replica_that_serves_another_model_is_named(pool: Backend) -> None:
    Backend.objects.filter(name="h200-9b").update(served_name="org/Other")
    with pytest.raises(CommandError, match=r"9b-0 serves qwen3\.5-9b, not org/Other: correct"):
        call_command("calibrate", "h200-9b")


def test_a_replica_that_does_not_answer_leaves_no_rates(pool: Backend) -> None:
    Replica.objects.filter(name="9b-0").update(url="http://127.0.0.1:9")
    with pytest.raises(CommandError, match="nothing was stored: connect_failed") as failed:
        call_command("calibrate", "h200-9b")
    assert failed.value.returncode == 1
    assert pool.rates.count() == 1
