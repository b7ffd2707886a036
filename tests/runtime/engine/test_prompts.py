from __future__ import annotations

import pytest

from planner.compiler.policies import PolicyCall
from planner.compiler.workflow import OutputSpec
from runtime.engine.prompts import (
    VERDICTS,
    Section,
    compose,
    heading,
    instruction_of,
    read_choice,
    response_format,
    token_limit,
)
from tests.runtime.engine.samples import json_llm, llm

OUTPUT = PolicyCall(role="generate", answers="output")
VERDICT = PolicyCall(role="verdict", answers="verdict", instruction="Judge it.")


def test_empty_parts_leave_no_gap() -> None:
    assert compose("", "Do it.") == ({"role": "user", "content": "Do it."},)
    messages = compose("Be kind.", "Do it.", [Section(heading="Feedback", text="Good.")], "", "Again.")
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[1]["content"] == "Do it.\n\n## Feedback\n\nGood.\n\nAgain."


def test_json_is_asked_for_in_words_too() -> None:
    assert instruction_of(OUTPUT, llm("a")) == ""
    assert instruction_of(OUTPUT, json_llm("a")) == "Answer with one JSON value and nothing else."
    node = llm("a", output=OutputSpec(format="json", schema={"type": "array"}))
    assert instruction_of(OUTPUT, node).endswith('this JSON Schema:\n{"type": "array"}')
    assert instruction_of(VERDICT, node) == "Judge it."


def test_what_the_server_is_to_enforce() -> None:
    assert response_format(VERDICT, llm("a"), ()).choices == VERDICTS
    assert response_format(OUTPUT, llm("a"), ()).kind == "text"
    assert response_format(OUTPUT, json_llm("a"), ()).kind == "json"
    select = PolicyCall(role="select", answers="choice")
    assert response_format(select, llm("a"), ("1", "3")).choices == ("1", "3")


def test_structured_answers_need_few_tokens() -> None:
    assert token_limit(OUTPUT, llm("a", max_tokens=900)) == 900
    assert token_limit(VERDICT, llm("a", max_tokens=900)) == 16


@pytest.mark.parametrize(
    ("text", "choice"),
    [("accept", "accept"), (' "Reject".\n', "reject"), ("**accept**", "accept"), ("I accept", None), ("", None)],
)
def test_choices_are_read_strictly_but_for_their_dress(text: str, choice: str | None) -> None:
    assert read_choice(text, VERDICTS) == choice


def test_headings() -> None:
    critique = PolicyCall(role="cross_critique", answers="text")
    assert [heading(OUTPUT, 1, 1), heading(OUTPUT, 2, 2)] == ["Candidate answer", "Candidate answer 2"]
    assert heading(critique, 1, 2) == "Cross critique 1"
