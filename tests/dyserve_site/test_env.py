"""Typed settings: what is wrong is named with its variable and the remedy."""

from __future__ import annotations

import secrets
import stat
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from dyserve_site import env


def test_numbers_name_the_variable_and_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYSERVE_X", "many")
    with pytest.raises(ImproperlyConfigured, match=r"DYSERVE_X='many' is not a number; set it between 1 and 9"):
        env.number("DYSERVE_X", 2, low=1, high=9)
    monkeypatch.setenv("DYSERVE_X", "10")
    with pytest.raises(ImproperlyConfigured, match="out of range"):
        env.number("DYSERVE_X", 2, low=1, high=9)
    monkeypatch.setenv("DYSERVE_X", "2.5")
    with pytest.raises(ImproperlyConfigured, match="whole number"):
        env.integer("DYSERVE_X", 2, low=1, high=9)
    monkeypatch.delenv("DYSERVE_X")
    assert env.number("DYSERVE_X", 2, low=1, high=9) == 2


@pytest.mark.parametrize(("raw", "expected"), [("1", True), ("no", False), ("", True), ("ON", True)])
def test_flags(monkeypatch: pytest.MonkeyPatch, raw: str, expected: bool) -> None:
    monkeypatch.setenv("DYSERVE_X", raw)
    assert env.flag("DYSERVE_X", True) is expected


def test_a_flag_that_is_neither_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYSERVE_X", "perhaps")
    with pytest.raises(ImproperlyConfigured, match="neither true nor false"):
        env.flag("DYSERVE_X", True)


def test_one_of_several_or_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.one_of("DYSERVE_X", ("small", "large")) == "small"
    monkeypatch.setenv("DYSERVE_X", "large")
    assert env.one_of("DYSERVE_X", ("small", "large")) == "large"
    monkeypatch.setenv("DYSERVE_X", "huge")
    with pytest.raises(ImproperlyConfigured, match="DYSERVE_X='huge' is unknown; set it to small or large"):
        env.one_of("DYSERVE_X", ("small", "large"))


def test_the_secret_key_is_made_once_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECRET_KEY", raising=False)
    first = env.secret_key(tmp_path)
    assert env.secret_key(tmp_path) == first
    assert len(first) >= 50
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600


def test_two_commands_that_come_first_together_have_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one comes while the first makes the key, and must not read half of it."""
    monkeypatch.delenv("SECRET_KEY", raising=False)
    make = secrets.token_urlsafe
    others: list[str] = []

    def interrupted(size: int) -> str:
        monkeypatch.setattr(secrets, "token_urlsafe", make)
        others.append(env.secret_key(tmp_path))
        return make(size)

    monkeypatch.setattr(secrets, "token_urlsafe", interrupted)
    assert [env.secret_key(tmp_path)] == others
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),  # noqa: S104  # nothing listens
        ("::", "[::1]"),
        ("::1", "[::1]"),
        ("h.example", "h.example"),
    ],  # nothing listens
)
def test_a_servers_address_is_written_as_urls_write_it(address: str, name: str) -> None:
    assert env.host_name(address) == name


def test_a_broken_secret_key_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECRET_KEY", raising=False)
    (tmp_path / "secret_key").write_text("short")
    with pytest.raises(ImproperlyConfigured, match="delete it"):
        env.secret_key(tmp_path)


def test_a_long_home_gets_a_short_socket_path(tmp_path: Path) -> None:
    assert env.socket_path(Path("/srv/dyserve")) == Path("/srv/dyserve/run/valkey.sock")
    deep = tmp_path / ("x" * 120)
    assert len(str(env.socket_path(deep))) <= 100
    assert env.socket_path(deep) != env.socket_path(deep / "y")


def test_database_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert env.database(tmp_path)["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    monkeypatch.setenv("DATABASE_URL", "postgres://ada:s%40cret@db.example:5433/dyserve")
    settings = env.database(tmp_path)
    assert (settings["USER"], settings["PASSWORD"], settings["HOST"], settings["PORT"], settings["NAME"]) == (
        "ada",
        "s@cret",
        "db.example",
        "5433",
        "dyserve",
    )
    assert "pool" not in settings["OPTIONS"]
    monkeypatch.setenv("DYSERVE_DATABASE_POOL", "7")
    settings = env.database(tmp_path)
    assert settings["OPTIONS"]["pool"] == {"min_size": 1, "max_size": 7, "timeout": 3.0}
    # What Django asks of a pool, and what makes one survive a restart of the server.
    assert (settings["CONN_MAX_AGE"], settings["CONN_HEALTH_CHECKS"]) == (0, True)
    monkeypatch.setenv("DATABASE_URL", "mysql://x/y")
    with pytest.raises(ImproperlyConfigured, match="scheme 'mysql'"):
        env.database(tmp_path)


@pytest.mark.parametrize(
    ("redis", "broker"),
    [("unix:///run/v.sock", "redis+socket:///run/v.sock"), ("redis://h:1/0", "redis://h:1/0")],
)
def test_broker_url(redis: str, broker: str) -> None:
    assert env.broker_url(redis) == broker
