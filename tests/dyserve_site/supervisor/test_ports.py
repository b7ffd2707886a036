"""Ports and the lock of the home folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dyserve_site.supervisor.ports import EMULATED_REPLICAS, HomeLock, emulator_base, taken
from fleet.demo import REPLICAS


def test_a_taken_port_is_named() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert taken("127.0.0.1", [port]) == [port]
    assert taken("127.0.0.1", [port]) == []


@given(st.integers(1, 65527))
def test_neighbouring_instances_never_share_an_emulator_port(port: int) -> None:
    bases = [emulator_base(port + offset) for offset in range(8)]
    ports = [base + index for base in bases for index in range(EMULATED_REPLICAS)]
    assert len(set(ports)) == len(ports)
    assert all(10_000 <= number < 32_768 for number in ports)


def test_a_configured_base_wins() -> None:
    assert emulator_base(8000, 12345) == 12345


def test_one_supervisor_a_home(tmp_path: Path) -> None:
    first, second = HomeLock(tmp_path), HomeLock(tmp_path)
    assert first.take() is None
    assert second.take() == os.getpid()
    first.release()
    assert second.take() is None
    second.release()


def test_the_demo_fleet_fits_its_ports() -> None:
    assert len(REPLICAS) == EMULATED_REPLICAS
