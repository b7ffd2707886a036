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

from planner.compiler import solve
from planner.compiler.pricing import PRICE_LEVELS
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
            (["--bundle", "cheap"], "--bundle: must be one of levels, priced, got 'cheap'"),
            (["--levels", "nan"], "--levels: must be a finite number"),
            (["--effort", "1e400"], "--effort: must be a finite number"),
            (["--limit", "max_cost"], "--limit max_cost: write NAME=VALUE"),
            (["--limit", "calls.=3"], "--limit calls.=3: write NAME=VALUE"),
            (["--limit", "max_price=1"], "--limit max_price: is unknown; limits: max_cost"),
            (["--limit", "max_cost=1e400"], "--limit max_cost: must be a finite number"),
            (["--limit", "max_cost=" + "9" * 400], "--limit max_cost: must be a finite number"),
            (["--limit", "max_cost=nan"], "--limit max_cost: must be a finite number"),
            (["--limit", "max_tokens=-1"], "--limit max_tokens: must not be negative"),
            (["--limit", "min_quality=1.01"], "--limit min_quality: must lie between 0 and 1"),
            (["--limit", "max_calls=2.5"], "--limit max_calls: counts calls: give a whole number"),
            (["--limit", "max_cost=1", "--limit", "max_cost=2"], "--limit max_cost: is given twice"),
            (["--limit", "calls.gpt-9=3"], "--limit calls.gpt-9: there is no model class 'gpt-9'; classes: qwen3.5-"),
            (["--limit", "pin.pick=qwen3.5-9b"], "--limit pin.pick: 'pick' is no LLM node of the workflow"),
            (["--limit", "pin.draft=gpt-9"], "--limit pin.draft: 'gpt-9' matches nothing in the fleet"),
            (["--limit", "pin.дом[/b]=*"], "--limit pin.дом[/b]: 'дом[/b]' is no LLM node of the workflow"),
            (["--limit", f"pin.{'x' * 1000}=*"], "is no LLM node of the workflow; LLM nodes: draft, answer"),
        ],
    )
    def test_bad_options(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
    ) -> None:
        status, out, err = self.run(capsys, file(tmp_path, data()), *arguments)
        assert (status, out) == (2, "")
        assert message in err

    def test_every_bad_limit_is_named_at_once(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        limits = ["--limit", "max_cost=-1", "--limit", "min_quality=much", "--limit", "forbid.draft=/"]
        status, out, err = self.run(capsys, file(tmp_path, data()), "--json", *limits)
        assert status == 2
        assert [error["option"] for error in json.loads(out)["errors"]] == [
            "limit max_cost",
            "limit min_quality",
            "limit forbid.draft",
        ]
        assert len(err.splitlines()) == 3

    def test_limits_hold(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = file(tmp_path, data())
        limits = ["max_cost=1000", "pin.draft=qwen3.5-9b,*/debate", "forbid.*=*/debate", "calls.qwen3.5-4b=0"]
        texts = [part for limit in limits for part in ("--limit", limit)]
        _, default, _ = self.run(capsys, given, "--json")
        status, out, _ = self.run(capsys, given, "--json", *texts)
        report = json.loads(out)
        assert status == 0
        assert report["limits"] == {
            "max_cost": 1000,
            "calls": {"qwen3.5-4b": 0},
            "pin": {"draft": ["qwen3.5-9b", "*/debate"]},
            "forbid": {"*": ["*/debate"]},
        }
        for variant in report["variants"]:
            assert variant["cost"] <= 1000
            assert variant["assignment"]["draft"]["model"] == "qwen3.5-9b"
            assert "qwen3.5-4b" not in variant["demand"]
        assert report["key"] != json.loads(default)["key"]
        status, out, _ = self.run(capsys, given, *texts)
        assert status == 0
        assert "qwen3.5-9b." in out

    def test_a_priced_bundle(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        status, out, _ = self.run(capsys, file(tmp_path, data()), "--json", "--bundle", "priced")
        report = json.loads(out)
        assert (status, report["kind"], report["variants"][0]["level"]) == (0, "priced", PRICE_LEVELS[0])
        assert set(report["variants"][0]["terms"]) == {"log_quality", "gpu", "latency"}

    CONFLICT = ("--limit", "max_cost=0.001", "--limit", "min_quality=0.5", "--limit", "max_tokens=1e9")

    def test_conflicting_limits_in_words(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        status, out, err = self.run(capsys, file(tmp_path, data()), *self.CONFLICT, "--explain")
        assert (status, out) == (1, "")
        first, *reasons = (line.strip() for line in err.splitlines())
        assert first.endswith("flow.json has no plan:")
        assert reasons[0] == "no plan keeps max_cost=0.001"
        assert reasons[1].startswith("raise max_cost from 0.001 to at least ")
        enough = reasons[1].rsplit(" ", 1)[1]
        status, _, _ = self.run(capsys, file(tmp_path, data()), "--limit", f"max_cost={enough}")
        assert status == 0

    def test_conflicting_limits_as_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        status, out, _ = self.run(capsys, file(tmp_path, data()), "--json", *self.CONFLICT, "--explain")
        assert status == 1
        (line,) = out.splitlines()
        (error,) = json.loads(line)["errors"]
        assert error["code"] == "no_plan"
        assert "raise max_cost" in error["message"]
        (conflict,) = error["conflicts"]
        assert (conflict["limit"], conflict["asked"], conflict["least"]) == ("max_cost", 0.001, True)
        assert conflict["needed"] > 0.001

    def test_a_pin_against_a_prohibition(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        pins = ["--limit", "pin.draft=qwen3.5-9b", "--limit", "forbid.*=qwen3.5-9b"]
        status, out, err = self.run(capsys, file(tmp_path, data()), "--json", *pins)
        assert status == 1
        (error,) = json.loads(out)["errors"]
        assert [(c["limit"], c["asked"]) for c in error["conflicts"]] == [
            ("pin.draft", "qwen3.5-9b"),
            ("forbid.*", "qwen3.5-9b"),
        ]
        assert "node draft has no implementation left by pin.draft=qwen3.5-9b and forbid.*=qwen3.5-9b" in err

    def test_explained_in_words(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        status, out, _ = self.run(capsys, file(tmp_path, data()), "--explain")
        assert status == 0
        for title in (
            "what the next best",
            "what verification adds",
            "stays optimal",
            "front of makespan_s",
            "redrawn",
        ):
            assert title in out
        assert "measure " in out

    def test_explained_as_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        status, out, _ = self.run(capsys, file(tmp_path, data()), "--explain", "--json")
        assert status == 0
        (line,) = out.splitlines()
        report = json.loads(line)
        chosen = report["variants"][0]["assignment"]
        nodes = report["explanation"]["nodes"]
        assert {node["node"]: node["chosen"] for node in nodes} == chosen
        assert all(len(node["alternatives"]) <= 6 for node in nodes)
        assert [found["parameter"] for found in report["sensitivity"]] == ["lambda_l", "effort", "level"]
        assert [front["axis"] for front in report["fronts"]] == ["makespan_s", "cost"]
        assert report["stability"]["complete"]

    def test_a_priced_bundle_explained(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = file(tmp_path, data())
        status, out, _ = self.run(capsys, given, "--explain", "--json", "--bundle", "priced")
        assert status == 0
        assert [found["parameter"] for found in json.loads(out)["sensitivity"]] == ["level"]

    def test_coupled_limits_explained(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Redraws do not keep caps, so there is no stability; an alternative names the cap that it breaks."""
        given = file(tmp_path, data())
        _, free, _ = self.run(capsys, given, "--json")
        cap = f"max_cost={0.9 * json.loads(free)['variants'][0]['cost']}"
        status, out, _ = self.run(capsys, given, "--explain", "--json", "--limit", cap)
        report = json.loads(out)
        assert (status, report["stability"]) == (0, None)
        breaks = [a["breaks"] for node in report["explanation"]["nodes"] for a in node["alternatives"]]
        assert ["max_cost"] in breaks
        status, out, _ = self.run(capsys, given, "--explain", "--limit", cap)
        assert status == 0
        assert "no stability: a redraw of the profiles does not keep caps on the whole plan" in out

    @pytest.mark.parametrize("arguments", [[], ["--bundle", "priced"], ["--limit", "max_calls=0"]])
    def test_tools_alone_explained(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
    ) -> None:
        nodes = [{"id": "t", "kind": "tool", "tool": "template", "arguments": {"template": "x"}}]
        given = file(tmp_path, data(nodes=nodes, output="t"))
        status, out, _ = self.run(capsys, given, "--explain", "--json", *arguments)
        assert status == 0
        report = json.loads(out)
        assert report["variants"][0]["assignment"] == {}
        assert [len(front["points"]) for front in report["fronts"]] == [1, 1]
        status, out, _ = self.run(capsys, given, "--explain", *arguments)
        assert status == 0
        assert "1 nodes" in out

    def test_a_cap_that_tools_alone_break(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        nodes = [{"id": "t", "kind": "tool", "tool": "template", "arguments": {"template": "x"}}]
        given = file(tmp_path, data(nodes=nodes, output="t"))
        status, _, err = self.run(capsys, given, "--explain", "--limit", "max_makespan_s=0.5")
        assert status == 1
        assert "raise max_makespan_s from 0.5 to at least 1" in err

    def test_a_plan_that_is_not_the_best_has_no_ranges(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Plans of many nodes are accepted with a proven gap; here any gap will do."""
        monkeypatch.setattr(solve, "PROVED_UP_TO", 0)
        monkeypatch.setattr(solve, "ACCEPTED_GAP", 10.0)
        given = file(tmp_path, demo_workflow_sources()["research_report.yaml"], "flow.yaml")
        options = ("--explain", "--levels", "1", "--weights", "fast")
        status, out, _ = self.run(capsys, given, "--json", *options)
        assert status == 0
        report = json.loads(out)
        assert report["sensitivity"] is None
        assert report["variants"][0]["gap"] > 0
        status, out, _ = self.run(capsys, given, *options)
        assert status == 0
        assert "no ranges" in out

    @pytest.mark.parametrize("name", ["Plan [v2]", "x[/b]", "[red]", "\\[bold]", "a\\"])
    def test_a_name_is_printed_as_it_is(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
        status, out, _ = self.run(capsys, file(tmp_path, data(name)))
        assert status == 0
        assert f"{name}: 3 nodes" in out

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
