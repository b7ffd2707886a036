"""Trust in a plan: how it fares when profile cells are redrawn, and which cell is worth measuring next."""

from __future__ import annotations

from planner.compiler.stability.report import DEFAULT_DRAWS, NodeStability, Share, Stability, stability

__all__ = ["DEFAULT_DRAWS", "NodeStability", "Share", "Stability", "stability"]
