"""The project's own rules as tests: layers, migrations, production settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db.migrations.loader import MigrationLoader

ROOT = Path(settings.BASE_DIR)
OURS = ("dyserve_site", "fleet", "planner", "runtime")


def manage(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        env={**os.environ, "DYSERVE_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_import_contracts_hold() -> None:
    result = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


@pytest.mark.parametrize("app", OURS)
def test_migrations_are_linear(app: str) -> None:
    loader = MigrationLoader(None)
    assert len(loader.graph.leaf_nodes(app)) == 1
    nodes = [node for node in loader.graph.nodes if node[0] == app]
    for node in nodes:
        parents = [parent for parent in loader.graph.node_map[node].parents if parent.key[0] == app]
        assert len(parents) <= 1, f"{node} has more than one parent"


def test_migrations_can_be_undone_and_redone(tmp_path: Path) -> None:
    for arguments in (("migrate",), ("migrate", "runtime", "zero"), ("migrate", "planner", "zero"), ("migrate",)):
        result = manage(*arguments, "-v", "0", home=tmp_path)
        assert result.returncode == 0, result.stderr


def test_production_settings_pass_djangos_deployment_checks(tmp_path: Path) -> None:
    result = manage("check", "--deploy", "--fail-level", "WARNING", home=tmp_path, DYSERVE_HTTPS="1")
    assert result.returncode == 0, result.stderr


def test_every_object_has_an_owner_or_belongs_to_one() -> None:
    """Owners from the first migration: every model of planner and runtime reaches a user through its foreign keys."""
    # The operator's, shared by all.
    unowned = {"ProfileVersion", "PlanBundle", "PlanVariant", "RefusedPlan", "ControllerSettings"}
    for app in ("planner", "runtime"):
        for model in apps.get_app_config(app).get_models():
            if model.__name__ in unowned:
                continue
            names = {field.name for field in model._meta.get_fields()}
            assert names & {"owner", "workflow", "run"}, f"{model.__name__} has no owner"


def test_the_lock_names_no_index() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "://" not in text
        assert "--index-url" not in text
        pinned = [line for line in text.splitlines() if line and line[0].isalpha()]
        assert all("==" in line for line in pinned)
        assert text.count("--hash=sha256:") >= len(pinned)
