"""The headless main job when it is told to end in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.process.conftest import MANAGE

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_told_to_end_leaves_neither_process_nor_folder(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, str(MANAGE), "demo", "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        family: list[psutil.Process] = []
        while len(family) < 4:  # `up` and the first of what it starts
            family = psutil.Process(process.pid).children(recursive=True)
            psutil.cpu_percent(interval=0.1)
        process.send_signal(number)
        assert process.wait(timeout=60) != 0
        _, alive = psutil.wait_procs(family, timeout=30)
        assert alive == []
        assert list(tmp_path.glob("dyserve-demo-*")) == []
    finally:
        process.kill()
        process.wait()
