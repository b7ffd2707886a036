"""The emulator's process: announces its replicas, answers, stops on a signal, explains what is wrong."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[3]


def _start(config: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fleet.emulator", str(config)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _write(path: Path, *ports: int) -> Path:
    replicas = [{"name": f"r{i}", "model": "qwen3.5-4b", "port": port} for i, port in enumerate(ports)]
    path.write_text(json.dumps({"replicas": replicas, "time_scale": 0.001}))
    return path


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    started = _start(_write(tmp_path / "emulator.json", 0, 0))
    yield started
    started.kill()
    started.communicate()


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_it_announces_its_replicas_and_stops_at_once_in_the_middle_of_a_stream(
    process: subprocess.Popen[str], name: signal.Signals
) -> None:
    assert process.stdout is not None
    urls = json.loads(process.stdout.readline())["ready"]
    assert sorted(urls) == ["r0", "r1"]
    body = {"model": "qwen3.5-4b", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    with httpx.stream("POST", urls["r0"] + "/v1/chat/completions", json=body, timeout=30) as response:
        lines = response.iter_lines()
        assert "assistant" in next(lines)
        process.send_signal(name)
        rest = list(lines)
    assert process.wait(timeout=5) == 0
    assert any("EngineCore" in line for line in rest)
    assert [line for line in rest if line][-1] == "data: [DONE]"


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = _start(_write(tmp_path / "emulator.json", 0, port))
        _, complaint = process.communicate(timeout=30)
    assert process.returncode == 2
    assert f"replica r1: cannot listen on 127.0.0.1:{port}" in complaint


def test_a_wrong_configuration_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "emulator.json"
    path.write_text('{"replicas": [{"name": "x"}]}')
    process = _start(path)
    _, complaint = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "replicas[0]: model missing" in complaint
    assert "Traceback" not in complaint
