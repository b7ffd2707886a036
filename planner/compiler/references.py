"""References from a node's texts to inputs and to other nodes' outputs (ours; paper 3.1 only has edges).

    {{ inputs.topic }}   {{ nodes.plan.output }}   {{ nodes.plan.output.steps.0 }}   and for a literal {{ : {{ '{{' }}

There is no other template logic. Every template is substituted once: what a reference brings in is never read as a
template again, so neither an input nor a model's output can name anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from planner.compiler.workflow import LlmNode, Node

NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}"
_PATH = r"(?:\.[A-Za-z0-9_-]+)*"
_REFERENCE = re.compile(
    r"\{\{[ \t]*(?:"
    r"(?P<quote>['\"])\{\{(?P=quote)"
    rf"|inputs\.(?P<input>{NAME_PATTERN})(?P<input_path>{_PATH})"
    rf"|nodes\.(?P<node>{NAME_PATTERN})\.output(?P<node_path>{_PATH})"
    r")[ \t]*\}\}"
)
LITERAL_BRACES = "{{ '{{' }}"
REMEDY = (
    "Write {{ inputs.NAME }}, {{ nodes.ID.output }} or {{ nodes.ID.output.FIELD }}; "
    "for two literal opening braces write {{ '{{' }}."
)

MAX_RENDERED = 2_000_000
"""Characters that the references of one template may bring in: more than any context holds. Without a limit, nodes that
each repeat the one before would fill the memory of every worker that takes the run."""

FailureCode = Literal["unknown_input", "no_output", "missing_field", "bad_position", "no_fields", "too_large"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One reference: to an input or to a node's output, with the path into its JSON value."""

    kind: Literal["input", "node"]
    name: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        start = f"inputs.{self.name}" if self.kind == "input" else f"nodes.{self.name}.output"
        return ".".join((start, *self.path))


class ReferenceFailed(ValueError):
    """A reference that cannot be filled: `code` says why, `reference` which, and the message names what is there."""

    def __init__(self, reference: Reference, code: FailureCode, message: str) -> None:
        super().__init__(f"{{{{ {reference} }}}}: {message}")
        self.reference, self.code, self.message = reference, code, message


def escape(text: str) -> str:
    """`text` as a template that renders to exactly `text`."""
    return text.replace("{{", LITERAL_BRACES)


def find_references(value: Any) -> tuple[Reference, ...]:
    """All references in a template: in a text, or in the texts of a JSON value (keys are never templates)."""
    return tuple(_reference(match) for text in _texts(value) for match in _matches(text) if not match["quote"])


def malformed(text: str) -> str | None:
    """The first `{{` of a text that begins no reference, up to its `}}` or at most 40 characters; None without one."""
    # Whole references are masked at equal length, so that positions stay those of the text.
    rest = _REFERENCE.sub(lambda match: "\0" * len(match.group()), text)
    start = rest.find("{{")
    if start < 0:
        return None
    shown = text[start : start + 40].splitlines()[0]
    before, closing, _ = shown.partition("}}")
    return before + closing


def node_references(node: Node) -> tuple[Reference, ...]:
    """The references of a node's templates: prompt and system, or the arguments."""
    return find_references([node.prompt, node.system] if isinstance(node, LlmNode) else node.arguments)


def render(value: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
    """A template with every reference filled, once. `outputs` maps node ids to their outputs.

    A text that is exactly one reference becomes the referenced value with its JSON type; inside a longer text, texts
    go in as they are and other values as JSON. Raises ReferenceFailed, also beyond MAX_RENDERED characters.
    """
    return _Filling(inputs, outputs).value(value)


def render_text(template: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> str:
    """Like `render`, but the result is always a text: for prompts. Raises ReferenceFailed."""
    return _Filling(inputs, outputs).text(template)


class _Filling:
    """One template being filled; counts what the references bring in."""

    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self._inputs, self._outputs, self._room = inputs, outputs, MAX_RENDERED

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            match = _REFERENCE.fullmatch(value)
            return self._resolved(match)[0] if match and not match["quote"] else self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(member) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(member) for member in value]
        return value

    def text(self, template: str) -> str:
        return _REFERENCE.sub(lambda match: "{{" if match["quote"] else self._resolved(match)[1], template)

    def _resolved(self, match: re.Match[str]) -> tuple[Any, str]:
        """The referenced value, and as text."""
        reference = _reference(match)
        value = resolve(reference, self._inputs, self._outputs)
        text = _as_text(value)
        self._room -= len(text)
        if self._room < 0:
            message = f"with it more than {MAX_RENDERED:,} characters are brought in; reference less, or a part of it"
            raise ReferenceFailed(reference, "too_large", message)
        return value, text


def resolve(reference: Reference, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
    """The value a reference stands for. Raises ReferenceFailed."""
    if reference.kind == "input" and reference.name not in inputs:
        raise ReferenceFailed(reference, "unknown_input", "there is no such input")
    if reference.kind == "node" and reference.name not in outputs:
        raise ReferenceFailed(reference, "no_output", f"node {reference.name} has no output yet")
    value = (inputs if reference.kind == "input" else outputs)[reference.name]
    for depth, step in enumerate(reference.path):
        value = _member(reference, depth, value, step)
    return value


def _member(reference: Reference, depth: int, value: Any, step: str) -> Any:
    at = Reference(kind=reference.kind, name=reference.name, path=reference.path[:depth])
    if isinstance(value, Mapping):
        if step in value:
            return value[step]
        fields = ", ".join(str(key) for key in list(value)[:10]) or "none"
        raise ReferenceFailed(reference, "missing_field", f"{at} has no field {step!r}; its fields: {fields}")
    if isinstance(value, list):
        if step.isascii() and step.isdigit() and len(step) < 10 and int(step) < len(value):
            return value[int(step)]
        raise ReferenceFailed(
            reference,
            "bad_position",
            f"{at} is a list of {len(value)}; {step!r} is no position in it (they start at 0)",
        )
    raise ReferenceFailed(reference, "no_fields", f"{at} is neither an object nor a list, so it has no {step!r}")


def _matches(text: str) -> Iterator[re.Match[str]]:
    return _REFERENCE.finditer(text)


def _reference(match: re.Match[str]) -> Reference:
    kind: Literal["input", "node"] = "input" if match["input"] else "node"
    path = match[f"{kind}_path"]
    return Reference(kind=kind, name=match[kind], path=tuple(path.split(".")[1:]))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _texts(member)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
