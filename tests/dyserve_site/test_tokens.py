from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from pytest_django import DjangoAssertNumQueries

from dyserve_site.models import ApiToken
from dyserve_site.tokens import authenticate_token, create_token, revoke_token
from fleet.common.scopes import Principal, Scope

NOW = datetime(2026, 11, 1, tzinfo=UTC)

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann")


def test_a_token_tells_its_owner_and_scopes(ann: User) -> None:
    token, plain = create_token(ann, "ci", [Scope.RUNS_READ, Scope.RUNS_READ])
    found = authenticate_token(plain, NOW)
    assert found is not None
    assert found == Principal(user=ann, scopes=frozenset({Scope.RUNS_READ}), kind="token", token_id=token.pk)


def test_the_database_holds_no_secret(ann: User) -> None:
    token, plain = create_token(ann, "ci", [Scope.RUNS_READ])
    mark, prefix, secret = plain.split("_", 2)
    assert (mark, prefix) == ("dys", token.prefix)
    assert len(secret) >= 43
    assert secret not in str(ApiToken.objects.values().get())


def test_secrets_differ(ann: User) -> None:
    assert create_token(ann, "a", [Scope.ADMIN])[1] != create_token(ann, "a", [Scope.ADMIN])[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain[:-1] + ("A" if plain[-1] != "A" else "B"),
        lambda plain: plain[:-1],
        lambda plain: plain + "A",
        lambda plain: plain.upper(),
        lambda plain: plain.removeprefix("dys_"),
        lambda plain: "dyx" + plain[3:],
        lambda plain: plain.rsplit("_", 1)[0] + "_",
        lambda plain: "",
        lambda plain: "dys_",
        lambda plain: "dys_\x00_x",
        lambda plain: "dys_é_é",
    ],
)
def test_anything_but_the_token_is_refused(ann: User, change) -> None:  # type: ignore[no-untyped-def]  # lambdas
    _, plain = create_token(ann, "ci", [Scope.RUNS_READ])
    assert authenticate_token(change(plain), NOW) is None


def test_one_tokens_secret_does_not_open_another(ann: User) -> None:
    one, two = create_token(ann, "a", [Scope.RUNS_READ])[1], create_token(ann, "b", [Scope.ADMIN])[1]
    mixed = "_".join([*two.split("_", 2)[:2], one.split("_", 2)[2]])
    assert authenticate_token(mixed, NOW) is None


def test_expiry_revocation_and_a_blocked_owner_end_it(ann: User) -> None:
    _, plain = create_token(ann, "ci", [Scope.RUNS_READ], expires=NOW)
    assert authenticate_token(plain, NOW - timedelta(seconds=1)) is not None
    assert authenticate_token(plain, NOW) is None
    token, plain = create_token(ann, "ci", [Scope.RUNS_READ])
    revoke_token(token)
    assert authenticate_token(plain, NOW) is None
    _, plain = create_token(ann, "ci", [Scope.RUNS_READ])
    User.objects.update(is_active=False)
    assert authenticate_token(plain, NOW) is None


def test_revoking_twice_keeps_the_first_time(ann: User) -> None:
    token, _ = create_token(ann, "ci", [Scope.RUNS_READ])
    revoke_token(token)
    first = ApiToken.objects.get().revoked_at
    revoke_token(token)
    assert ApiToken.objects.get().revoked_at == first


def test_use_is_noted_once_a_minute(ann: User, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    _, plain = create_token(ann, "ci", [Scope.RUNS_READ])
    with django_assert_num_queries(2):
        authenticate_token(plain, NOW)
    with django_assert_num_queries(1):
        authenticate_token(plain, NOW + timedelta(seconds=59))
    assert ApiToken.objects.get().last_used_at == NOW
    authenticate_token(plain, NOW + timedelta(seconds=60))
    assert ApiToken.objects.get().last_used_at == NOW + timedelta(seconds=60)


def test_scopes_that_no_longer_exist_are_dropped(ann: User) -> None:
    _, plain = create_token(ann, "ci", [Scope.RUNS_READ])
    ApiToken.objects.update(scopes=["runs:read", "moon:write"])
    found = authenticate_token(plain, NOW)
    assert found is not None
    assert found.scopes == {Scope.RUNS_READ}
