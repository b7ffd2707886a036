"""The eight verification policies as call graphs (paper 4.2; names and graphs ours, MATH.md's table).

One declaration serves three uses: Eq. 2 (stages in series, calls of a stage in parallel), the engine that executes
it, and the campaign that measures it. A policy is data: nothing in the engine knows a policy by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Answer = Literal["output", "text", "verdict", "choice"]
Result = Literal["last", "majority", "selected"]
Condition = Literal["always", "rejected"]
Requirement = Literal["comparable", "larger_class"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCall:
    """One call of a policy, `count` of it in parallel with distinct seeds.

    `answers`: `output` is a candidate for the node's output, `text` free text for later calls, `verdict` a structured
    accept/reject, `choice` the index of one of the candidates. `reads` names the earlier roles whose texts follow the
    node's own prompt; `instruction` comes last. `model` says whose backend serves it. `sampled` calls use a
    temperature of at least 0.7. `pairing="other"`: copy i reads every copy but
    copy i (a cross-critique reads the other solution).
    """

    role: str
    answers: Answer
    instruction: str = ""
    reads: tuple[str, ...] = ()
    count: int = 1
    model: Literal["base", "verifier"] = "base"
    sampled: bool = False
    thinking: Literal["node", "off"] = "node"
    pairing: Literal["all", "other"] = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStage:
    """Calls that run in parallel; `when="rejected"` runs only after a verdict of the stage before rejected."""

    calls: tuple[PolicyCall, ...]
    when: Condition = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`result`: the last `output` call's text, the majority of the candidates, or the selected candidate."""

    name: str
    title: str
    stages: tuple[PolicyStage, ...]
    result: Result = "last"
    requires: frozenset[Requirement] = frozenset()

    @property
    def calls(self) -> tuple[PolicyCall, ...]:
        return tuple(call for stage in self.stages for call in stage.calls)

    @property
    def max_calls(self) -> int:
        """Calls issued when every conditional stage runs."""
        return sum(call.count for call in self.calls)

    @property
    def uses_verifier(self) -> bool:
        return any(call.model == "verifier" for call in self.calls)


def _stage(*calls: PolicyCall, when: Condition = "always") -> PolicyStage:
    return PolicyStage(calls=calls, when=when)


_GENERATE = PolicyCall(role="generate", answers="output")
_VERDICT = (
    "Judge the candidate answer against the task above. Accept it only when it is correct and complete. "
    "Answer with exactly one word: accept or reject."
)
_REVISE = (
    "The candidate answer above was not accepted as it stands. Give a corrected, complete answer to the task. "
    "Answer with the corrected answer only."
)
_CRITIQUE = (
    "Name the concrete errors and omissions of the candidate answer above, most important first. Do not rewrite it."
)
_SELECT = "Compare the numbered candidate answers above. Answer with the number of the best one only."

NONE = Policy(name="none", title="No verification", stages=(_stage(_GENERATE),))

SELF_CHECK = Policy(
    name="self_check",
    title="Self-check",
    stages=(
        _stage(_GENERATE),
        _stage(
            PolicyCall(role="verdict", answers="verdict", reads=("generate",), instruction=_VERDICT, thinking="off")
        ),
        _stage(
            PolicyCall(role="revise", answers="output", reads=("generate",), instruction=_REVISE),
            when="rejected",
        ),
    ),
)

SELF_REFINE = Policy(
    name="self_refine",
    title="Self-refinement",
    stages=(
        _stage(_GENERATE),
        _stage(PolicyCall(role="feedback", answers="text", reads=("generate",), instruction=_CRITIQUE)),
        _stage(PolicyCall(role="revise", answers="output", reads=("generate", "feedback"), instruction=_REVISE)),
    ),
)

MULTI_CRITIQUE = Policy(
    name="multi_critique",
    title="Parallel critiques",
    stages=(
        _stage(_GENERATE),
        _stage(
            PolicyCall(
                role="critique",
                answers="text",
                reads=("generate",),
                instruction=_CRITIQUE,
                count=3,
                sampled=True,
            )
        ),
        _stage(PolicyCall(role="revise", answers="output", reads=("generate", "critique"), instruction=_REVISE)),
    ),
)

SELF_CONSISTENCY = Policy(
    name="self_consistency",
    title="Self-consistency",
    stages=(_stage(PolicyCall(role="sample", answers="output", count=5, sampled=True)),),
    result="majority",
    requires=frozenset({"comparable"}),
)

BEST_OF_N = Policy(
    name="best_of_n",
    title="Best of four",
    stages=(
        _stage(PolicyCall(role="sample", answers="output", count=4, sampled=True)),
        _stage(
            PolicyCall(
                role="select",
                answers="choice",
                reads=("sample",),
                instruction=_SELECT,
                thinking="off",
            )
        ),
    ),
    result="selected",
)

CROSS_CHECK = Policy(
    name="cross_check",
    title="Cross-check by the next larger class",
    stages=(
        _stage(_GENERATE),
        _stage(
            PolicyCall(
                role="verdict",
                answers="verdict",
                reads=("generate",),
                instruction=_VERDICT,
                model="verifier",
                thinking="off",
            )
        ),
        _stage(
            PolicyCall(role="revise", answers="output", reads=("generate",), instruction=_REVISE),
            when="rejected",
        ),
    ),
    requires=frozenset({"larger_class"}),
)

DEBATE = Policy(
    name="debate",
    title="Debate",
    stages=(
        _stage(PolicyCall(role="solution", answers="output", count=2, sampled=True)),
        _stage(
            PolicyCall(
                role="cross_critique",
                answers="text",
                reads=("solution",),
                instruction=_CRITIQUE,
                count=2,
                sampled=True,
                pairing="other",
            )
        ),
        _stage(
            PolicyCall(
                role="synthesis",
                answers="output",
                reads=("solution", "cross_critique"),
                instruction="Weigh the solutions and their critiques above and give one final, complete answer only.",
            )
        ),
    ),
)

ALL_POLICIES: tuple[Policy, ...] = (
    NONE,
    SELF_CHECK,
    SELF_REFINE,
    MULTI_CRITIQUE,
    SELF_CONSISTENCY,
    BEST_OF_N,
    CROSS_CHECK,
    DEBATE,
)
POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in ALL_POLICIES})


def policy_names(policies: Iterable[Policy] = ALL_POLICIES) -> tuple[str, ...]:
    return tuple(policy.name for policy in policies)
