"""The client's methods, one per thing that the API offers a program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from dyserve_site.client.errors import Unreachable, WaitTimedOut
from dyserve_site.client.transport import Transport
from dyserve_site.client.values import Event, Run, RunSubmission, StoredWorkflow, Workflow

Document = str | Mapping[str, Any]

_SILENCE_S = 30.0
_MAX_RECONNECTS = 5


class Client:
    """Safe to share between threads. `sleep` and `clock` serve tests.

    Raises the errors of `dyserve_site.client.errors` from every method.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_s: float = 10.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = Transport(url, token, timeout_s=timeout_s)
        self._sleep, self._clock = sleep, clock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    # --- Workflows ---------------------------------------------------------------------------------------------------

    def validate_workflow(self, document: Document, **options: Any) -> dict[str, Any]:
        """What the document means. Raises InvalidRequest with every problem."""
        found: dict[str, Any] = self._transport.post("/workflows:validate", {"document": document, **options})
        return found

    def store_workflow(
        self,
        document: Document,
        *,
        filename: str = "",
        format: str | None = None,
        skills: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> StoredWorkflow:
        body = {"document": document, "filename": filename, "format": format, "skills": skills, "name": name}
        return StoredWorkflow.of(self._transport.post("/workflows", body))

    def workflows(self) -> Iterator[Workflow]:
        return (Workflow.of(item) for item in self._transport.items("/workflows"))

    def workflow(self, ref: str | int) -> Workflow:
        return Workflow.of(self._transport.get(f"/workflows/{ref}"))

    # --- Plans -------------------------------------------------------------------------------------------------------

    def compile(
        self, *, workflow: str | int | None = None, document: Document | None = None, **options: Any
    ) -> dict[str, Any]:
        """A bundle with the variants that are ready. Options: version, fleet, effort, weights, bundle, levels,
        limits. Raises InvalidRequest, with `conflicts` where no plan keeps the limits."""
        body = _source(workflow, document) | options
        found: dict[str, Any] = self._transport.post("/plans", body)
        return found

    def plan(self, plan_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._transport.get(f"/plans/{plan_id}")
        return found

    # Questions about one variant. Raise Conflict when fleet or profiles have changed, Unavailable when the server is
    # busy with other questions.

    def explanation(self, plan_id: str, *, variant: int = 0, most: int = 5) -> dict[str, Any]:
        """Why this plan; `most` alternatives per node."""
        return self._about(plan_id, "explanation", variant=variant, most=most)

    def sensitivity(self, plan_id: str, *, variant: int = 0) -> dict[str, Any]:
        """The values of each weight for which it stays the best plan."""
        return self._about(plan_id, "sensitivity", variant=variant)

    def front(self, plan_id: str, axis: str = "makespan_s", *, variant: int = 0, most: int = 100) -> dict[str, Any]:
        """All plans that no other one beats in estimated quality and `makespan_s` or `cost`."""
        return self._about(plan_id, "front", axis=axis, variant=variant, most=most)

    def stability(self, plan_id: str, *, variant: int = 0, draws: int = 200) -> dict[str, Any]:
        """What stays when the profiles are redrawn, and which cell to measure next."""
        return self._about(plan_id, "stability", variant=variant, draws=draws)

    def _about(self, plan_id: str, question: str, **params: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._transport.get(f"/plans/{plan_id}/{question}", params=params)
        return found

    # --- Runs --------------------------------------------------------------------------------------------------------

    def submit_run(
        self,
        *,
        workflow: str | int | None = None,
        document: Document | None = None,
        inputs: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **options: Any,
    ) -> RunSubmission:
        """Options: version, fleet, deadline_s, effort, weights, bundle, limits, controller, seed."""
        body = {**_source(workflow, document), "inputs": dict(inputs or {}), **options}
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        response = self._transport.request("POST", "/runs", json=body, headers=headers)
        return RunSubmission(run=Run.of(response.json()), created=response.status_code == 201)

    def run(self, run_id: str) -> Run:
        return Run.of(self._transport.get(f"/runs/{run_id}"))

    def runs(self, **filters: str) -> Iterator[Run]:
        """Newest first. Filters: state, workflow."""
        return (Run.of(item) for item in self._transport.items("/runs", filters))

    def cancel(self, run_id: str) -> Run:
        return Run.of(self._transport.post(f"/runs/{run_id}:cancel"))

    def nodes(self, run_id: str) -> list[dict[str, Any]]:
        return list(self._transport.items(f"/runs/{run_id}/nodes"))

    def node(self, run_id: str, node: str) -> dict[str, Any]:
        found: dict[str, Any] = self._transport.get(f"/runs/{run_id}/nodes/{node}")
        return found

    def switches(self, run_id: str) -> list[dict[str, Any]]:
        """The ledger: every switch and every refusal, newest first."""
        return list(self._transport.items(f"/runs/{run_id}/switches"))

    def events(self, run_id: str, after: int = 0) -> Iterator[Event]:
        """The run's events as they happen, until it has ended; a broken connection is resumed where it broke.

        Raises Unreachable after several reconnections in a row brought nothing new.
        """
        failures = 0
        while True:
            try:
                for name, data in self._transport.stream(f"/runs/{run_id}/events", last_id=after, silence_s=_SILENCE_S):
                    if name == "end":
                        return
                    after, failures = data["seq"], 0
                    yield Event.of(data)
            except Unreachable:
                if failures >= _MAX_RECONNECTS:
                    raise
            failures += 1
            self._sleep(min(2.0, 0.1 * 2**failures))

    def wait(self, run_id: str, *, timeout_s: float, interval_s: float = 0.5) -> Run:
        """The run once it has ended. Raises WaitTimedOut; the run goes on then."""
        until = self._clock() + timeout_s
        while True:
            run = self.run(run_id)
            if run.ended:
                return run
            if self._clock() >= until:
                raise WaitTimedOut(f"run {run_id} is still {run.state} after {timeout_s:g} s")
            self._sleep(interval_s)

    # --- Fleet -------------------------------------------------------------------------------------------------------

    def fleet(self) -> dict[str, Any]:
        found: dict[str, Any] = self._transport.get("/fleet")
        return found

    def pressure(self) -> dict[str, Any]:
        found: dict[str, Any] = self._transport.get("/fleet/pressure")
        return found

    def set_replica(self, name: str, action: str) -> dict[str, Any]:
        """`drain`, `enable` or `disable`."""
        found: dict[str, Any] = self._transport.post(f"/replicas/{name}:{action}")
        return found


def _source(workflow: str | int | None, document: Document | None) -> dict[str, Any]:
    given = {"workflow": None if workflow is None else str(workflow), "document": document}
    return {name: value for name, value in given.items() if value is not None}
