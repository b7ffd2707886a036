"""Hard limits of one request: caps on the whole plan, caps per model class, pins and prohibitions by node (ours).

Caps couple nodes and go to the MIP solver where the optimum without them breaks one; pins and forbidden patterns only
shorten a node's columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Patterns = tuple[str, ...]
"""`model/policy/backend`, each part a name or `*`; trailing parts may be left out."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`max_calls` counts every conditional stage; tokens and cost are expected values; None: no such limit.

    `max_model_work_s` in slot-seconds and `max_model_calls` are by model class; `pinned` and `forbidden` by node id:
    a node uses an implementation that some pinned pattern matches, if it has any, and no forbidden one does.
    """

    max_cost: float | None = None
    max_calls: int | None = None
    max_tokens: float | None = None
    max_makespan_s: float | None = None
    min_quality: float | None = None
    max_model_work_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    max_model_calls: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    pinned: Mapping[str, Patterns] = field(default_factory=lambda: MappingProxyType({}))
    forbidden: Mapping[str, Patterns] = field(default_factory=lambda: MappingProxyType({}))


NO_LIMITS = Limits()
