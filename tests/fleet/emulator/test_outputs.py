"""Emulated answers: the same for the same request, valid in form, visibly emulated, of the stated length."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.emulator.config import EmulatorConfig, ReplicaConfig
from fleet.emulator.outputs import Output, Prompt, answer, choose, draw_length, keywords
from fleet.serving.chat import AnswerFormat
from tests.sampling import sampled

CONFIG = EmulatorConfig(replicas=(ReplicaConfig(name="a", model="qwen3.5-9b"),), reject_probability={"qwen3.5-9b": 0.3})
VERDICT = AnswerFormat(kind="choice", choices=("accept", "reject"))


def _prompt(**changes: Any) -> Prompt:
    values: dict[str, Any] = {
        "model": "qwen3.5-9b",
        "text": "user: Compare photosynthesis with respiration in plants",
        "max_tokens": 4000,
        "seed": 1,
        "thinking": False,
        "answer": AnswerFormat(),
    }
    return Prompt(**{**values, **changes})


def _text(output: Output) -> str:
    return output.between(0, output.tokens)[1]


def test_an_answer_depends_on_seed_prompt_and_configuration_alone() -> None:
    first = answer(CONFIG, _prompt())
    assert answer(CONFIG, _prompt()) == first
    for other in (_prompt(seed=2), _prompt(text="user: Something else entirely"), _prompt(model="qwen3.5-27b")):
        assert answer(CONFIG, other) != first
    assert answer(replace(CONFIG, seed=5), _prompt()) != first


def test_text_is_marked_and_echoes_the_prompt() -> None:
    text = _text(answer(CONFIG, _prompt()))
    assert text.startswith("[emulated qwen3.5-9b] ")
    assert "photosynthesis" in text


def test_lengths_follow_the_kind_s_mean() -> None:
    lengths = [answer(CONFIG, _prompt(seed=seed)).tokens for seed in range(400)]
    assert mean(lengths) == pytest.approx(CONFIG.mean_of("text"), rel=0.06)
    assert len(set(lengths)) > 100


@given(mean_=st.floats(1, 500), most=st.integers(1, 400), seed=st.integers(0, 999))
def test_a_length_stays_within_its_bounds_and_says_when_it_was_cut(mean_: float, most: int, seed: int) -> None:
    length, finish = draw_length(Random(seed), mean_, 0.35, most)
    assert 1 <= length <= most
    assert finish == "stop" or length == most


def test_thinking_is_kept_apart_and_leaves_room_for_the_answer() -> None:
    output = answer(CONFIG, _prompt(thinking=True, max_tokens=40))
    reasoning, content = output.between(0, output.tokens)
    assert reasoning
    assert content.startswith("[emulated")
    assert len(output.reasoning) <= 20
    assert output.tokens <= 40


def test_pieces_put_together_are_the_whole() -> None:
    output = answer(CONFIG, _prompt(thinking=True))
    pieces = [output.between(start, start + 7) for start in range(0, output.tokens, 7)]
    assert ("".join(r for r, _ in pieces), "".join(c for _, c in pieces)) == output.between(0, output.tokens)


def test_verdicts_reject_with_the_model_s_probability() -> None:
    verdicts = [_text(answer(CONFIG, _prompt(seed=seed, answer=VERDICT))) for seed in range(600)]
    assert set(verdicts) == {"accept", "reject"}
    assert verdicts.count("reject") / 600 == pytest.approx(0.3, abs=0.06)


def test_the_order_of_a_verdict_s_choices_does_not_matter_and_other_choices_are_even() -> None:
    assert {choose(Random(seed), ("reject", "accept"), 0.0) for seed in range(50)} == {"accept"}
    picks = [choose(Random(seed), ("1", "2", "3"), 1.0) for seed in range(300)]
    assert all(picks.count(item) > 60 for item in "123")


def test_json_is_valid_and_of_about_the_drawn_length() -> None:
    schema = {
        "type": "object",
        "properties": {"claim": {"type": "string"}, "score": {"type": "integer", "minimum": 1, "maximum": 5}},
        "required": ["claim", "score"],
    }
    outputs = [
        answer(CONFIG, _prompt(seed=seed, answer=AnswerFormat(kind="json", schema=schema))) for seed in range(60)
    ]
    assert all(1 <= json.loads(_text(output))["score"] <= 5 for output in outputs)
    assert mean(output.tokens for output in outputs) == pytest.approx(CONFIG.mean_of("json"), rel=0.25)
    assert "answer" in json.loads(_text(answer(CONFIG, _prompt(answer=AnswerFormat(kind="json")))))


def test_json_that_does_not_fit_is_cut_as_a_real_server_does() -> None:
    output = answer(CONFIG, _prompt(max_tokens=3, answer=AnswerFormat(kind="json")))
    assert (output.finish_reason, output.tokens) == ("length", 3)


@given(text=st.text(max_size=80), max_tokens=st.integers(1, 60), thinking=st.booleans())
@sampled(60)
def test_any_prompt_gets_an_answer_within_its_limit(text: str, max_tokens: int, thinking: bool) -> None:
    output = answer(CONFIG, _prompt(text=text, max_tokens=max_tokens, thinking=thinking))
    assert 1 <= output.tokens <= max_tokens


def test_keywords_are_distinct_and_never_too_few() -> None:
    assert keywords("Alpha alpha bravo, charlie delta 12345 six") == ("alpha", "bravo", "charlie", "delta")
    assert len(keywords("no")) >= 3


def test_a_text_that_ignores_its_end_is_as_long_as_asked() -> None:
    for most in (1, 7, 900):
        output = answer(CONFIG, _prompt(max_tokens=most, ignore_eos=True))
        assert (output.tokens, output.finish_reason) == (most, "length")
    assert answer(CONFIG, _prompt(answer=VERDICT, ignore_eos=True)).finish_reason == "stop"
