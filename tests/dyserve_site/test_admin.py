"""Every model is in the admin under unfold, engine rows cannot be edited, and only /admin/ may evaluate scripts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.contrib.messages import get_messages
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from unfold.admin import ModelAdmin

from dyserve_site.models import ApiToken
from dyserve_site.tokens import create_token
from fleet.common.scopes import Scope
from fleet.models import Fleet, RatesVersion, Replica
from planner.models import ProfileVersion, RefusedPlan
from planner.options import PlanOptions
from planner.services import compile_version, record_profiles
from runtime.models import Call, ControllerSettings, IdempotencyKey, Invocation, LedgerEntry, Run, RunEvent
from tests.planner.rows import demo, version

pytestmark = pytest.mark.django_db

OWN_APPS = ("fleet", "planner", "runtime", "dyserve_site", "axes", "auth", "admin")
ENGINE = {
    "Run",
    "RunEvent",
    "Invocation",
    "Call",
    "LedgerEntry",
    "IdempotencyKey",
    "PressureSample",
    "PlanBundle",
    "PlanVariant",
    "RefusedPlan",
    "WorkflowVersion",
    "ProfileVersion",
    "LogEntry",
}
MODELS = [
    model
    for app in OWN_APPS
    for model in apps.get_app_config(app).get_models()
    if model.__name__ != "Permission"  # shown inside groups and users
]


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root", password="a long password here")


@pytest.fixture
def browser(client: Client, root: User) -> Client:
    client.force_login(root)
    return client


def page(model: type[Model], name: str, *arguments: object) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{name}", args=arguments)


def names(model: type[Model]) -> str:
    return model.__name__


@pytest.fixture
def rows(root: User) -> dict[type[Model], Model]:
    """At least one row of every model, by model."""
    fleet = demo()
    stored = version()
    bundle = compile_version(stored, fleet=fleet, options=PlanOptions()).bundle
    RefusedPlan.objects.create(
        key="k", level=0.0, fleet=fleet, discrepancies=["<script>alert(1)</script>"], plan={}, request={}
    )
    run = Run.objects.create(owner=root, fleet=fleet, version=stored, bundle=bundle, nodes_total=3)
    RunEvent.objects.create(run=run, seq=1, kind="run_accepted", at=1.0, data={})
    Invocation.objects.create(run=run, node="draft", attempt=1, kind="llm", state="dispatched", dispatched_at=1.0)
    Call.objects.create(
        run=run,
        node="draft",
        attempt=1,
        stage=0,
        role="generate",
        copy=0,
        model="qwen3.5-9b",
        backend="h200-9b",
        request_id="r1",
        messages=[{"role": "user", "content": "<script>alert(1)</script>"}],
        text="<script>alert(1)</script>",
        prompt_tokens=1,
        output_tokens=1,
        started_at=1.0,
        finished_at=2.0,
    )
    LedgerEntry.objects.create(
        run=run, seq=1, at=1.0, active_variant=0, reason="kept", text="t", loads={}, thresholds={}, candidates=[],
        changed=[], kept=[],
    )  # fmt: skip
    IdempotencyKey.objects.create(owner=root, key="k", digest="d", run=run)
    ControllerSettings.objects.create(fleet=fleet)
    fleet.samples.create(model="m", at=1.0, state="ok", outstanding=0, planned=0, capacity=1)
    create_token(root, "ci", [Scope.RUNS_READ])
    Group.objects.create(name="operators")
    LogEntry.objects.log_actions(root.pk, [fleet], 2, "changed", single_object=True)
    _axes_rows()
    return {model: found for model in MODELS if (found := model._default_manager.first()) is not None}


def _axes_rows() -> None:
    from axes.models import AccessAttempt, AccessAttemptExpiration, AccessFailureLog, AccessLog
    from django.utils import timezone

    common = {"user_agent": "x", "ip_address": "127.0.0.1", "username": "u", "http_accept": "x", "path_info": "/"}
    attempt = AccessAttempt.objects.create(get_data="", post_data="secret words", failures_since_start=1, **common)
    AccessAttemptExpiration.objects.create(access_attempt=attempt, expires_at=timezone.now())
    AccessLog.objects.create(**common)
    AccessFailureLog.objects.create(**common)


# --- Every model, every page ---


@pytest.mark.parametrize("model", MODELS, ids=names)
def test_every_model_is_registered_under_unfold(model: type[Model]) -> None:
    assert page(model, "changelist"), "the addresses load the admin"
    assert isinstance(admin.site._registry[model], ModelAdmin)


def test_every_page_answers(browser: Client, rows: dict[type[Model], Model]) -> None:
    assert set(rows) == set(MODELS), "the fixture misses a model"
    for model, row in rows.items():
        for address in (page(model, "changelist"), page(model, "change", row.pk), page(model, "history", row.pk)):
            assert browser.get(address).status_code == 200, address
        found = browser.get(page(model, "changelist"), {"q": "x"})
        assert found.status_code == 200, f"search of {model.__name__}"
        add = browser.get(page(model, "add"))
        allowed = admin.site._registry[model].has_add_permission(add.wsgi_request)
        assert add.status_code == (200 if allowed else 403), model.__name__


def test_nothing_is_shown_to_strangers(client: Client, rows: dict[type[Model], Model]) -> None:
    for model, row in rows.items():
        for address in (page(model, "changelist"), page(model, "add"), page(model, "change", row.pk)):
            answer = client.get(address)
            assert answer.status_code == 302
            assert answer["Location"].startswith("/admin/login/"), address


def test_staff_without_permissions_see_nothing(client: Client, rows: dict[type[Model], Model]) -> None:
    client.force_login(User.objects.create_user("newcomer", is_staff=True))
    for model in rows:
        assert client.get(page(model, "changelist")).status_code == 403, model.__name__


def test_engine_rows_can_neither_be_changed_nor_deleted(browser: Client, rows: dict[type[Model], Model]) -> None:
    for model, row in rows.items():
        if model.__name__ not in ENGINE:
            continue
        assert browser.get(page(model, "delete", row.pk)).status_code == 403, model.__name__
        assert browser.post(page(model, "change", row.pk), {"state": "failed"}).status_code == 403, model.__name__
        browser.post(page(model, "changelist"), {"action": "delete_selected", "_selected_action": [row.pk]})
        assert model._default_manager.filter(pk=row.pk).exists()


def test_what_models_wrote_is_escaped(browser: Client, rows: dict[type[Model], Model]) -> None:
    text = browser.get(page(Call, "change", rows[Call].pk)).content.decode()
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_form_data_of_failed_logins_is_not_shown(browser: Client, rows: dict[type[Model], Model]) -> None:
    from axes.models import AccessAttempt

    assert b"secret words" not in browser.get(page(AccessAttempt, "change", rows[AccessAttempt].pk)).content


# --- Replicas ---


def new_messages(request: Any) -> list[object]:
    """What this request said; those of earlier ones wait until a page shows them."""
    storage: Any = get_messages(request)
    return list(storage._queued_messages)


def act(browser: Client, model: type[Model], action: str, *rows: Model) -> list[str]:
    data = {"action": action, "_selected_action": [row.pk for row in rows]}
    answer = browser.post(page(model, "changelist"), data)
    assert answer.status_code == 302, answer.content
    return [str(message) for message in new_messages(answer.wsgi_request)]


@pytest.mark.parametrize(("action", "state"), [("drain", "draining"), ("disable", "disabled")])
def test_replicas_are_drained_disabled_and_enabled_with_an_audit_trail(
    browser: Client, root: User, action: str, state: str
) -> None:
    demo()
    replicas = list(Replica.objects.filter(name__startswith="9b"))
    said = act(browser, Replica, action, *replicas)
    assert said == [f"{state.capitalize()}: 9b-0, 9b-1."]
    assert set(Replica.objects.filter(name__startswith="9b").values_list("state", flat=True)) == {state}
    act(browser, Replica, "enable", replicas[0])
    assert Replica.objects.get(pk=replicas[0].pk).state == "enabled"
    entries = LogEntry.objects.filter(object_id=str(replicas[0].pk)).order_by("pk")
    assert [(entry.user, entry.change_message) for entry in entries] == [
        (root, f"State set to {state}."),
        (root, "State set to enabled."),
    ]


def test_probe_says_what_it_found(browser: Client) -> None:
    demo()
    said = act(browser, Replica, "probe", *Replica.objects.filter(name="9b-0"))
    assert len(said) == 1
    assert said[0].startswith("9b-0: connect_failed")


def test_a_viewer_may_probe_but_not_drain(client: Client) -> None:

    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_replica"))
    client.force_login(viewer)
    demo()
    text = client.get(page(Replica, "changelist")).content.decode()
    assert 'value="probe"' in text
    assert 'value="drain"' not in text
    replica = Replica.objects.get(name="9b-0")
    client.post(page(Replica, "changelist"), {"action": "drain", "_selected_action": [replica.pk]})
    assert Replica.objects.get(name="9b-0").state == "enabled"


@pytest.mark.parametrize(("url", "stored"), [("http://10.9.9.9:8000", False), ("http://127.0.0.1:18222/", True)])
def test_addresses_are_held_to_the_allow_list(browser: Client, url: str, stored: bool) -> None:
    demo()
    backend = Replica.objects.get(name="9b-0").backend_id
    data = {"backend": backend, "name": "9b-9", "url": url, "api_key_env": "", "state": "enabled"}
    answer = browser.post(page(Replica, "add"), data)
    assert answer.status_code == (302 if stored else 200)
    assert list(Replica.objects.filter(name="9b-9").values_list("url", flat=True)) == [url.rstrip("/")] * stored
    if not stored:
        assert "lies in no allowed network" in answer.content.decode()


# --- Rates, profiles, settings ---


def test_added_rates_are_a_new_active_version(browser: Client) -> None:
    demo()
    backend = Replica.objects.get(name="9b-0").backend
    data = {
        "backend": backend.pk,
        "decode_tokens_per_s": 90,
        "prefill_base_s": 0.01,
        "prefill_per_token_s": 0.0001,
        "concurrency": 8,
        "capacity": 16,
        "time_scale": 1,
        "source": "calibrated",
        "note": "by hand",
    }
    answer = browser.post(page(RatesVersion, "add"), data)
    assert answer.status_code == 302, answer.content
    assert [(row.version, row.active) for row in backend.rates.order_by("version")] == [(1, False), (2, True)]
    newest = backend.rates.get(version=2)
    assert LogEntry.objects.get(object_id=str(newest.pk)).is_addition()
    assert browser.post(page(RatesVersion, "change", newest.pk), {"capacity": 99}).status_code == 403
    assert act(browser, RatesVersion, "activate", backend.rates.get(version=1)) == ["Active: h200-9b v1."]
    assert backend.rates.get(active=True).version == 1
    assert act(browser, RatesVersion, "activate", *backend.rates.all()) == ["Choose one version per backend."]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"step_base_s": 0.005, "step_per_sequence_s": 0.00008}, ""),
        ({"step_base_s": 0.005}, "give both or neither"),
        ({"step_base_s": -1, "step_per_sequence_s": 0}, "greater than or equal to 0"),
    ],
)
def test_step_times_of_rates_are_given_together(browser: Client, steps: dict[str, float], message: str) -> None:
    demo()
    backend = Replica.objects.get(name="9b-0").backend
    data = {
        "backend": backend.pk,
        "decode_tokens_per_s": 90,
        "prefill_base_s": 0.01,
        "prefill_per_token_s": 0.0001,
        "concurrency": 8,
        "capacity": 16,
        "time_scale": 1,
        "source": "calibrated",
        **steps,
    }
    answer = browser.post(page(RatesVersion, "add"), data)
    assert answer.status_code == (200 if message else 302)
    if message:
        assert message in answer.content.decode()
    else:
        newest = backend.rates.get(version=2)
        assert (newest.step_base_s, newest.step_per_sequence_s) == (0.005, 0.00008)


def test_one_profile_version_is_made_active(browser: Client) -> None:
    from dataclasses import replace

    from planner.data import load_profiles

    demo()
    shipped = load_profiles()
    record_profiles(replace(shipped, pairs=shipped.pairs[:9]), name="fewer")
    first = ProfileVersion.objects.get(version=1)
    assert act(browser, ProfileVersion, "activate", first) == [f"{first} is active."]
    assert ProfileVersion.objects.get(active=True) == first
    assert act(browser, ProfileVersion, "activate", *ProfileVersion.objects.all()) == ["Choose exactly one version."]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"low": 0.9}, "must lie below high (0.85)"),
        ({"high": 0}, "greater than or equal to 0.05"),
        ({"ratio": 3}, "less than or equal to 1"),
        ({"dwell_s": -1}, "greater than or equal to 0"),
        ({"drop_absolute": 2}, "less than or equal to 1"),
    ],
)
def test_controller_settings_keep_safe_bounds(browser: Client, changes: dict[str, float], message: str) -> None:
    fleet = Fleet.objects.create(name="f")
    row = ControllerSettings.objects.create(fleet=fleet)
    fields = ("high", "low", "ratio", "dwell_s", "drop_absolute", "drop_relative")
    data: dict[str, Any] = {"fleet": fleet.pk, "controller": "threshold", "count_planned": "on"}
    data |= {field: getattr(row, field) for field in fields} | changes
    answer = browser.post(page(ControllerSettings, "change", row.pk), data)
    assert answer.status_code == 200
    assert message in answer.content.decode()


def test_good_controller_settings_are_stored(browser: Client) -> None:
    fleet = Fleet.objects.create(name="f")
    row = ControllerSettings.objects.create(fleet=fleet)
    data = {"fleet": fleet.pk, "controller": "off", "high": 0.9, "low": 0.4, "ratio": 0.5, "dwell_s": 2}
    data |= {"drop_absolute": 0.1, "drop_relative": 0.2}
    assert browser.post(page(ControllerSettings, "change", row.pk), data).status_code == 302
    row.refresh_from_db()
    assert (row.controller, row.high, row.low, row.count_planned) == ("off", 0.9, 0.4, False)


# --- Tokens ---


def test_a_token_is_shown_once_and_its_digest_never(browser: Client, root: User) -> None:
    data = {"owner": root.pk, "name": "ci", "scopes": [Scope.RUNS_READ, Scope.RUNS_WRITE]}
    answer = browser.post(page(ApiToken, "add"), data, follow=True)
    token = ApiToken.objects.get()
    assert token.scopes == sorted([Scope.RUNS_READ, Scope.RUNS_WRITE])
    shown = re.findall(rf"dys_{token.prefix}_\S+", answer.content.decode())
    assert len(shown) == 1
    for address in (page(ApiToken, "changelist"), page(ApiToken, "change", token.pk)):
        text = browser.get(address).content.decode()
        assert token.prefix in text
        assert token.digest not in text
        assert f"dys_{token.prefix}_" not in text
    assert token.digest not in str(list(LogEntry.objects.values()))


def test_staff_makes_no_token_for_somebody_else(client: Client, root: User) -> None:
    staff = User.objects.create_user("staff", password="a long enough password", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="dyserve_site"))
    staff.user_permissions.add(*Permission.objects.filter(codename="view_user"))
    client.force_login(staff)
    data = {"name": "ci", "scopes": [Scope.RUNS_READ]}
    assert client.post(page(ApiToken, "add"), data | {"owner": root.pk}).status_code == 403
    assert client.post(page(ApiToken, "add"), data | {"owner": staff.pk}).status_code == 302
    assert ApiToken.objects.get().owner == staff


def test_a_token_is_revoked_not_edited(browser: Client, root: User) -> None:
    token, _ = create_token(root, "ci", [Scope.RUNS_READ])
    assert browser.post(page(ApiToken, "change", token.pk), {"scopes": ["admin"]}).status_code == 403
    assert act(browser, ApiToken, "revoke", token) == ["Revoked."]
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert token.scopes == [Scope.RUNS_READ]


# --- Content-Security-Policy ---


def script_sources(header: str) -> list[str]:
    directives = dict(part.strip().split(" ", 1) for part in header.split(";") if " " in part.strip())
    return directives["script-src"].split()


@pytest.fixture
def policies(browser: Client) -> dict[str, list[str]]:
    addresses = {"admin": "/admin/", "changelist": page(Replica, "changelist"), "missing": "/no-such-page/"}
    return {name: script_sources(browser.get(a)["Content-Security-Policy"]) for name, a in addresses.items()}


def test_only_the_admin_may_evaluate_and_nobody_may_inline(policies: dict[str, list[str]]) -> None:
    assert sorted(policies["admin"]) == ["'self'", "'unsafe-eval'"]
    assert sorted(policies["changelist"]) == ["'self'", "'unsafe-eval'"]
    assert policies["missing"] == ["'self'"]


def test_admin_pages_hold_no_inline_script(browser: Client, rows: dict[type[Model], Model]) -> None:
    """One that the policy forbids would be dead code, and a sign that unfold needs more than we allow."""
    for model, row in rows.items():
        for address in (page(model, "changelist"), page(model, "change", row.pk)):
            text = browser.get(address).content.decode()
            inline = [tag for tag in re.findall(r"<script\b[^>]*>", text) if "src=" not in tag]
            assert [tag for tag in inline if "application/json" not in tag] == [], address


@pytest.mark.parametrize(("field", "value"), [("concurrency", "0"), ("capacity", "0"), ("time_scale", "0")])
def test_rates_that_mean_nothing_are_refused_in_words(browser: Client, field: str, value: str) -> None:
    backend = demo().backends.order_by("name")[0]
    before = RatesVersion.objects.count()
    data = {
        "backend": str(backend.pk),
        "decode_tokens_per_s": "50",
        "prefill_base_s": "0.1",
        "prefill_per_token_s": "0",
        "concurrency": "8",
        "capacity": "16",
        "time_scale": "1",
        "source": "calibrated",
    }
    response = browser.post("/admin/fleet/ratesversion/add/", {**data, field: value})
    assert (response.status_code, RatesVersion.objects.count()) == (200, before)
    assert field in str(response.context["adminform"].form.non_field_errors())
    assert browser.post("/admin/fleet/ratesversion/add/", data).status_code == 302
    assert RatesVersion.objects.count() == before + 1


LISTED = (RunEvent, Invocation, Call, LedgerEntry, IdempotencyKey)


@pytest.mark.parametrize("model", LISTED, ids=names)
def test_a_list_of_engine_rows_neither_asks_per_row_nor_loads_uploads(
    browser: Client, rows: dict[type[Model], Model], model: type[Model]
) -> None:
    def ask() -> list[str]:
        with CaptureQueriesContext(connection) as asked:
            assert browser.get(page(model, "changelist")).status_code == 200
        return [query["sql"] for query in asked]

    once = ask()
    run = rows[Run]
    assert isinstance(run, Run)
    for number in range(2, 5):
        other = rows[model]
        other.pk = None
        other._state.adding = True
        for field, value in {"run": _another(run), "seq": number, "key": f"k{number}"}.items():
            if field in {known.name for known in model._meta.fields}:
                setattr(other, field, value)
        other.save()
    more = ask()
    assert len(more) == len(once)
    assert not [sql for sql in more if '"document"' in sql or '"source"' in sql or '"inputs"' in sql]


def _another(run: Run) -> Run:
    return Run.objects.create(owner=run.owner, fleet=run.fleet, version=run.version, nodes_total=1)
