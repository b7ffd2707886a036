"""Hard limits of one request: caps on the whole plan, caps per model class, pins and prohibitions by node (ours).

Caps couple nodes (planner.compiler.limits.caps); pins and forbidden patterns only shorten a node's columns
(planner.compiler.limits.patterns). A further limit never makes more plans possible: where limits overlap, all hold.

JSON and command line use the same names:

    max_cost, max_calls, max_tokens, max_makespan_s, min_quality       a number
    work_s.MODEL, calls.MODEL                                          slot-seconds and calls of one model class
    pin.NODE, forbid.NODE                                              patterns; NODE is an id, or * for every LLM node
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from planner.compiler.workflow import LlmNode

if TYPE_CHECKING:
    from planner.compiler.problem import PlanningProblem

Patterns = tuple[str, ...]
"""`model/policy/backend`, each part a name or `*`; trailing parts may be left out."""

EVERY_NODE = "*"
_CAPS = ("max_cost", "max_calls", "max_tokens", "max_makespan_s", "min_quality")
_BY_MODEL = {"work_s": "max_model_work_s", "calls": "max_model_calls"}
_BY_NODE = {"pin": "pinned", "forbid": "forbidden"}
_WHOLE = ("max_calls", "calls")
MOST = sys.float_info.max
_MANY = 8
"""Names that a message lists at most."""


class LimitsInvalid(ValueError):
    """`problems` maps the name of a limit to what is wrong with it and how to put it right."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"limit {name[:80]}: {text}" for name, text in problems.items()))
        self.problems = dict(problems)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`max_calls` counts every conditional stage; tokens and cost are expected values; None: no such limit.

    `max_model_work_s` in slot-seconds and `max_model_calls` are by model class; `pinned` and `forbidden` by node id:
    a node uses an implementation that some pinned pattern matches, if it has any, and no forbidden one does; patterns
    under `*` hold for every LLM node beside its own. Raises LimitsInvalid, a ValueError, with every limit that is not
    finite, negative, above 1 for a quality, no whole number for calls, or no pattern.
    """

    max_cost: float | None = None
    max_calls: int | None = None
    max_tokens: float | None = None
    max_makespan_s: float | None = None
    min_quality: float | None = None
    max_model_work_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    max_model_calls: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    pinned: Mapping[str, Patterns] = field(default_factory=lambda: MappingProxyType({}))
    forbidden: Mapping[str, Patterns] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        problems = {name: text for name, value in self.values().items() if (text := _wrong(name, value))}
        if problems:
            raise LimitsInvalid(problems)
        for attribute in (*_BY_MODEL.values(), *_BY_NODE.values()):
            object.__setattr__(self, attribute, MappingProxyType(dict(getattr(self, attribute))))

    def values(self) -> dict[str, Any]:
        """Every limit that is set, by its name on the command line."""
        found = {name: getattr(self, name) for name in _CAPS if getattr(self, name) is not None}
        for kind, attribute in (_BY_MODEL | _BY_NODE).items():
            found |= {f"{kind}.{key}": value for key, value in getattr(self, attribute).items()}
        return found

    @property
    def is_empty(self) -> bool:
        return not self.values()

    @property
    def coupled(self) -> bool:
        """Whether a cap couples the nodes; pins and prohibitions do not."""
        caps = {name: value for name, value in self.values().items() if not name.startswith(("pin.", "forbid."))}
        return any(name != "min_quality" or value > 0 for name, value in caps.items())

    def to_json(self) -> dict[str, Any]:
        """Only what is set; `{}` without limits."""
        data: dict[str, Any] = {name: getattr(self, name) for name in _CAPS if getattr(self, name) is not None}
        data |= {kind: dict(getattr(self, name)) for kind, name in _BY_MODEL.items() if getattr(self, name)}
        for kind, name in _BY_NODE.items():
            if getattr(self, name):
                data[kind] = {node: list(patterns) for node, patterns in getattr(self, name).items()}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Limits:
        """The reverse of `to_json`; null is no limit. Raises LimitsInvalid."""
        names = (*_CAPS, *_BY_MODEL, *_BY_NODE)
        problems = {str(n)[:60]: f"is unknown; limits: {', '.join(names)}" for n in data if n not in names}
        fields: dict[str, Any] = {name: data[name] for name in _CAPS if name in data}
        for kind, attribute in (_BY_MODEL | _BY_NODE).items():
            given = {} if data.get(kind) is None else data[kind]
            if not isinstance(given, Mapping):
                problems[kind] = f"must be an object, got {given!r:.60}"
            else:
                fields[attribute] = {str(key): _tuple(value) for key, value in given.items()}
        if problems:
            raise LimitsInvalid(problems)
        return cls(**fields)

    def by_position(self, index: Mapping[str, int]) -> dict[str, Any]:
        """As JSON with positions in place of node ids and patterns in order: the form for a key."""
        data = self.to_json()
        for kind in _BY_NODE:
            if kind in data:
                data[kind] = {str(index.get(node, node)): sorted(set(found)) for node, found in data[kind].items()}
        return data


NO_LIMITS = Limits()


def parse_limits(texts: Iterable[str]) -> Limits:
    """Limits from `name=value` texts, patterns separated by commas. Raises LimitsInvalid."""
    data: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        kind, dot, key = name.partition(".")
        target = data.setdefault(kind, {}) if dot else data
        if not equals or not kind or (dot and not key):
            problems[text[:60]] = "write NAME=VALUE, for example max_cost=1.5 or pin.NODE=MODEL/POLICY"
        elif not isinstance(target, dict) or (key or kind) in target:
            problems[name[:60]] = "is given twice; list patterns in one limit, separated by commas"
        else:
            target[key or kind] = value.split(",") if kind in _BY_NODE else _number(value)
    if problems:
        raise LimitsInvalid(problems)
    return Limits.from_json(data)


def check_limits(problem: PlanningProblem) -> dict[str, str]:
    """What in the problem's limits names nothing in its workflow or fleet, by limit, each with what there is."""
    limits, nodes = problem.limits, problem.workflow.by_id
    classes = [model.name for model in problem.catalog.models]
    wrong: dict[str, str] = {}
    for kind, attribute in _BY_MODEL.items():
        for model in getattr(limits, attribute):
            if model not in classes:
                wrong[f"{kind}.{model}"] = f"there is no model class {model!r:.60}; classes: {_listed(classes)}"
    for kind, attribute in _BY_NODE.items():
        for node_id, patterns in getattr(limits, attribute).items():
            if node_id != EVERY_NODE and not isinstance(nodes.get(node_id), LlmNode):
                wrong[f"{kind}.{node_id}"] = unknown_node(problem, node_id)
            elif absent := [pattern for pattern in patterns if not _served(problem, pattern)]:
                wrong[f"{kind}.{node_id}"] = (
                    f"{absent[0]!r:.60} matches nothing in the fleet; classes: {_listed(classes)}; policies: "
                    f"{_listed(problem.policies)}; backends: {_listed(b.name for b in problem.catalog.backends)}"
                )
    return wrong


