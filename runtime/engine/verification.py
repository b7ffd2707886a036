"""Executes a verification policy from its declaration (paper 4.2, 5.1): stages in series, a stage's calls in parallel.

Nothing here knows a policy by name. A malformed verdict is asked for once more and then counts as a rejection; an
output that is not valid is asked for again, with what was wrong, at most `OUTPUT_REASKS` times (all ours).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.compiler.policies import PolicyCall, PolicyStage
from runtime.engine.calls import Caller, InvocationFailed, LlmTask, Place, request_of
from runtime.engine.outputs import canonical, parse_output
from runtime.engine.ports import CallResult
from runtime.engine.prompts import VERDICTS, Section, complaint_about, compose, heading, instruction_of, read_choice
from runtime.engine.voting import locked, winner

OUTPUT_REASKS = 2
STRUCTURED_REASKS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A call's answer as the policy uses it: an output's value, a verdict, or the position of the chosen candidate.

    `problem` says why an output is not valid; such a candidate is read by later calls but can never be the result.
    """

    call: PolicyCall
    copy: int
    text: str
    value: Any = None
    problem: str | None = None


async def execute_policy(task: LlmTask, caller: Caller) -> Any:
    """Run one invocation's policy to its output. Raises InvocationFailed, and CallFailed from the dispatcher."""
    run = _PolicyRun(task=task, caller=caller)
    rejected = False
    for index, stage in enumerate(task.policy.stages):
        if stage.when == "rejected" and not rejected:
            continue
        answers = await run.stage(index, stage)
        rejected = any(answer.call.answers == "verdict" and answer.value == "reject" for answer in answers)
        run.add(answers)
    return run.result()


@dataclass(slots=True, kw_only=True)
class _PolicyRun:
    task: LlmTask
    caller: Caller
    answers: list[Answer] = field(default_factory=list)
    outputs: list[Answer] = field(default_factory=list)
    """The candidates of the last stage that gave any."""

    def add(self, answers: list[Answer]) -> None:
        self.answers += answers
        self.outputs = _outputs(answers) or self.outputs

    async def stage(self, index: int, stage: PolicyStage) -> list[Answer]:
        """All calls of a stage, in parallel; a majority stage ends as soon as its vote is locked."""
        seats = [
            (call, Place(stage=index, position=position, copy=copy))
            for position, (call, copy) in enumerate((call, copy) for call in stage.calls for copy in range(call.count))
        ]
        if len(seats) == 1:
            return [await self.ask(*seats[0])]
        asks = [lambda seat=seat: self.ask(*seat) for seat in seats]
        is_vote = self.task.policy.result == "majority" and all(call.answers == "output" for call in stage.calls)
        return await _in_parallel(asks, _vote_is_locked if is_vote else _never)

    async def ask(self, call: PolicyCall, place: Place) -> Answer:
        """One call with its bounded re-asks."""
        thinking = call.thinking == "node" and self.task.node.thinking
        candidates = self._candidates(call) if call.answers == "choice" else {}
        complaint = ""
        while True:
            request = request_of(
                self.task,
                call,
                place,
                compose(
                    self.task.system,
                    self.task.prompt,
                    self._sections(call, place.copy),
                    instruction_of(call, self.task.node),
                    complaint,
                ),
                thinking=thinking,
                choices=tuple(candidates),
            )
            result, record = await self.caller.send(request)
            answer = self._read(call, place.copy, result, candidates, record)
            if answer.problem is None or place.ask >= _reasks(call):
                return _settled(answer, candidates)
            complaint = complaint_about(answer.problem)
            # An answer that spent all its tokens on reasoning would do so again.
            thinking = thinking and not (result.finish_reason == "length" and not result.text.strip())
            place = replace(place, ask=place.ask + 1)

    def result(self) -> Any:
        """The policy's output. Raises InvocationFailed (`invalid_output`) when what decides gave no valid one."""
        if self.task.policy.result == "majority":
            chosen = winner(dict(enumerate(_ballot(answer) for answer in self.outputs)))
            if chosen is not None:
                return self.outputs[chosen].value
        elif self.task.policy.result == "selected":
            return next(answer.value for answer in reversed(self.answers) if answer.call.answers == "choice")
        elif self.outputs[-1].problem is None:
            return self.outputs[-1].value
        raise self._invalid(self.outputs[-1])

    def _read(
        self, call: PolicyCall, copy: int, result: CallResult, candidates: Mapping[str, Answer], record: int
    ) -> Answer:
        answer = Answer(call=call, copy=copy, text=result.text)
        if call.answers == "output":
            parsed = parse_output(result.text, self.task.node.output)
            problem = _cut_off(result, parsed.problem) if result.finish_reason == "length" else parsed.problem
            if problem is not None:
                self.caller.annotate(record, error=f"invalid_output: {problem}")
            return replace(answer, value=parsed.value, problem=problem)
        if call.answers == "text":
            return answer
        choices = VERDICTS if call.answers == "verdict" else tuple(candidates)
        choice = read_choice(result.text, choices)
        self.caller.annotate(record, verdict=choice or "malformed")
        if choice is None:
            return replace(answer, problem=f"it must be one of: {', '.join(choices)}")
        return replace(answer, value=choice)

    def _sections(self, call: PolicyCall, copy: int) -> list[Section]:
        """The earlier texts that a copy reads: outputs numbered through, other texts by their own copy."""
        read = self._read_by(call)
        candidates = _outputs(read)
        numbers = {id(answer): number for number, answer in enumerate(candidates, start=1)}
        sections = []
        for answer in read:
            if call.pairing == "other" and answer.copy == copy:
                continue
            is_candidate = id(answer) in numbers
            number = numbers[id(answer)] if is_candidate else answer.copy + 1
            of = len(candidates) if is_candidate else answer.call.count
            sections.append(Section(heading=heading(answer.call, number, of), text=answer.text))
        return sections

    def _candidates(self, call: PolicyCall) -> dict[str, Answer]:
        """The valid outputs that a selection may choose from, by number. Raises InvocationFailed without any."""
        outputs = _outputs(self._read_by(call))
        valid = {str(number): answer for number, answer in enumerate(outputs, start=1) if answer.problem is None}
        if not valid:
            raise self._invalid(outputs[-1])
        return valid

    def _read_by(self, call: PolicyCall) -> list[Answer]:
        return [answer for role in call.reads for answer in self.answers if answer.call.role == role]

    def _invalid(self, answer: Answer) -> InvocationFailed:
        return InvocationFailed(
            "invalid_output",
            f"node {self.task.node.id} gave no valid output: {answer.problem}",
            head=answer.text[:200],
        )


