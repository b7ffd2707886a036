from __future__ import annotations

import pytest

from fleet.models import Fleet
from planner.errors import NoActiveProfiles
from planner.models import WorkflowVersion
from planner.options import PlanOptions
from runtime.engine.events import NodeState
from runtime.engine.ports import SwitchSettings
from runtime.models import ControllerSettings, Run
from runtime.snapshots import Compiled, load_claimed, plan_run, switch_settings
from tests.runtime import rows
from tests.runtime.engine.samples import snapshot
from tests.runtime.engine.store_contract import FLOW, FULL, FULL_ONLY_FIRST, decision, intent, outcome
from tests.runtime.test_store import a_commit, claim, write


@pytest.mark.django_db
def test_without_settings_the_defaults_hold() -> None:
    assert switch_settings(rows.fleet()) == SwitchSettings()


@pytest.mark.django_db
def test_the_fleet_decides_and_a_run_may_choose_its_controller() -> None:
    fleet = rows.fleet()
    ControllerSettings.objects.create(fleet=fleet, controller="off", high=1.5, low=0.2, dwell_s=1, count_planned=False)
    assert switch_settings(fleet) == SwitchSettings(
        controller="off", high=1.5, low=0.2, dwell_s=1.0, count_planned=False
    )
    assert switch_settings(fleet, "threshold").controller == "threshold"


def test_a_snapshot_holds_what_was_committed(transactional_db: None) -> None:
    run = rows.accept(snapshot(FLOW, FULL, deadline_s=40.0, inputs={"topic": "tea"}))
    claimed = claim(run.pk)
    write(a_commit(claimed, bundle=FULL, intents=(intent("a"),), decisions=(decision(1, "congested"),)))
    write(a_commit(claimed, outcomes=(outcome("a"),), intents=(intent("t"),)))
    loaded = load_claimed(run.pk, 1)
    assert loaded.fleet == "test"
    assert loaded.bundle_id == run.bundle_id
    assert not loaded.cancel_requested
    taken = loaded.snapshot
    assert (taken.deadline_s, taken.seed, dict(taken.inputs)) == (40.0, 7, {"topic": "tea"})
    assert (taken.active_variant, taken.bundle.complete) == (1, True)
    assert {node: known.state for node, known in taken.nodes.items()} == {
        "a": NodeState.COMMITTED,
        "t": NodeState.DISPATCHED,
    }


def test_a_bundle_in_preparation_is_incomplete(transactional_db: None) -> None:
    run = rows.accept(snapshot(FLOW, FULL_ONLY_FIRST))
    claim(run.pk)
    assert not load_claimed(run.pk, 1).snapshot.bundle.complete


def test_a_run_that_was_taken_over_keeps_its_bundle(transactional_db: None) -> None:
    run = rows.accept(snapshot(FLOW, FULL))

    def never(version: WorkflowVersion, *, fleet: Fleet, options: PlanOptions) -> Compiled:
        raise AssertionError("compiled a second time")

    plan_run(run.pk, 1, never)
    assert Run.objects.get(pk=run.pk).bundle_id == run.bundle_id


@pytest.mark.django_db
def test_a_run_is_planned_with_what_it_was_asked_for() -> None:
    run = rows.accept(snapshot(FLOW, FULL), planned=False)
    limits = {"max_calls": 4, "pin": {"a": ["*/none"]}}
    Run.objects.filter(pk=run.pk).update(effort=0.2, bundle_kind="priced", limits=limits)
    asked: list[PlanOptions] = []

    def stop(version: WorkflowVersion, *, fleet: Fleet, options: PlanOptions) -> Compiled:
        asked.append(options)
        raise NoActiveProfiles

    with pytest.raises(NoActiveProfiles):
        plan_run(run.pk, 1, stop)
    assert asked == [PlanOptions.of(effort=0.2, bundle="priced", limits=limits)]


def test_an_unplanned_run_is_not_loaded(transactional_db: None) -> None:
    run = rows.accept(snapshot(FLOW, FULL), planned=False)
    with pytest.raises(ValueError, match="no plan"):
        load_claimed(run.pk, 1)
