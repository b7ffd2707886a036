"""What the paper compares with (7.2, 7.4), each compiling like `compile_plan`; for replays and tests."""

from __future__ import annotations

from planner.compiler.baselines.named import BASELINES, Baseline

__all__ = ["BASELINES", "Baseline"]
