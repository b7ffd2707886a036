"""Replies recorded from real vLLM 0.32 servers; they lie beside the repository and may be absent."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "data" / "vllm"
RESPONSES = FOLDER / "responses"

needs_recordings = pytest.mark.skipif(
    not RESPONSES.is_dir(), reason=f"no recorded vLLM replies beside the repository ({FOLDER.name} is absent)"
)


def body(name: str) -> bytes:
    return (RESPONSES / f"{name}.body").read_bytes()


def status(name: str) -> int:
    return int((RESPONSES / f"{name}.headers").read_text().split()[1])


def page(name: str) -> str:
    return (FOLDER / name).read_text()
