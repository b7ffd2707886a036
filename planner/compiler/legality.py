"""Which implementations a node may use: legal options O_n and policies P_n (paper 4.1; the tests below are ours).

A model must be served, allowed by the node and have room for prompt and output in its context; a policy must be
allowed and find what it requires; the complete pair must be profiled. The planner never guesses a missing profile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.compiler.durations import PlacedCall, Server, Stage, call_s, place_calls
from planner.compiler.plan import Implementation
from planner.compiler.policies import Policy
from planner.compiler.profile import PairProfile
from planner.compiler.workflow import LlmNode

if TYPE_CHECKING:
    from planner.compiler.problem import PlanningProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Legal:
    """One legal implementation with its profile and its placed calls."""

    implementation: Implementation
    profile: PairProfile
    stages: tuple[Stage, ...]


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


class LegalImplementations:
    """Enumerates a node's legal implementations; `refused` holds why others were not, for a message."""

    def __init__(self, problem: PlanningProblem, node: LlmNode) -> None:
        self.problem, self.node = problem, node
        self.models = legal_models(problem, node)
        self.prompt_tokens = planned_prompt_tokens(problem, node)
        self.refused: dict[str, None] = {}

    def __iter__(self) -> Iterator[Legal]:
        policies = legal_policies(self.problem, self.node)
        if not self.models:
            self.refused[f"none of its models is served: {', '.join(self.node.models or ()) or 'no backend'}"] = None
        if not policies:
            self.refused["none of its policies is legal for its output"] = None
        for model in self.models:
            for policy in policies:
                yield from self._pairs(model, policy)

    def _pairs(self, model: str, policy: Policy) -> Iterator[Legal]:
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
        for backend in problem.catalog.backends_of(model):
            base = Server(model=problem.catalog.model(model), backend=backend)
            legal = self._place(policy, profile, base, verifier)
            if legal is not None:
                yield legal

    def _place(self, policy: Policy, profile: PairProfile, base: Server, verifier: str | None) -> Legal | None:
        options = [self._stages(policy, profile, base, server) for server in self._verifiers(verifier)]
        stages = min(options, key=_verifier_s)
        for call in (call for stage in stages for call in stage):
            need, room = self._context_need(call), call.server.model.context_tokens
            if need > room:
                self.refused[f"{call.server.model.name} holds {room} tokens, {policy.name} needs {need:.0f}"] = None
                return None
        second = next((c.server for stage in stages for c in stage if c.server is not base), None)
        implementation = Implementation(
            model=base.model.name,
            backend=base.backend.name,
            policy=policy.name,
            verifier_model=verifier,
            verifier_backend=second.backend.name if second else None,
        )
        return Legal(implementation=implementation, profile=profile, stages=stages)

    def _verifiers(self, verifier: str | None) -> list[Server | None]:
        if verifier is None:
            return [None]
        model = self.problem.catalog.model(verifier)
        return [Server(model=model, backend=backend) for backend in self.problem.catalog.backends_of(verifier)]

    def _stages(self, policy: Policy, profile: PairProfile, base: Server, verifier: Server | None) -> tuple[Stage, ...]:
        prompt = profile.prompt_tokens if self.prompt_tokens is None else float(self.prompt_tokens)
        return place_calls(
            policy, profile, base=base, verifier=verifier, prompt_tokens=prompt, max_tokens=self.node.max_tokens
        )

    def _context_need(self, call: PlacedCall) -> float:
        """Tokens a server must have room for: servers refuse a prompt that leaves too little room for `max_tokens`."""
        return call.prompt_tokens + (self.node.max_tokens if call.free_text else call.output_tokens)

    def _unprofiled(self, model: str, policy: Policy) -> str:
        node, profiles = self.node, self.problem.profiles
        if node.skill not in profiles.skills:
            return f"skill {node.skill!r} has no profile; profiled skills: {', '.join(profiles.skills)}"
        mode = "with" if node.thinking else "without"
        return f"no profile of {model}.{policy.name} {mode} thinking for skill {node.skill!r}"


def why_none_is_legal(problem: PlanningProblem, node: LlmNode) -> tuple[str, ...]:
    """Every reason for which an implementation of the node was refused."""
    options = LegalImplementations(problem, node)
    list(options)
    return tuple(options.refused)


def _verifier_s(stages: tuple[Stage, ...]) -> float:
    """Seconds of all calls once: the verifier's backend is the one where they are fastest (ours)."""
    return sum(call_s(call) for stage in stages for call in stage)
