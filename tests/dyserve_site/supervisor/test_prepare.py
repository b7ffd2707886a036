"""`prepare` twice: the second time it changes nothing of the user's."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from dyserve_site.supervisor import prepare
from fleet.emulator.config import load_config
from fleet.models import Fleet, Replica
from planner.data import demo_workflow_sources
from planner.models import ProfileVersion, Workflow, WorkflowVersion
from runtime.models import ControllerSettings

pytestmark = pytest.mark.django_db


@pytest.fixture
def home(tmp_path: Path, settings: Settings) -> Path:
    settings.HOME = tmp_path
    return tmp_path


def test_the_first_time_makes_a_demo_that_can_run(home: Path) -> None:
    credentials = prepare.seed(15000)
    assert credentials.current
    assert User.objects.get(username="admin").check_password(credentials.password)
    assert Workflow.objects.count() == len(demo_workflow_sources())
    assert ProfileVersion.objects.get(active=True).illustrative
    assert ControllerSettings.objects.get(fleet__is_default=True).high == 0.85
    config = load_config(home / "emulator.json")
    assert sorted(replica.port for replica in config.replicas) == [15000, 15001, 15002, 15003, 15004]
    assert config.reject_probability.keys() >= {"qwen3.5-27b", "qwen3.5-9b"}
    assert stat.S_IMODE((home / "emulator.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((home / "admin.json").stat().st_mode) == 0o600


def test_the_second_time_keeps_the_users_changes(home: Path) -> None:
    first = prepare.seed(15000)
    fleet = Fleet.objects.get(is_default=True)
    ControllerSettings.objects.filter(fleet=fleet).update(high=0.7)
    Replica.objects.filter(name="4b-0").update(state=Replica.State.DISABLED)
    versions = WorkflowVersion.objects.count()
    second = prepare.seed(15000)
    assert second == first
    assert WorkflowVersion.objects.count() == versions
    assert ControllerSettings.objects.get(fleet=fleet).high == 0.7
    assert Replica.objects.get(name="4b-0").state == Replica.State.DISABLED


def test_a_changed_password_is_not_printed_again(home: Path) -> None:
    prepare.seed(15000)
    admin = User.objects.get(username="admin")
    admin.set_password("a new and longer password")
    admin.save()
    assert not prepare.seed(15000).current


def test_a_lost_login_file_does_not_stop_the_start(home: Path) -> None:
    prepare.seed(15000)
    (home / "admin.json").unlink()
    again = prepare.seed(15000)
    assert (again.current, again.token) == (False, "")
    assert json.loads(again.to_json())["username"] == "admin"
