"""Policies run from their declarations: what is asked, in which order, and what comes out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from planner.compiler.policies import ALL_POLICIES, POLICIES, Policy, PolicyCall, PolicyStage
from planner.compiler.workflow import LlmNode, OutputSpec
from runtime.engine.calls import Caller, InvocationFailed, LlmTask
from runtime.engine.clock import VirtualClock, run_virtual
from runtime.engine.ports import CallFailed, CallRecord, CallRequest, CallResult
from runtime.engine.verification import execute_policy
from tests.runtime.engine.fakes import SimDispatcher, plain_answer, result
from tests.runtime.engine.samples import BIG, SMALL, START, impl, llm

Script = Callable[[CallRequest], "str | CallResult | BaseException"]


class Ran:
    """One invocation in virtual time: its output or error, its requests and its records."""

    def __init__(
        self,
        policy: str | Policy,
        answers: Script = plain_answer,
        node: LlmNode | None = None,
        seconds: Callable[[CallRequest], float] = lambda request: 1.0,
        verifier: str | None = BIG,
    ) -> None:
        policy = POLICIES[policy] if isinstance(policy, str) else policy
        self.dispatcher = SimDispatcher(seconds, answers)
        self.caller = Caller(self.dispatcher, VirtualClock(START))
        task = LlmTask(
            run_id="run_1",
            epoch=1,
            node=node or llm("n"),
            attempt=1,
            binding=impl(SMALL, policy.name, verifier if policy.uses_verifier else None),
            policy=policy,
            run_seed=3,
            system="Be exact.",
            prompt="What is 6 x 7?",
        )
        self.output: Any = None
        self.error: Exception | None = None
        self.seconds = run_virtual(self._run(task))

    async def _run(self, task: LlmTask) -> float:
        try:
            self.output = await execute_policy(task, self.caller)
        except (InvocationFailed, CallFailed) as error:
            self.error = error
        return asyncio.get_running_loop().time()

    @property
    def sent(self) -> list[CallRequest]:
        return self.dispatcher.sent

    @property
    def records(self) -> Sequence[CallRecord]:
        return self.caller.in_order()

    def roles(self) -> list[str]:
        return [request.role for request in self.sent]

    def content(self, index: int) -> str:
        return self.sent[index].messages[-1]["content"]


def json_node(schema: dict[str, Any] | None = None) -> LlmNode:
    return llm("n", output=OutputSpec(format="json", schema=MappingProxyType(schema) if schema else None))


def by_role(**texts: str | CallResult | BaseException) -> Script:
    return lambda request: texts.get(request.role) or plain_answer(request)


def verdicts(*words: str) -> Script:
    """Verdict calls answer these words in turn, the others as usual."""
    left = list(words)
    return lambda request: left.pop(0) if request.role == "verdict" else plain_answer(request)


# --- Every policy ---


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("verdict", ["accept", "reject"])
def test_measured_calls_equal_the_declaration(policy: Policy, verdict: str) -> None:
    ran = Ran(policy, by_role(verdict=verdict), json_node())
    stages = [stage for stage in policy.stages if stage.when == "always" or verdict == "reject"]
    declared = [
        (index, call.role, copy)
        for index, stage in enumerate(policy.stages)
        if stage in stages
        for call in stage.calls
        for copy in range(call.count)
    ]
    assert [(one.stage, one.role, one.copy) for one in ran.records] == declared
    assert ran.seconds == len(stages), "a stage's calls run in parallel, stages in series"
    assert ran.output == {"answer": 42}


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=lambda policy: policy.name)
def test_requests_are_told_apart_and_seeds_are_distinct_in_a_stage(policy: Policy) -> None:
    ran = Ran(policy, by_role(verdict="reject"), json_node())
    assert len({request.request_id for request in ran.sent}) == len(ran.sent)
    assert len({(request.stage, request.seed) for request in ran.sent}) == len(ran.sent)
    again = Ran(policy, by_role(verdict="reject"), json_node())
    assert [request.seed for request in again.sent] == [request.seed for request in ran.sent]
    assert max(len(request.request_id) for request in ran.sent) <= 120


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=lambda policy: policy.name)
def test_sampled_calls_are_warm_and_structured_answers_are_greedy_without_thinking(policy: Policy) -> None:
    ran = Ran(policy, by_role(verdict="reject"), replace(json_node(), thinking=True, temperature=0.2))
    sampled = {call.role for call in policy.calls if call.sampled}
    for request in ran.sent:
        if request.role in sampled:
            assert request.temperature == 0.7
        if request.response.kind == "choice":
            assert (request.temperature, request.thinking) == (0.0, False)
        else:
            assert request.thinking


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=lambda policy: policy.name)
def test_every_call_goes_to_its_own_backend(policy: Policy) -> None:
    ran = Ran(policy, by_role(verdict="reject"), json_node())
    model = {call.role: BIG if call.model == "verifier" else SMALL for call in policy.calls}
    assert all(request.model == model[request.role] for request in ran.sent)
    assert all(request.backend == f"{request.model}@h200" for request in ran.sent)


def test_a_missing_verifier_is_an_error_of_the_binding() -> None:
    ran = Ran("cross_check", verifier=None)
    assert isinstance(ran.error, InvocationFailed)
    assert ran.error.code == "invalid_binding"


def test_the_default_temperature_is_greedy_unless_the_model_thinks() -> None:
    assert Ran("none").sent[0].temperature == 0.0
    assert Ran("none", node=llm("n", thinking=True)).sent[0].temperature == 0.6
    assert Ran("none", node=llm("n", temperature=1.1)).sent[0].temperature == 1.1


# --- Texts ---


def test_later_calls_repeat_the_prompt_then_what_they_read_then_the_instruction() -> None:
    ran = Ran("self_refine", by_role(generate="It is 41.", feedback="Off by one.", revise="42"))
    assert ran.sent[0].messages == (
        {"role": "system", "content": "Be exact."},
        {"role": "user", "content": "What is 6 x 7?"},
    )
    instruction = POLICIES["self_refine"].stages[2].calls[0].instruction
    assert ran.content(2) == (
        "What is 6 x 7?\n\n## Candidate answer\n\nIt is 41.\n\n## Feedback\n\nOff by one.\n\n" + instruction
    )
    assert ran.output == "42"


def test_a_cross_critique_reads_the_other_solution_only() -> None:
    def answers(request: CallRequest) -> str:
        return f"{request.role} number {request.copy}"

    ran = Ran("debate", answers)
    first, second = ran.content(2), ran.content(3)
    assert "## Candidate answer 2\n\nsolution number 1" in first
    assert "solution number 0" not in first
    assert "## Candidate answer 1\n\nsolution number 0" in second
    synthesis = ran.content(4)
    assert all(f"solution number {copy}" in synthesis for copy in (0, 1))
    assert all(f"## Cross critique {copy + 1}\n\ncross_critique number {copy}" in synthesis for copy in (0, 1))


def test_reasoning_is_recorded_but_never_passed_on() -> None:
    thought = replace(result("41"), reasoning="secret thoughts")
    ran = Ran("self_refine", by_role(generate=thought, feedback="hm", revise="42"))
    assert ran.records[0].reasoning == "secret thoughts"
    assert not any("secret" in request.messages[-1]["content"] for request in ran.sent)


# --- Verdicts ---


@pytest.mark.parametrize(
    ("words", "calls", "recorded"),
    [
        (["accept"], 2, ["accept"]),
        (["Accept."], 2, ["accept"]),
        (["reject"], 3, ["reject"]),
        (["hm", "accept"], 3, ["malformed", "accept"]),
        (["hm", "reject"], 4, ["malformed", "reject"]),
        (["hm", "well"], 4, ["malformed", "malformed"]),
    ],
)
def test_a_malformed_verdict_is_asked_once_more_and_then_rejects(
    words: list[str], calls: int, recorded: list[str]
) -> None:
    ran = Ran("self_check", verdicts(*words))
    assert len(ran.sent) == calls
    assert [one.verdict for one in ran.records if one.role == "verdict"] == recorded
    assert [request.role for request in ran.sent].count("revise") == (1 if calls - len(words) == 2 else 0)
    assert ran.sent[1].response.choices == ("accept", "reject")


# --- Votes and selections ---


def samples(*values: object) -> Script:
    return lambda request: json.dumps(values[request.copy]) if request.role == "sample" else plain_answer(request)


@pytest.mark.parametrize(
    ("values", "wins"),
    [
        ((1, 2, 2, 3, 2), 2),
        ((1, 2, 3, 4, 5), 1),
        ((3, 2, 2, 3, 1), 3),
        (({"a": 1, "b": 2.0}, {"b": 2, "a": 1}, 7, 7, {"a": 1, "b": 2}), {"a": 1, "b": 2}),
    ],
)
def test_the_majority_of_canonical_values_wins(values: tuple[object, ...], wins: object) -> None:
    assert Ran("self_consistency", samples(*values), json_node()).output == wins


def test_a_vote_that_is_locked_cancels_the_losers() -> None:
    ran = Ran("self_consistency", samples(1, 1, 1, 2, 2), json_node(), lambda request: 1.0 + request.copy)
    assert (ran.output, ran.seconds, ran.dispatcher.cancelled) == (1, 3.0, 2)
    assert [one.error for one in ran.records] == ["", "", "", "cancelled", "cancelled"]
    assert ran.dispatcher.in_flight == 0


def test_a_sample_without_a_valid_output_has_no_vote() -> None:
    def answers(request: CallRequest) -> str:
        return "not json" if request.copy < 2 else json.dumps(request.copy % 2)

    ran = Ran("self_consistency", answers, json_node())
    assert ran.output == 0
    assert len(ran.sent) == 5 + 2 * 2, "each invalid sample is asked for twice more"


def test_no_valid_sample_at_all_fails() -> None:
    ran = Ran("self_consistency", lambda request: "nothing", json_node())
    assert isinstance(ran.error, InvocationFailed)
    assert ran.error.code == "invalid_output"


def test_the_selected_candidate_is_the_output() -> None:
    def answers(request: CallRequest) -> str:
        return "3" if request.role == "select" else f"answer {request.copy}"

    ran = Ran("best_of_n", answers)
    assert ran.output == "answer 2"
    assert ran.sent[-1].response.choices == ("1", "2", "3", "4")
    assert "## Candidate answer 3\n\nanswer 2" in ran.content(-1)


def test_a_malformed_selection_is_asked_once_more_and_then_takes_the_first() -> None:
    ran = Ran("best_of_n", by_role(select="the third one"))
    assert ran.roles().count("select") == 2
    assert ran.output == f"n/sample0 by {SMALL}"


def test_an_invalid_candidate_cannot_be_selected() -> None:
    def answers(request: CallRequest) -> str:
        if request.role == "select":
            return request.response.choices[0]
        return "broken" if request.copy == 0 else json.dumps(request.copy)

    ran = Ran("best_of_n", answers, json_node())
    assert ran.sent[-1].response.choices == ("2", "3", "4")
    assert ran.output == 1


# --- Invalid and cut-off outputs ---

SCHEMA = {"type": "object", "required": ["answer"]}


def in_turn(*texts: str | CallResult) -> Script:
    left = list(texts)
    return lambda request: left.pop(0)


def test_invalid_json_is_asked_for_again_with_what_was_wrong() -> None:
    ran = Ran("none", in_turn("oops", '{"other": 1}', '{"answer": 42}'), json_node(SCHEMA))
    assert ran.output == {"answer": 42}
    assert "not valid JSON" in ran.content(1)
    assert "'answer' is a required property" in ran.content(2)
    assert [one.error[:14] for one in ran.records] == ["invalid_output", "invalid_output", ""]
    assert json.dumps(SCHEMA) in ran.content(0)
    assert ran.sent[0].response.kind == "json"


def test_the_re_asks_are_bounded() -> None:
    ran = Ran("none", lambda request: "never JSON", json_node())
    assert len(ran.sent) == 3
    assert isinstance(ran.error, InvocationFailed)
    assert ran.error.details == {"head": "never JSON"}


def test_a_later_stage_can_repair_an_invalid_output() -> None:
    ran = Ran("self_refine", by_role(generate="never JSON", revise="[1]"), json_node())
    assert ran.output == [1]


def test_a_text_at_its_token_limit_is_an_answer() -> None:
    ran = Ran("none", in_turn(result("half a sen", "length")))
    assert (ran.output, len(ran.sent), ran.records[0].finish_reason) == ("half a sen", 1, "length")


def test_cut_off_json_is_asked_for_again_more_briefly() -> None:
    ran = Ran("none", in_turn(result('{"answer": [1, 2', "length"), "[1]"), json_node())
    assert ran.output == [1]
    assert "be much briefer" in ran.content(1)


def test_tokens_spent_on_reasoning_alone_turn_thinking_off() -> None:
    ran = Ran("none", in_turn(replace(result("", "length"), reasoning="hm " * 50), "42"), llm("n", thinking=True))
    assert ran.output == "42"
    assert [request.thinking for request in ran.sent] == [True, False]


def test_what_cannot_be_stored_is_replaced() -> None:
    ran = Ran("none", in_turn("a\0b"))
    assert (ran.output, ran.records[0].text) == ("a\ufffdb", "a\ufffdb")


# --- Failures ---


def test_a_failing_call_stops_its_stage_and_is_raised_as_it_is() -> None:
    def answers(request: CallRequest) -> str | BaseException:
        return CallFailed("timeout", "no answer", retryable=True, replica="r2", tries=2) if request.copy == 1 else "x"

    ran = Ran("multi_critique", by_role(generate="g"), seconds=lambda request: 1.0)
    assert ran.error is None
    ran = Ran("best_of_n", answers, seconds=lambda request: 1.0 if request.copy < 2 else 9.0)
    assert isinstance(ran.error, CallFailed)
    assert (ran.error.code, ran.seconds, ran.dispatcher.in_flight) == ("timeout", 1.0, 0)
    assert [one.error for one in ran.records] == ["", "timeout: no answer", "cancelled", "cancelled"]
    assert (ran.records[1].replica, ran.records[1].tries) == ("r2", 2)


# --- Any declaration ---


def test_a_policy_that_nobody_declared_yet_runs_from_its_declaration() -> None:
    policy = Policy(
        name="two_judges",
        title="Two judges, then a vote",
        stages=(
            PolicyStage(calls=(PolicyCall(role="draft", answers="output"),)),
            PolicyStage(
                calls=(
                    PolicyCall(role="strict", answers="verdict", reads=("draft",), instruction="Be strict."),
                    PolicyCall(
                        role="kind", answers="verdict", reads=("draft",), instruction="Be kind.", model="verifier"
                    ),
                )
            ),
            PolicyStage(
                calls=(PolicyCall(role="vote", answers="output", reads=("draft",), count=3, sampled=True),),
                when="rejected",
            ),
        ),
        result="majority",
    )

    def answers(request: CallRequest) -> str:
        return {"draft": "0", "strict": "reject", "kind": "accept"}.get(request.role) or json.dumps(request.copy // 2)

    ran = Ran(policy, answers, json_node())
    assert ran.roles() == ["draft", "strict", "kind", "vote", "vote", "vote"]
    assert [request.model for request in ran.sent[1:3]] == [SMALL, BIG]
    assert ran.output == 0
