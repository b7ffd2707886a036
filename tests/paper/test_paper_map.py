"""docs/PAPER_MAP.md names only what exists, and every module of the compiler and the engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "PAPER_MAP.md").read_text("utf-8")
ENTRIES = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", TEXT)


def defines(source: str, symbol: str) -> bool:
    return re.search(rf"^(?:async def|def|class) {symbol}\b|^{symbol}\b *[:=]", source, re.MULTILINE) is not None


def test_every_entry_exists() -> None:
    wrong = [
        f"{path}::{symbol}"
        for path, symbol in ENTRIES
        if not (ROOT / path).is_file() or (symbol and not defines((ROOT / path).read_text("utf-8"), symbol))
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["planner/compiler", "runtime/engine"])
def test_every_module_of_the_package_is_listed(package: str) -> None:
    listed = {path for path, symbol in ENTRIES if not symbol}
    modules = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py" and path.read_text("utf-8").strip()
    }
    assert modules - listed == set()


def test_the_check_can_fail() -> None:
    assert len(ENTRIES) > 60
    assert defines("async def run(x):", "run")
    assert defines("LEVELS: tuple = ()", "LEVELS")
    assert not defines("    def run(self):", "run")
