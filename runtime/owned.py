"""The runs that this worker owns, and how the world's wishes reach them. Belongs to the worker's event loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from planner.compiler.plan import Bundle
from planner.compiler.workflow import Workflow
from runtime.engine.control import LocalControl
from runtime.leases import Held


@dataclass(slots=True, kw_only=True)
class OwnedRun:
    """A run from its claim to the end of its execution here; `waits_for` is the bundle it has only pi(0) of."""

    run_id: str
    epoch: int
    control: LocalControl = field(default_factory=LocalControl)
    workflow: Workflow | None = None
    waits_for: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleNeed:
    """A completed bundle, to be bound to the nodes of one workflow, for the runs that wait for it."""

    bundle_id: int
    workflow: Workflow
    runs: tuple[OwnedRun, ...]


class OwnedRuns:
    def __init__(self) -> None:
        self._runs: dict[str, OwnedRun] = {}
        self._draining = False

    def __len__(self) -> int:
        return len(self._runs)

    def ids(self) -> list[str]:
        return sorted(self._runs)

    def add(self, run: OwnedRun) -> None:
        self._runs[run.run_id] = run
        if self._draining:
            run.control.release()

    def remove(self, run: OwnedRun) -> None:
        if self._runs.get(run.run_id) is run:
            del self._runs[run.run_id]

    def release_all(self) -> None:
        """The worker drains: everything is let go, and so is whatever is still added."""
        self._draining = True
        for run in self._runs.values():
            run.control.release()

    def cancel(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            if run_id in self._runs:
                self._runs[run_id].control.cancel()

    def learn(self, held: Iterable[Held]) -> set[int]:
        """Release lost runs and cancel cancelled ones; returns the completed bundles that somebody waits for."""
        ready: set[int] = set()
        for item in held:
            run = self._runs.get(item.run_id)
            if run is None:
                continue
            if not item.owned or item.epoch != run.epoch:
                run.control.release()
            if item.cancel_requested:
                run.control.cancel()
            if item.bundle_ready and item.bundle_id is not None and item.bundle_id == run.waits_for:
                ready.add(item.bundle_id)
        return ready

    def needs(self, bundle_ids: Iterable[int]) -> list[BundleNeed]:
        """Who waits for these bundles; runs of one workflow value share the work of binding it."""
        wanted = set(bundle_ids)
        groups: dict[tuple[int, int], list[OwnedRun]] = {}
        for run in self._runs.values():
            if run.waits_for in wanted and run.waits_for is not None and run.workflow is not None:
                groups.setdefault((run.waits_for, id(run.workflow)), []).append(run)
        return [
            BundleNeed(bundle_id=bundle_id, workflow=runs[0].workflow, runs=tuple(runs))
            for (bundle_id, _), runs in groups.items()
            if runs[0].workflow is not None
        ]

    def give_up(self, need: BundleNeed) -> None:
        """These runs keep the variants they have."""
        for run in need.runs:
            run.waits_for = None

    def deliver(self, need: BundleNeed, bundle: Bundle) -> None:
        for run in need.runs:
            run.waits_for = None
            run.control.deliver(bundle)
