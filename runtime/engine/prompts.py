"""The texts of a policy's calls, and how their structured answers are read (ours; paper 4.2 names the calls only).

A later call repeats the node's own prompt, so that the server's prefix cache serves it again; the earlier texts that it
reads follow, then its instruction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.compiler.policies import PolicyCall
from planner.compiler.workflow import LlmNode
from runtime.engine.ports import ResponseFormat

VERDICTS = ("accept", "reject")
STRUCTURED_ANSWER_TOKENS = 16
"""Enough for a verdict or a number, thinking being off for both."""
SAMPLING_TEMPERATURE = 0.7
THINKING_TEMPERATURE = 0.6
"""Reasoning models loop under greedy decoding, so a thinking call never gets temperature 0 by default."""

_PADDING = " \t\r\n.\"'`*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """An earlier text that a call reads, under a heading."""

    heading: str
    text: str


def compose(
    system: str, prompt: str, sections: Sequence[Section] = (), instruction: str = "", complaint: str = ""
) -> tuple[Mapping[str, str], ...]:
    """The chat messages of one call. `complaint` says what was wrong with the answer before (a re-ask)."""
    parts = [prompt, *(f"## {section.heading}\n\n{section.text}" for section in sections), instruction, complaint]
    user = {"role": "user", "content": "\n\n".join(part for part in parts if part)}
    return ({"role": "system", "content": system}, user) if system else (user,)


def instruction_of(call: PolicyCall, node: LlmNode) -> str:
    """The call's instruction; a call for a JSON output also says that it wants JSON, and which."""
    if call.answers != "output" or node.output.format != "json":
        return call.instruction
    wanted = "Answer with one JSON value and nothing else."
    if node.output.schema is not None:
        schema = json.dumps(node.output.schema, ensure_ascii=False, default=dict)
        wanted = f"{wanted} It must be valid against this JSON Schema:\n{schema}"
    return f"{call.instruction}\n\n{wanted}" if call.instruction else wanted


def response_format(call: PolicyCall, node: LlmNode, choices: Sequence[str]) -> ResponseFormat:
    """What the server is to enforce: accept or reject, one of the candidates' numbers, JSON, or nothing."""
    if call.answers == "verdict":
        return ResponseFormat(kind="choice", choices=VERDICTS)
    if call.answers == "choice":
        return ResponseFormat(kind="choice", choices=tuple(choices))
    if call.answers == "output" and node.output.format == "json":
        return ResponseFormat(kind="json", schema=node.output.schema)
    return ResponseFormat()


def token_limit(call: PolicyCall, node: LlmNode) -> int:
    return STRUCTURED_ANSWER_TOKENS if call.answers in ("verdict", "choice") else node.max_tokens


def temperature_of(call: PolicyCall, node: LlmNode, *, thinking: bool) -> float:
    """The node's temperature, at least 0.7 for sampled calls; structured answers are greedy."""
    if call.answers in ("verdict", "choice"):
        return 0.0
    default = THINKING_TEMPERATURE if thinking else 0.0
    chosen = default if node.temperature is None else node.temperature
    return max(chosen, SAMPLING_TEMPERATURE) if call.sampled else chosen


def heading(call: PolicyCall, number: int, of: int) -> str:
    """`Candidate answer 2`, `Cross critique 1`; without a number where there is only one."""
    name = "Candidate answer" if call.answers == "output" else call.role.replace("_", " ").capitalize()
    return f"{name} {number}" if of > 1 else name


def read_choice(text: str, choices: Sequence[str]) -> str | None:
    """The choice that a text makes, None when it makes none; case, spaces and quotes around it do not matter."""
    word = text.strip(_PADDING).lower()
    return word if word in choices else None


def complaint_about(problem: str) -> str:
    """What a re-ask adds to the prompt."""
    return f"An earlier answer to this was not usable: {problem}. Answer again, exactly in the form asked for."
