"""Settings are read once, by typed helpers that fail loudly and name the variable and the remedy."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

Option = TypeVar("Option", bound=str)

# sun_path holds 108 bytes on Linux, 104 on macOS.
_MAX_SOCKET_PATH = 100
POOL_TIMEOUT_S = 3.0
"""How long a request waits for a connection of the pool before it is answered 503."""


def text(name: str, default: str) -> str:
    return os.environ.get(name, "").strip() or default


def number(name: str, default: float, *, low: float, high: float) -> float:
    raw = text(name, "")
    if not raw:
        return default
    try:
        value = float(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r} is not a number; set it between {low:g} and {high:g}") from None
    if not low <= value <= high:
        raise ImproperlyConfigured(f"{name}={raw} is out of range; set it between {low:g} and {high:g}")
    return value


def integer(name: str, default: int, *, low: int, high: int) -> int:
    value = number(name, default, low=low, high=high)
    if value != int(value):
        raise ImproperlyConfigured(f"{name}={value:g} must be a whole number")
    return int(value)


def flag(name: str, default: bool) -> bool:
    raw = text(name, "").lower()
    if raw in ("", "1", "true", "yes", "on"):
        return default if raw == "" else True
    if raw in ("0", "false", "no", "off"):
        return False
    raise ImproperlyConfigured(f"{name}={raw!r} is neither true nor false; set it to 1 or 0")


def one_of(name: str, options: Sequence[Option]) -> Option:
    """The first option is the default."""
    raw = text(name, options[0])
    for option in options:
        if option == raw:
            return option
    raise ImproperlyConfigured(f"{name}={raw!r} is unknown; set it to {' or '.join(options)}")


def items(name: str, default: list[str]) -> list[str]:
    raw = text(name, "")
    return [item.strip() for item in raw.split(",") if item.strip()] if raw else default


def host_name(address: str) -> str:
    """How the address that a server listens at is written in a URL; a wildcard address is reached over loopback."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104  # compared, never bound
    return f"[{reached}]" if ":" in reached else reached


def home(default: Path) -> Path:
    """DYSERVE_HOME, made on first use, readable by its owner alone."""
    path = Path(text("DYSERVE_HOME", str(default))).expanduser().resolve()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(f"DYSERVE_HOME={path} cannot be made: {error.strerror}") from None
    return path


def secret_key(folder: Path) -> str:
    """SECRET_KEY from the environment, else from a 0600 file that whichever command comes first makes."""
    given = text("SECRET_KEY", "")
    if given:
        return given
    path = folder / "secret_key"
    if not path.exists():
        _make_key(path)
    value = path.read_text(encoding="ascii").strip()
    if len(value) < 50:
        raise ImproperlyConfigured(f"{path} holds no usable key; delete it to have a new one made")
    return value


def _make_key(path: Path) -> None:
    """In one step: of two commands that come first together one makes it, and neither reads half of it."""
    value = secrets.token_urlsafe(64)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(value)
    try:
        os.link(scratch, path)
    except FileExistsError:
        pass
    finally:
        scratch.unlink()


def socket_path(folder: Path) -> Path:
    """Where the embedded Valkey listens; in the temporary folder when the home's own path is too long for a socket."""
    path = folder / "run" / "valkey.sock"
    if len(str(path)) <= _MAX_SOCKET_PATH:
        return path
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"dyserve-{os.getuid()}-{digest}" / "valkey.sock"


def redis_url(folder: Path) -> str:
    return text("REDIS_URL", f"unix://{socket_path(folder)}")


def broker_url(redis: str) -> str:
    """The same server in the words of Celery's transport."""
    return "redis+socket://" + redis.removeprefix("unix://") if redis.startswith("unix://") else redis


def database(folder: Path) -> dict[str, Any]:
    """DATABASE_URL (postgres://user:password@host:port/name), else SQLite in the home folder."""
    url = text("DATABASE_URL", "")
    if not url:
        return sqlite(folder / "dyserve.sqlite3")
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite(Path(unquote(parts.path)))
    if parts.scheme not in ("postgres", "postgresql"):
        raise ImproperlyConfigured(f"DATABASE_URL has scheme {parts.scheme!r}; use postgres:// or sqlite:///path")
    query: Mapping[str, str] = dict(parse_qsl(parts.query))
    connections = integer("DYSERVE_DATABASE_POOL", 0, low=0, high=1000)
    # For the web, whose every request has a thread, and so a connection, of its own. Workers keep theirs.
    pool = {"pool": {"min_size": 1, "max_size": connections, "timeout": POOL_TIMEOUT_S}} if connections else {}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or query.get("host", "")),
        "PORT": str(parts.port or query.get("port", "")),
        "CONN_MAX_AGE": 0,
        # A pooled connection may have died unseen; one that is opened when needed has not.
        "CONN_HEALTH_CHECKS": bool(connections),
        "OPTIONS": {
            **pool,
            # A worker that is stopped inside a transaction must not keep its rows locked.
            "options": "-c idle_in_transaction_session_timeout=3000",
            "connect_timeout": 5,
        },
    }


def sqlite(path: Path) -> dict[str, Any]:
    """WAL and IMMEDIATE transactions: writers queue up instead of failing with 'database is locked'."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "CONN_MAX_AGE": 0,
        # Tests use a file too: in memory, threads would share one cache, whose table locks no time-out waits for.
        "TEST": {"NAME": str(path.with_name("test.sqlite3"))},
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": (
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000; "
                "PRAGMA cache_size=-16000; PRAGMA mmap_size=134217728;"
            ),
        },
    }
