"""Pareto fronts over all plans: (makespan, estimated quality) and (cost, estimated quality)."""

from __future__ import annotations

from planner.compiler.pareto.front import Axis, Front, ParetoPoint, pareto_front

__all__ = ["Axis", "Front", "ParetoPoint", "pareto_front"]
