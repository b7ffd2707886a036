"""What the API answers, as values. Members that this client does not know are left out: servers may add some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

ENDED = frozenset({"succeeded", "failed", "cancelled"})


class _FromJson:
    """`of` builds a value from the members that it knows. Raises TypeError when one is missing."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        known = {item.name for item in fields(cls)}  # type: ignore[arg-type]  # every subclass is a dataclass
        return cls(**{name: value for name, value in data.items() if name in known})


@dataclass(frozen=True, kw_only=True)
class Workflow(_FromJson):
    id: int
    slug: str
    name: str
    latest_version: int
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class StoredWorkflow:
    """`created` is False when this very content was known; `notes` say what an importer derived."""

    workflow: Workflow
    version_id: int
    number: int
    created: bool
    notes: tuple[Any, ...] = ()

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        version = data["version"]
        return cls(
            workflow=Workflow.of(data["workflow"]),
            version_id=version["id"],
            number=version["number"],
            created=data["created"],
            notes=tuple(version["notes"]),
        )


@dataclass(frozen=True, kw_only=True)
class Run(_FromJson):
    """Times in epoch seconds, durations in seconds; `output` is the output node's, None until the run succeeded."""

    id: str
    state: str
    workflow: str = ""
    accepted_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    deadline_s: float | None = None
    late: bool | None = None
    nodes_done: int = 0
    nodes_total: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    switches: int = 0
    output: Any = None
    error: Mapping[str, Any] | None = None
    emulated: bool = False

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def latency_s(self) -> float | None:
        """From acceptance to the end; None while it runs."""
        return None if self.finished_at is None else self.finished_at - self.accepted_at


@dataclass(frozen=True, kw_only=True)
class RunSubmission:
    """`created` is False when the idempotency key gave back an earlier run."""

    run: Run
    created: bool

    @property
    def id(self) -> str:
        return self.run.id


@dataclass(frozen=True, kw_only=True)
class Event(_FromJson):
    """One line of a run's log."""

    seq: int
    kind: str
    at: float
    data: Mapping[str, Any] = field(default_factory=dict)
