"""Which implementations a node may use: legal options O_n and policies P_n (paper 4.1; the tests below are ours).

A model must be served, allowed by the node and have room for prompt and output in its context; a policy must be
allowed and find what it requires; the complete pair must be profiled. The planner never guesses a missing profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.compiler.durations import PlacedCall, Server, Stage, place_calls
from planner.compiler.plan import Implementation
from planner.compiler.policies import Policy
from planner.compiler.profile import PairProfile
from planner.compiler.workflow import LlmNode

if TYPE_CHECKING:
    from planner.compiler.problem import PlanningProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A profiled pair on one backend, before a node's token limits. `verifiers`: one server each, or None alone."""

    policy: Policy
    profile: PairProfile
    base: Server
    verifiers: tuple[Server | None, ...]

    def place(self, verifier: Server | None, prompt_tokens: int | None, max_tokens: int) -> tuple[Stage, ...]:
        """The pair's calls for a node; without a known prompt it is as long as the profile's mean."""
        prompt = self.profile.prompt_tokens if prompt_tokens is None else float(prompt_tokens)
        return place_calls(
            self.policy, self.profile, base=self.base, verifier=verifier, prompt_tokens=prompt, max_tokens=max_tokens
        )

    def implementation(self, verifier: Server | None) -> Implementation:
        return Implementation(
            model=self.base.model.name,
            backend=self.base.backend.name,
            policy=self.policy.name,
            verifier_model=verifier.model.name if verifier else None,
            verifier_backend=verifier.backend.name if verifier else None,
        )


def legal_models(problem: PlanningProblem, node: LlmNode) -> tuple[str, ...]:
    """Served classes that the node allows, smallest first."""
    served = (model.name for model in problem.catalog.served_models())
    return tuple(name for name in served if node.models is None or name in node.models)


def legal_policies(problem: PlanningProblem, node: LlmNode) -> tuple[Policy, ...]:
    """Policies that the node allows and whose output can be compared where they need it, in declaration order."""
    allowed = (p for p in problem.policies.values() if node.policies is None or p.name in node.policies)
    return tuple(p for p in allowed if "comparable" not in p.requires or node.output.comparable)


def planned_prompt_tokens(problem: PlanningProblem, node: LlmNode) -> int | None:
    """The known length of the node's prompt, rounded up to a power of two (the cache's grain); None if unknown."""
    known = problem.known_prompt_tokens.get(node.id)
    if known is None or known == 0:
        return known
    return 1 << (known - 1).bit_length()


class Offers:
    """Enumerates what a node may use apart from its token limits; `refused` holds why others were not, for a message.

    In the order of the fleet's models, policies and backends.
    """

    def __init__(self, problem: PlanningProblem, node: LlmNode) -> None:
        self.problem, self.node = problem, node
        self.models = legal_models(problem, node)
        self.refused: dict[str, None] = {}

    def __iter__(self) -> Iterator[Offer]:
        policies = legal_policies(self.problem, self.node)
        if not self.models:
            self.refused[f"none of its models is served: {', '.join(self.node.models or ()) or 'no backend'}"] = None
        if not policies:
            self.refused["none of its policies is legal for its output"] = None
        for model in self.models:
            for policy in policies:
                yield from self._pairs(model, policy)

    def _pairs(self, model: str, policy: Policy) -> Iterator[Offer]:
        node, problem = self.node, self.problem
        verifier = None
        if policy.uses_verifier:
            larger = problem.catalog.next_larger(model, self.models)
            if larger is None:
                self.refused[f"no legal class is larger than {model} for {policy.name}"] = None
                return
            verifier = larger.name
        profile = problem.profiles.pair(node.skill, model, policy.name, verifier_model=verifier, thinking=node.thinking)
        if profile is None:
            self.refused[self._unprofiled(model, policy)] = None
            return
        verifiers = (None,) if verifier is None else self._servers(verifier)
        for base in self._servers(model):
            yield Offer(policy=policy, profile=profile, base=base, verifiers=verifiers)

    def _servers(self, name: str) -> tuple[Server, ...]:
        catalog = self.problem.catalog
        return tuple(Server(model=catalog.model(name), backend=backend) for backend in catalog.backends_of(name))

    def _unprofiled(self, model: str, policy: Policy) -> str:
        node, profiles = self.node, self.problem.profiles
        if node.skill not in profiles.skills:
            return f"skill {node.skill!r} has no profile; profiled skills: {', '.join(profiles.skills)}"
        mode = "with" if node.thinking else "without"
        return f"no profile of {model}.{policy.name} {mode} thinking for skill {node.skill!r}"


def why_none_is_legal(problem: PlanningProblem, node: LlmNode) -> tuple[str, ...]:
    """Every reason for which an implementation of the node was refused."""
    offers, prompt = Offers(problem, node), planned_prompt_tokens(problem, node)
    for offer in offers:
        # The servers of one class hold the same context, so any of them tells.
        for call, need in _too_long(offer.place(offer.verifiers[0], prompt, node.max_tokens), node.max_tokens):
            model, policy = call.server.model, offer.policy.name
            offers.refused[f"{model.name} holds {model.context_tokens} tokens, {policy} needs {need:.0f}"] = None
    return tuple(offers.refused)


def _too_long(stages: Sequence[Stage], max_tokens: int) -> Iterator[tuple[PlacedCall, float]]:
    """Calls that do not fit: servers refuse a prompt that leaves too little room for `max_tokens`."""
    for call in (call for stage in stages for call in stage):
        need = call.prompt_tokens + (max_tokens if call.free_text else call.output_tokens)
        if need > call.server.model.context_tokens:
            yield call, need
