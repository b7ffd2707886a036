"""What an emulated model answers (ours): deterministic from the seed and the prompt, plausible, visibly emulated.

Lengths are lognormal around the mean of the answer's kind (or max_tokens, if that is less). Text echoes keywords of the
prompt and begins with `[emulated MODEL]`; choices and JSON are always valid; a verdict (the choices are exactly accept
and reject) rejects with the model's configured probability. A token is a word of text, or four characters of a
choice or of JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from random import Random
from typing import Literal

from fleet.emulator.config import EmulatorConfig
from fleet.emulator.schema import Draw, instance, string_leaves
from fleet.serving.chat import AnswerFormat

FinishReason = Literal["stop", "length"]
VERDICT = frozenset({"accept", "reject"})
_WORD = re.compile(r"[^\W\d_]{5,24}")
_FALLBACK = ("request", "evidence", "result", "context", "answer")
_SENTENCES = (
    "The {0} follows from the {1} and the {2}.",
    "First, {0} is checked against {1}.",
    "Given {0}, the {1} holds unless {2} changes.",
    "In short: {0} supports {1}.",
    "A second look at {0} and {1} confirms the {2}.",
    "What remains open is how {0} relates to {1}.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What decides an answer, apart from the emulator's configuration. `max_tokens` bounds reasoning and answer.

    `ignore_eos`: a text goes on up to `max_tokens`.
    """

    model: str
    text: str
    max_tokens: int
    seed: int | None
    thinking: bool
    answer: AnswerFormat
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The answer as tokens, reasoning first: `upto(n)` is what a reader has seen after n tokens."""

    reasoning: tuple[str, ...]
    content: tuple[str, ...]
    finish_reason: FinishReason

    @property
    def tokens(self) -> int:
        return max(1, len(self.reasoning) + len(self.content))

    def between(self, start: int, end: int) -> tuple[str, str]:
        """(reasoning, content) of tokens start..end-1."""
        cut = len(self.reasoning)
        return "".join(self.reasoning[start:end]), "".join(self.content[max(0, start - cut) : max(0, end - cut)])


def seeded(config: EmulatorConfig, prompt: Prompt) -> Random:
    """A generator that depends on the configuration's seed, the request's seed, the model and the prompt alone."""
    key = [config.seed, prompt.model, prompt.seed, prompt.text, prompt.max_tokens, prompt.thinking]
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return Random(int.from_bytes(digest[:8], "big"))  # noqa: S311  reproducible filler, nothing secret


def answer(config: EmulatorConfig, prompt: Prompt) -> Output:
    """The output for a prompt. Raises SchemaUnsupported for a JSON Schema without a known instance."""
    random = seeded(config, prompt)
    words = _Words(random, keywords(prompt.text))
    reasoning: tuple[str, ...] = ()
    if prompt.thinking:
        most = max(1, prompt.max_tokens // 2)  # a real model may spend all on reasoning; here half stays for the answer
        reasoning = words.tokens(draw_length(random, config.mean_of("reasoning"), config.sigma, most)[0])
    room = prompt.max_tokens - len(reasoning)
    if room < 1:
        return Output(reasoning=reasoning, content=(), finish_reason="length")
    content, finish = _content(config, prompt, random, words, room)
    return Output(reasoning=reasoning, content=content, finish_reason=finish)


def _content(
    config: EmulatorConfig, prompt: Prompt, random: Random, words: _Words, room: int
) -> tuple[tuple[str, ...], FinishReason]:
    if prompt.answer.kind == "choice":
        return _cut(choose(random, prompt.answer.choices, config.reject_of(prompt.model)), room)
    length, finish = draw_length(random, config.mean_of(prompt.answer.kind), config.sigma, room)
    if prompt.ignore_eos and prompt.answer.kind == "text":
        length, finish = room, "length"
    if prompt.answer.kind == "json":
        return _cut(_json(prompt.answer, random, words, length), room)
    return (f"[emulated {prompt.model}]", *words.tokens(length - 1, lead=" ")), finish


def _cut(text: str, room: int) -> tuple[tuple[str, ...], FinishReason]:
    """Pieces of four characters; a structured answer that does not fit is cut, as a real server does."""
    pieces = tuple(text[start : start + 4] for start in range(0, len(text), 4))
    return pieces[:room], "stop" if len(pieces) <= room else "length"


def draw_length(random: Random, mean: float, sigma: float, most: int) -> tuple[int, FinishReason]:
    """Tokens, lognormal with this mean (at most `most`) and shape `sigma`; beyond `most` the answer is cut."""
    centre = min(mean, float(most))
    drawn = round(random.lognormvariate(math.log(centre) - sigma * sigma / 2, sigma))
    return max(1, min(drawn, most)), "stop" if drawn <= most else "length"


def choose(random: Random, choices: tuple[str, ...], reject_probability: float) -> str:
    """One of the choices; a verdict rejects with the given probability, other choices are equally likely."""
    if frozenset(choices) == VERDICT:
        return "reject" if random.random() < reject_probability else "accept"
    return random.choice(choices)


def _json(answer_format: AnswerFormat, random: Random, words: _Words, length: int) -> str:
    """A JSON text of about `length` tokens: what is left after the structure is shared among the free strings."""
    schema = answer_format.schema
    if schema is None:
        return json.dumps({"answer": words.text(max(1, length - 4))})
    state = random.getstate()
    strings = string_leaves(schema, Draw(random=random, text=words.text, words=1))
    random.setstate(state)
    share = max(1, round(0.6 * length / strings)) if strings else 1  # a word is about 1.7 tokens of four characters
    return json.dumps(instance(schema, Draw(random=random, text=words.text, words=share)), ensure_ascii=False)


def keywords(text: str, most: int = 24) -> tuple[str, ...]:
    """Distinct longer words of the prompt's end, in order: the end of a prompt is nearest to its task."""
    found = dict.fromkeys(word.lower() for word in _WORD.findall(text[-4000:]))
    return tuple(dict.fromkeys((*tuple(found)[:most], *(_FALLBACK if len(found) < 3 else ()))))


class _Words:
    """Filler sentences about the prompt's keywords."""

    def __init__(self, random: Random, subjects: tuple[str, ...]) -> None:
        self._random = random
        self._subjects = subjects

    def tokens(self, count: int, lead: str = "") -> tuple[str, ...]:
        """`count` words, each with the blank that separates it from the one before; `lead` precedes the first."""
        words: list[str] = []
        while len(words) < count:
            words += self._sentence().split(" ")
        return tuple(f"{' ' if index else lead}{word}" for index, word in enumerate(words[:count]))

    def text(self, count: int) -> str:
        return "".join(self.tokens(count))

    def _sentence(self) -> str:
        chosen = self._random.sample(self._subjects, 3)
        return self._random.choice(_SENTENCES).format(*chosen)
