"""Writes a small database of this version as SQL: `python -m tests.dyserve_site.dump_database > FILE.sql`.

Run once a release; `test_upgrade.py` migrates every dump in tests/fixtures/databases to the present.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from pathlib import Path

RUN_ID = "run_00upgrade000000000000000000"


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["DYSERVE_HOME"] = home
        os.environ["DJANGO_SETTINGS_MODULE"] = "dyserve_site.settings"
        import django

        django.setup()
        _fill()
        with sqlite3.connect(Path(home) / "dyserve.sqlite3") as database:
            sys.stdout.write("\n".join(database.iterdump()) + "\n")


def _fill() -> None:
    from django.contrib.auth.models import User
    from django.core.management import call_command

    from fleet.models import Backend, Fleet, ModelClass, RatesVersion, Replica
    from planner.models import PlanBundle, PlanVariant, Workflow, WorkflowVersion
    from runtime.models import Call, ControllerSettings, Invocation, LedgerEntry, Run, RunEvent

    call_command("migrate", verbosity=0)
    owner = User.objects.create(username="ada", password="!")
    fleet = Fleet.objects.create(name="old", is_default=True)
    ControllerSettings.objects.create(fleet=fleet, high=0.8)
    model = ModelClass.objects.create(name="m", size_rank=1, parameters_b=9, price_in=1, price_out=1)
    backend = Backend.objects.create(fleet=fleet, name="b", model_class=model)
    Replica.objects.create(backend=backend, name="r", url="http://127.0.0.1:1")
    RatesVersion.objects.create(
        backend=backend,
        version=1,
        decode_tokens_per_s=100,
        prefill_base_s=0,
        prefill_per_token_s=0,
        concurrency=1,
        capacity=4,
        source="roofline",
        active=True,
    )
    workflow = Workflow.objects.create(owner=owner, name="Old", slug="old")
    document = {
        "dyserve": 1,
        "name": "Old",
        "nodes": [{"id": "a", "kind": "llm", "skill": "plan", "prompt": "Plan."}],
        "edges": [],
        "output": "a",
    }
    version = WorkflowVersion.objects.create(
        workflow=workflow,
        owner=owner,
        number=1,
        document=document,
        digest="0" * 64,
        source_format="native",
        node_count=1,
    )
    bundle = PlanBundle.objects.create(
        key="k", fleet=fleet, state="ready", levels=[0], weights={}, effort=0.5, versions={}, request={}
    )
    PlanVariant.objects.create(
        bundle=bundle,
        index=0,
        level=0,
        estimated_quality=0.9,
        makespan_s=1,
        cost=1,
        objective=1,
        solver="cbc",
        solve_s=0,
        gap=0,
        digest="0" * 64,
        plan={},
    )
    run = Run.objects.create(
        id=RUN_ID,
        owner=owner,
        fleet=fleet,
        version=version,
        bundle=bundle,
        state="succeeded",
        output="done",
        last_seq=2,
    )
    RunEvent.objects.create(run=run, seq=1, kind="run_accepted", at=1.0, data={})
    RunEvent.objects.create(run=run, seq=2, kind="run_succeeded", at=2.0, data={"duration_s": 1.0, "late": False})
    Invocation.objects.create(run=run, node="a", attempt=1, kind="llm", state="committed", dispatched_at=1.0)
    Call.objects.create(
        run=run,
        node="a",
        attempt=1,
        stage=0,
        role="generate",
        copy=0,
        model="m",
        backend="b",
        request_id="q",
        messages=[],
        prompt_tokens=1,
        output_tokens=1,
        started_at=1.0,
        finished_at=2.0,
    )
    LedgerEntry.objects.create(
        run=run,
        seq=2,
        at=1.5,
        active_variant=0,
        reason="no_candidate",
        text="Kept.",
        loads={},
        thresholds={},
        candidates=[],
        changed=[],
        kept=[],
    )


if __name__ == "__main__":
    main()
