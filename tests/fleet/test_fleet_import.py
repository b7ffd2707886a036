"""Fleet files: what is wrong is named with its place, and the same file twice changes nothing."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError

from fleet.fleet_file import MAX_BYTES, FleetFileInvalid, parse_fleet
from fleet.fleet_import import Imported, import_fleet
from fleet.models import Backend, Fleet, ModelClass, RatesVersion, Replica
from fleet.selectors import active_rates
from fleet.services import record_rates
from tests.fleet.rows import demo, rates
from tests.fleet.threaded import emulated_url

__all__ = ["emulated_url"]
EXAMPLES = sorted(Path(settings.BASE_DIR, "docs", "examples").glob("*.yaml"))
RATES = {"decode_tokens_per_s": 90.0, "prefill_per_token_s": 1e-4, "concurrency": 8, "capacity": 16}


def document(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "fleet": "lab",
        "models": [{"name": "small", "size_rank": 1, "parameters_b": 4}],
        "backends": [
            {
                "name": "lab-small",
                "model": "small",
                "served_name": "org/Small",
                "max_num_seqs": 16,
                "rates": dict(RATES),
                "replicas": [{"name": "small-0", "url": "http://127.0.0.1:9100/", "api_key_env": "DYSERVE_KEY_LAB"}],
            }
        ],
    }
    return {**found, **changes}


def text(value: Any) -> bytes:
    return yaml.safe_dump(value).encode()


def imported(value: Any) -> Imported:
    return import_fleet(parse_fleet(text(value)))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_fleets(path: Path) -> None:
    assert parse_fleet(path.read_bytes()).backends


@pytest.mark.django_db
def test_everything_is_stored_and_the_same_file_again_changes_nothing() -> None:
    done = imported(document(default=True)).done
    assert len(done) == 5
    backend = Backend.objects.get(name="lab-small")
    replica = Replica.objects.get(name="small-0")
    found = active_rates(backend)
    assert Fleet.objects.get(is_default=True).name == "lab"
    assert ModelClass.objects.get(name="small").price_out == pytest.approx(4e-3)
    assert (backend.fleet.name, backend.served_name, backend.emulated) == ("lab", "org/Small", False)
    assert (replica.url, replica.api_key_env, replica.state) == ("http://127.0.0.1:9100", "DYSERVE_KEY_LAB", "enabled")
    assert found is not None
    assert (found.decode_tokens_per_s, found.source) == (90.0, "illustrative")
    assert imported(document(default=True)).done == []
    assert RatesVersion.objects.count() == 1


@pytest.mark.django_db
def test_what_differs_is_changed_and_named_and_nothing_is_removed() -> None:
    imported(document())
    changed = document()
    changed["backends"][0] |= {"max_num_seqs": 32, "rates": {**RATES, "capacity": 12}, "replicas": []}
    assert imported(changed).done == ["backend lab-small changed (max_num_seqs)", "rates of lab-small are version 2"]
    assert Replica.objects.filter(name="small-0").exists()


@pytest.mark.django_db
def test_the_same_file_leaves_rates_in_use_that_were_measured_since() -> None:
    imported(document())
    backend = Backend.objects.get(name="lab-small")
    measured = record_rates(backend, rates(77.0))
    assert imported(document()).done == []
    assert active_rates(backend) == measured


@pytest.mark.parametrize("where", ["backends", "fleet"])
def test_aliases_of_aliases_are_refused_at_once(where: str) -> None:
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9) if i else 'x'}]" for i in range(40)]
    with pytest.raises(FleetFileInvalid):
        parse_fleet("\n".join([*levels, f"{where}: *l39"]).encode())


def wrong(**changes: Any) -> dict[str, Any]:
    """The document with a changed backend."""
    found = document()
    found["backends"][0] |= changes
    return found


@pytest.mark.parametrize(
    ("value", "place", "message"),
    [
        ([], "", "valid dictionary"),
        ({}, "/backends", "required"),
        (document(owner="me"), "/owner", "not permitted"),
        (document(backends=[]), "/backends", "at least 1"),
        (document(fleet="Lab 1"), "/fleet", "pattern"),
        (wrong(served_name="a\x00b"), "/backends/0/served_name", "pattern"),
        (wrong(hardware="h\n200"), "/backends/0/hardware", "pattern"),
        (wrong(max_num_seqs=0), "/backends/0/max_num_seqs", "greater than or equal to 1"),
        (wrong(rates="guess"), "/backends/0/rates", "calibrate"),
        (wrong(rates={**RATES, "decode_tokens_per_s": 0}), "/backends/0/rates/decode_tokens_per_s", "greater than 0"),
        (
            wrong(rates={**RATES, "prefill_per_token_s": float("nan")}),
            "/backends/0/rates/prefill_per_token_s",
            "finite",
        ),
        (wrong(rates={**RATES, "step_base_s": 0.1}), "/backends/0/rates", "belong together"),
        (wrong(rates="calibrate", replicas=[]), "/backends/0/rates", "without a replica"),
        (wrong(replicas=[{"name": "a", "url": "ftp://a"}]), "/backends/0/replicas/0/url", "pattern"),
        (
            wrong(replicas=[{"name": "a", "url": "http://a", "api_key": "s"}]),
            "/backends/0/replicas/0/api_key",
            "not perm",
        ),
        (
            wrong(replicas=[{"name": "a", "url": "http://a"}, {"name": "c", "url": "http://a/"}]),
            "/backends/0/replicas/1/url",
            "/backends/0/replicas/0/url already",
        ),
        (document(models=document()["models"] * 2), "/models/1/name", "/models/0/name already"),
    ],
)
def test_what_is_no_fleet_is_refused_with_its_place(value: Any, place: str, message: str) -> None:
    with pytest.raises(FleetFileInvalid) as refused:
        parse_fleet(text(value))
    assert message in refused.value.problems[place]
    assert len(refused.value.problems) == (2 if value == {} else 1)


@pytest.mark.parametrize("broken", [b"a: [", b"\xff\xfe\x00", b"!!python/object/apply:os.system ['true']", b"[" * 5000])
def test_what_is_no_plain_yaml_is_refused(broken: bytes) -> None:
    with pytest.raises(FleetFileInvalid, match="not YAML"):
        parse_fleet(broken)


def test_a_huge_file_is_not_read() -> None:
    with pytest.raises(FleetFileInvalid, match="larger than"):
        parse_fleet(b"#" * (MAX_BYTES + 1))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("value", "place", "message"),
    [
        (wrong(model="large"), "/backends/0/model", "describe it under models"),
        (wrong(name="h200-9b"), "/backends/0/name", "belongs to the fleet demo"),
        (wrong(replicas=[{"name": "9b-0", "url": "http://127.0.0.1:9"}]), "/backends/0/replicas/0/name", "h200-9b"),
        (wrong(replicas=[{"name": "a", "url": "http://10.9.9.9:1"}]), "/backends/0/replicas/0/url", "10.9.9.9"),
        (
            wrong(replicas=[{"name": "a", "url": "http://127.0.0.1:18100"}]),
            "/backends/0/replicas/0/url",
            "already exists",
        ),
    ],
    ids=[
        "no such model",
        "another fleet's backend",
        "another backend's replica",
        "no allowed network",
        "taken address",
    ],
)
def test_what_contradicts_the_database_stores_nothing(value: Any, place: str, message: str) -> None:
    demo()
    with pytest.raises(FleetFileInvalid) as refused:
        imported(value)
    assert message in refused.value.problems[place]
    assert not Fleet.objects.filter(name="lab").exists()
    assert not ModelClass.objects.filter(name="small").exists()


@pytest.mark.django_db
def test_the_command_calibrates_what_asks_for_it_once(emulated_url: str, tmp_path: Path) -> None:
    models = [{"name": "qwen3.5-9b", "size_rank": 2, "parameters_b": 9}]
    replicas = [{"name": "lab-0", "url": emulated_url}]
    backend = {"name": "lab-9b", "model": "qwen3.5-9b", "max_num_seqs": 2, "rates": "calibrate", "replicas": replicas}
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text({"fleet": "lab", "models": models, "backends": [backend]}))
    out = StringIO()
    call_command("fleet_import", str(path), stdout=out)
    found = active_rates(Backend.objects.get(name="lab-9b"))
    assert found is not None
    assert (found.source, found.version) == ("calibrated", 1)
    assert "lab-9b: " in out.getvalue()
    call_command("fleet_import", str(path), stdout=out)
    assert "as the file says already" in out.getvalue()
    assert RatesVersion.objects.count() == 1


@pytest.mark.django_db
def test_the_command_says_what_it_could_not_measure(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text(wrong(rates="calibrate", replicas=[{"name": "gone", "url": "http://127.0.0.1:9"}])))
    out, errors = StringIO(), StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("fleet_import", str(path), stdout=out, stderr=errors)
    assert ended.value.code == 1
    assert "not calibrated: connect_failed" in errors.getvalue()
    assert "manage.py calibrate lab-small --activate" in out.getvalue()
    call_command("fleet_import", str(path), "--no-calibrate", stdout=out)


def test_the_command_names_every_problem_and_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text({**wrong(max_num_seqs=0), "fleet": "?"}))
    errors = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("fleet_import", str(path), stderr=errors)
    assert ended.value.code == 2
    assert "/fleet: " in errors.getvalue()
    assert "/backends/0/max_num_seqs: " in errors.getvalue()
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("fleet_import", str(tmp_path / "none.yaml"))
