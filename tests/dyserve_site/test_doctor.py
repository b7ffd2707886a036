"""`doctor` on a fresh folder and on a broken one: every finding names a remedy."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from tests.dyserve_site.test_project import manage


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_fresh_clone_has_nothing_wrong(tmp_path: Path) -> None:
    result = manage("doctor", "--json", home=tmp_path, DYSERVE_PORT=str(free_port()))
    lines = result.stdout.splitlines()
    assert len(lines) == 1
    report = json.loads(lines[0])
    assert (result.returncode, report["ok"], report["failed"]) == (0, True, 0), result.stdout + result.stderr
    notes = {finding["name"]: finding["remedy"] for finding in report["findings"] if finding["status"] == "note"}
    assert notes["web"] == "make up"


def test_what_is_wrong_is_named_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "secret_key").write_text("k" * 60)
    (tmp_path / "secret_key").chmod(0o644)
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        result = manage(
            "doctor",
            "--json",
            home=tmp_path,
            DYSERVE_PORT=port,
            REDIS_URL="redis://127.0.0.1:1/0",
            DATABASE_URL="postgres://nobody@127.0.0.1:1/none",
        )
    report = json.loads(result.stdout)
    failed = {finding["name"]: finding for finding in report["findings"] if finding["status"] == "failed"}
    assert result.returncode == 1
    assert failed["secret_key"]["remedy"].startswith("chmod 600")
    assert port in failed["DYSERVE_PORT"]["detail"]
    assert {"Redis", "database"} <= set(failed)
    assert all(finding["remedy"] for finding in failed.values())


def test_for_a_person_it_prints_a_table(tmp_path: Path) -> None:
    result = manage("doctor", home=tmp_path, DYSERVE_PORT=str(free_port()), COLUMNS="200")
    assert "CBC solver" in result.stdout
    assert "ok" in result.stdout
