"""A database of an earlier version is brought up to date by `migrate`, and what it held is still there."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from django.conf import settings

from tests.dyserve_site.dump_database import RUN_ID
from tests.dyserve_site.test_project import manage

DUMPS = sorted((Path(settings.BASE_DIR) / "tests" / "fixtures" / "databases").glob("*.sql"))
READ = (
    "import json; from runtime.models import Run; from runtime.selectors import events_after; "
    f"run = Run.objects.get(pk={RUN_ID!r}); "
    "print(json.dumps([run.state, run.output, run.owner.username, run.version.document['name'], "
    "run.bundle.variants.count(), run.fleet.controller_settings.high, run.ledger.count(), run.call_rows.count(), "
    "[event['kind'] for event in events_after(run.pk, 0)], run.bundle.kind, run.bundle_kind, run.limits, "
    "run.fleet.backends.get().rates.get().step_base_s]))"
)


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.stem)
def test_an_earlier_database_upgrades(dump: Path, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "dyserve.sqlite3") as database:
        database.executescript(dump.read_text(encoding="utf-8"))
    migrated = manage("migrate", "-v", "0", home=tmp_path)
    assert migrated.returncode == 0, migrated.stderr
    read = manage("shell", "-v", "0", "-c", READ, home=tmp_path)
    assert json.loads(read.stdout) == [
        "succeeded",
        "done",
        "ada",
        "Old",
        1,
        0.8,
        1,
        1,
        ["run_accepted", "run_succeeded"],
        "levels",
        "levels",
        {},
        None,
    ], read.stderr


def test_there_is_a_dump_of_the_first_version() -> None:
    assert DUMPS