def unknown_node(problem: PlanningProblem, node_id: str) -> str:
    ids = _listed(node.id for node in problem.workflow.llm_nodes)
    return f"{node_id!r:.60} is no LLM node of the workflow; LLM nodes: {ids or 'none'}"


def parts(pattern: str) -> tuple[str, str, str]:
    """(model, policy, backend) of a pattern, `*` for what is left out."""
    model, policy, backend = (*pattern.split("/"), "*", "*")[:3]
    return model, policy, backend


def _served(problem: PlanningProblem, pattern: str) -> bool:
    model, policy, backend = parts(pattern)
    served = any(model in ("*", b.model) and backend in ("*", b.name) for b in problem.catalog.backends)
    return served and policy in ("*", *problem.policies)


def _wrong(name: str, value: Any) -> str:
    """What is wrong with one limit's value; empty when nothing is."""
    kind = name.partition(".")[0]
    if kind in _BY_NODE:
        return _wrong_patterns(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"must be a finite number, got {value!r:.60}"
    if not abs(value) <= MOST:
        return f"must be a finite number, at most {MOST:.2g}"
    if value < 0 or (kind == "min_quality" and value > 1):
        return f"must {'lie between 0 and 1' if kind == 'min_quality' else 'not be negative'}, got {value:g}"
    return f"counts calls: give a whole number, got {value:g}" if kind in _WHOLE and value != int(value) else ""


def _wrong_patterns(value: Any) -> str:
    if not isinstance(value, tuple) or not value:
        return f"give at least one pattern MODEL/POLICY/BACKEND, got {value!r:.60}"
    for pattern in value:
        names = pattern.split("/") if isinstance(pattern, str) else []
        if not 1 <= len(names) <= 3 or not all(part and part == part.strip() for part in names):
            return f"{pattern!r:.60} is no pattern: write MODEL, MODEL/POLICY or MODEL/POLICY/BACKEND, * for any"
    return ""


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _number(text: str) -> float | int | str:
    """A number where the text is one; else the text itself, which the limits refuse by name."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(name[:60] for name in found[:_MANY]) + (", ..." if len(found) > _MANY else "")