async def _in_parallel(
    asks: Sequence[Callable[[], Awaitable[Answer]]], enough: Callable[[dict[int, Answer], int], bool]
) -> list[Answer]:
    """Run all asks at once. The first failure cancels the others and is raised as it is; `enough` ends them early."""
    answers: dict[int, Answer] = {}
    tasks: list[asyncio.Task[None]] = []

    async def run(position: int) -> None:
        answers[position] = await asks[position]()
        if enough(answers, len(asks)):
            for other, task in enumerate(tasks):
                if other not in answers:
                    task.cancel()

    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(run(position)) for position in range(len(asks))]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [answers[position] for position in sorted(answers)]


def _vote_is_locked(answers: dict[int, Answer], samples: int) -> bool:
    return locked({position: _ballot(answer) for position, answer in answers.items()}, samples)


def _never(answers: dict[int, Answer], samples: int) -> bool:
    return False


def _ballot(answer: Answer) -> str | None:
    return canonical(answer.value) if answer.problem is None else None


def _outputs(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.call.answers == "output"]


def _settled(answer: Answer, candidates: Mapping[str, Answer]) -> Answer:
    """The answer that counts once no re-ask is left: no verdict is a rejection, no choice is the first candidate."""
    if answer.call.answers == "verdict":
        return replace(answer, value=answer.value or "reject", problem=None)
    if answer.call.answers == "choice":
        chosen = candidates.get(answer.value) or next(iter(candidates.values()))
        return replace(answer, value=chosen.value, problem=None)
    return answer


def _reasks(call: PolicyCall) -> int:
    return OUTPUT_REASKS if call.answers == "output" else STRUCTURED_REASKS


def _cut_off(result: CallResult, problem: str | None) -> str | None:
    """A text that reached its token limit is an answer all the same; an empty one or broken JSON is not."""
    if problem is None and result.text.strip():
        return None
    return f"it was cut off at the limit of {result.output_tokens} tokens; be much briefer"
