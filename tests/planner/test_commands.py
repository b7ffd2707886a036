"""`compile` works without anything, `workflow_import` with a database alone; both name every problem and its remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from planner.data import demo_workflow_sources
from planner.models import WorkflowVersion
from tests.planner.rows import data, document


def file(folder: Path, content: bytes | str, name: str = "flow.json") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


# --- compile ---


@pytest.mark.process
def test_compile_on_a_fresh_home_without_database_or_redis(tmp_path: Path) -> None:
    given = file(tmp_path, data())
    done = subprocess.run(
        [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), "compile", given, "--json"],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        env={**os.environ, "DYSERVE_HOME": str(tmp_path / "home"), "REDIS_URL": "redis://127.0.0.1:1/0"},
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    report = json.loads(done.stdout)
    assert (report["workflow"], report["nodes"], report["illustrative"]) == ("Pair", 3, True)
    assert report["variants"][0]["level"] == 0
    assert set(report["variants"][0]["assignment"]) == {"draft", "answer"}
    assert "Pair: 3 nodes" in done.stderr


@pytest.mark.django_db
class TestCompile:
    def run(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
        status = 0
        try:
            call_command("compile", *arguments)
        except SystemExit as ended:
            status = int(ended.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    def test_people_get_a_table_on_standard_output(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        status, out, _ = self.run(capsys, file(tmp_path, data()))
        assert status == 0
        assert "Pair: 3 nodes" in out
        assert "qwen3.5-27b" in out
        assert "illustrative" in out

    def test_every_demo_workflow_compiles(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for name, text in demo_workflow_sources().items():
            status, out, err = self.run(capsys, file(tmp_path, text, name), "--json")
            assert status == 0, err
            assert json.loads(out)["variants"], name

    def test_levels_effort_and_weights_are_used(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = file(tmp_path, data())
        _, out, _ = self.run(capsys, given, "--json", "--levels", "2", "--effort", "1", "--weights", "fast")
        _, default, _ = self.run(capsys, given, "--json")
        assert [variant["level"] for variant in json.loads(out)["variants"]] == [2]
        assert json.loads(out)["key"] != json.loads(default)["key"]

    def test_all_problems_with_place_and_remedy(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        bad: dict[str, Any] = document(output="nobody")
        bad["nodes"][0]["prompt"] = "{{ inputs.nothing }}"
        status, out, err = self.run(capsys, file(tmp_path, json.dumps(bad, indent=1)))
        assert (status, out) == (2, "")
        lines = err.splitlines()
        assert len(lines) == 3
        assert all("line " in line for line in lines[1:])
        assert any("/output" in line for line in lines)
        assert any("/nodes/0/prompt" in line for line in lines)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--levels", "a,b"], "--levels: give numbers"),
            (["--levels", "-1"], "--levels: levels must lie"),
            (["--effort", "7"], "--effort: must lie"),
            (["--weights", "cheapest"], "--weights: unknown preset"),
        ],
    )
    def test_bad_options(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
    ) -> None:
        status, _, err = self.run(capsys, file(tmp_path, data()), *arguments)
        assert status == 2
        assert message in err

    def test_no_plan_is_a_failure_with_reasons(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        nodes = [{"id": "a", "kind": "llm", "skill": "juggling", "prompt": "Hi."}]
        status, _, err = self.run(capsys, file(tmp_path, data(nodes=nodes, output="a")))
        assert status == 1
        assert "juggling" in err

    def test_with_json_a_failure_is_one_line_too(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        nodes = [{"id": "a", "kind": "llm", "skill": "juggling", "prompt": "Hi."}]
        for text, arguments, code in (
            (data(nodes=nodes, output="a"), [], "no_plan"),
            (data(nodes=nodes, output="z"), [], "unknown_node"),
            (data(), ["--effort", "7"], "bad_option"),
        ):
            status, out, _ = self.run(capsys, file(tmp_path, text), "--json", *arguments)
            assert status in (1, 2)
            assert len(out.splitlines()) == 1
            assert code in [error["code"] for error in json.loads(out)["errors"]]

    def test_a_missing_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(CommandError, match="cannot be read") as caught:
            call_command("compile", "/nonexistent/flow.yaml", "--json")
        assert caught.value.returncode == 2
        assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == "unreadable"


# --- workflow_import ---


@pytest.mark.django_db
class TestImport:
    def test_files_are_stored_for_the_first_superuser(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        User.objects.create_superuser("root")
        paths = [file(tmp_path, data("A"), "a.json"), file(tmp_path, data("B"), "b.json")]
        call_command("workflow_import", *paths, "--json")
        out, err = capsys.readouterr()
        report = json.loads(out)
        assert [(item["name"], item["version"], item["created"]) for item in report["stored"]] == [
            ("A", 1, True),
            ("B", 1, True),
        ]
        assert report["rejected"] == 0
        assert len(err.splitlines()) == 2
        call_command("workflow_import", paths[0], "--json")
        assert not json.loads(capsys.readouterr().out)["stored"][0]["created"]

    def test_a_named_owner(self, tmp_path: Path) -> None:
        User.objects.create_user("ivan")
        call_command("workflow_import", file(tmp_path, data()), "--owner", "ivan")
        assert WorkflowVersion.objects.get().owner.username == "ivan"

    def test_good_files_are_stored_beside_bad_ones(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        User.objects.create_superuser("root")
        with pytest.raises(SystemExit) as ended:
            call_command("workflow_import", file(tmp_path, b"{", "bad.json"), file(tmp_path, data()), "--json")
        assert ended.value.code == 2
        out, err = capsys.readouterr()
        assert json.loads(out)["rejected"] == 1
        assert "bad.json is no valid workflow" in err
        assert WorkflowVersion.objects.count() == 1

    def test_nobody_to_own_them(self, tmp_path: Path) -> None:
        given = file(tmp_path, data())
        with pytest.raises(CommandError, match="no superuser"):
            call_command("workflow_import", given)
        with pytest.raises(CommandError, match="no user 'ghost'"):
            call_command("workflow_import", given, "--owner", "ghost")
