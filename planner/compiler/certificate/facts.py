"""What a certificate derives from the inputs of a problem, once for all of its plans (ours).

It reads workflow, profiles, rates and policies directly and shares no code with the compiler's path. What it repeats on
purpose: legality, Eq. 2, the reach weight, the residual risk, the reference plan, the longest path, the GPU-seconds of
the priced objective. Only the vulnerability look-up is the table's own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from fleet.serving.rates import ServiceRates
from planner.compiler.plan import Implementation
from planner.compiler.policies import Policy
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import PairProfile
from planner.compiler.vulnerability import fan_in
from planner.compiler.workflow import LlmNode, Role, Workflow

PRICED_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """One legal implementation: tau and work in seconds, most calls and expected tokens."""

    quality: float
    tau: float
    work: dict[str, float]
    cost: float
    gpu_s: dict[str, float]
    tokens: float
    calls: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Makespan without tools, cost, and demand of the reference plan."""

    t: float
    k: float
    d: float


def facts_of(problem: PlanningProblem) -> Facts:
    """The problem's facts, kept with it."""
    found = problem.memo.get(Facts)
    if not isinstance(found, Facts):
        found = problem.memo[Facts] = Facts(problem)
    return found


class Facts:
    """Derived when asked for, and then kept."""

    def __init__(self, problem: PlanningProblem) -> None:
        self.problem, self.workflow = problem, problem.workflow
        self.llm = [node for node in problem.workflow.nodes if isinstance(node, LlmNode)]
        self._numbers: dict[Hashable, Numbers] = {}
        self._references: dict[Hashable, Numbers] = {}
        self._below: dict[str, set[str]] = {}

    # --- Legality ----------------------------------------------------------------------------------------------------

    @cached_property
    def serves(self) -> Mapping[str, str]:
        """The model class of every backend."""
        return {backend.name: backend.model for backend in self.problem.catalog.backends}

    @cached_property
    def rank(self) -> Mapping[str, tuple[int, str]]:
        return {model.name: (model.size_rank, model.name) for model in self.problem.catalog.models}

    @cached_property
    def with_verifier(self) -> frozenset[str]:
        """Policies that ask another class."""
        policies = self.problem.policies.values()
        return frozenset(p.name for p in policies if any(c.model != "base" for s in p.stages for c in s.calls))

    def why_illegal(self, node: LlmNode, impl: Implementation) -> str:
        """Empty when the implementation is legal for the node."""
        policy = self.problem.policies.get(impl.policy)
        if policy is None or (node.policies is not None and impl.policy not in node.policies):
            return f"policy {impl.policy} is not allowed"
        if self.serves.get(impl.backend) != impl.model or (node.models is not None and impl.model not in node.models):
            return f"model {impl.model} on {impl.backend} is not allowed"
        if "comparable" in policy.requires and node.output.format != "json":
            return "its outputs cannot be compared"
        verifier = self._verifier(node, impl.model, policy)
        if impl.verifier_model != verifier:
            return f"its verifier must be {verifier}"
        if impl.verifier_model is not None and self.serves.get(impl.verifier_backend or "") != impl.verifier_model:
            return f"backend {impl.verifier_backend} does not serve {impl.verifier_model}"
        if (impl.verifier_model is None) != (impl.verifier_backend is None):
            return "a verifier needs a model and a backend"
        profile = self.profile(node, impl)
        if profile is None:
            return "the pair is not profiled"
        return self._context_too_short(node, impl, policy, profile)

    def _verifier(self, node: LlmNode, model: str, policy: Policy) -> str | None:
        if policy.name not in self.with_verifier:
            return None
        size = self.rank[model][0]
        served = set(self.serves.values())
        larger = [m for m in served if self.rank[m][0] > size and (node.models is None or m in node.models)]
        return min(larger, key=self.rank.__getitem__, default="a larger class")

    def profile(self, node: LlmNode, impl: Implementation) -> PairProfile | None:
        key = (node.skill, impl.model, impl.policy, impl.verifier_model, node.thinking)
        return self.problem.profiles.by_key.get(key)

    def _prompt(self, node: LlmNode, profile: PairProfile) -> float:
        if node.id not in self.problem.known_prompt_tokens:
            return profile.prompt_tokens
        known, power = self.problem.known_prompt_tokens[node.id], 1
        while power < known:
            power *= 2
        return float(power if known else 0)

    def _context_too_short(self, node: LlmNode, impl: Implementation, policy: Policy, profile: PairProfile) -> str:
        demand = {call.role: call for call in profile.calls}
        prompt = self._prompt(node, profile)
        for stage in policy.stages:
            for call in stage.calls:
                name = impl.model if call.model == "base" else str(impl.verifier_model)
                answer = min(demand[call.role].output_tokens, node.max_tokens)
                room = answer if call.answers in ("verdict", "choice") else node.max_tokens
                need = prompt + demand[call.role].prompt_tokens + room
                if need > self.problem.catalog.model(name).context_tokens:
                    return f"the context of {name} is too short for {need:.0f} tokens"
        return ""

    # --- Numbers of one implementation -------------------------------------------------------------------------------

    def numbers(self, node: LlmNode, impl: Implementation) -> Numbers:
        """Eq. 2, work, cost, GPU-seconds, tokens and most calls of a legal implementation."""
        key = (self._needs(node), impl)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = self._derived(node, impl)
        return found

    def _needs(self, node: LlmNode) -> Hashable:
        """Nodes with equal needs have the same implementations with the same numbers."""
        sets = (node.models, node.policies, node.output.format)
        return (node.skill, node.thinking, node.max_tokens, self.problem.known_prompt_tokens.get(node.id), sets)

    def _derived(self, node: LlmNode, impl: Implementation) -> Numbers:
        profile, policy, catalog = self.profile(node, impl), self.problem.policies[impl.policy], self.problem.catalog
        if profile is None:
            raise ValueError(f"{impl.label} of node {node.id} is not profiled")
        demand, prompt = {call.role: call for call in profile.calls}, self._prompt(node, profile)
        total_s, work, price, gpu_s = 0.0, dict[str, float](), 0.0, dict[str, float]()
        tokens, calls = 0.0, dict[str, int]()
        for stage in policy.stages:
            longest = likely = 0.0
            for call in stage.calls:
                base = call.model == "base"
                model = catalog.model(impl.model if base else str(impl.verifier_model))
                rates = catalog.backend(impl.backend if base else str(impl.verifier_backend)).rates
                tokens_in = prompt + demand[call.role].prompt_tokens
                tokens_out = min(demand[call.role].output_tokens, node.max_tokens)
                prefill = rates.prefill_base_s + rates.prefill_per_token_s * tokens_in
                seconds = prefill + tokens_out / rates.decode_tokens_per_s
                probability = demand[call.role].probability
                longest, likely = max(longest, seconds), max(likely, probability)
                work[model.name] = work.get(model.name, 0.0) + call.count * probability * seconds
                price += call.count * probability * (tokens_in * model.price_in + tokens_out * model.price_out)
                tokens += call.count * probability * (tokens_in + tokens_out)
                calls[model.name] = calls.get(model.name, 0) + call.count
                busy = (prefill + tokens_out * _token_share_s(rates)) * rates.time_scale
                gpu_s[model.name] = gpu_s.get(model.name, 0.0) + call.count * probability * busy
            total_s += likely * longest
        return Numbers(
            quality=profile.quality, tau=total_s, work=work, cost=price, gpu_s=gpu_s, tokens=tokens, calls=calls
        )

    # --- The reference plan ------------------------------------------------------------------------------------------

    @cached_property
    def reference(self) -> Reference:
        numbers = {node.id: self._reference(node) for node in self.llm}
        durations = dict.fromkeys((node.id for node in self.workflow.nodes), 0.0)
        taus = {node_id: value.tau for node_id, value in numbers.items()}
        tau = self.problem.demand == "tau"
        return Reference(
            t=longest_path(self.workflow, durations | taus),
            k=sum(value.cost for value in numbers.values()),
            d=sum(value.tau if tau else sum(value.work.values()) for value in numbers.values()),
        )

    def _reference(self, node: LlmNode) -> Numbers:
        """Largest legal model, cheapest legal policy, fastest backend; prices do not depend on the backend."""
        key = self._needs(node)
        if key not in self._references:
            self._references[key] = next(self._by_rank(node))
        return self._references[key]

    def _by_rank(self, node: LlmNode) -> Iterator[Numbers]:
        for model in sorted(set(self.serves.values()), key=self.rank.__getitem__, reverse=True):
            for policy in sorted(self._profiled(node, model), key=lambda name: self._price(node, model, name)):
                placed = [impl for impl in self._placed(node, model, policy) if not self.why_illegal(node, impl)]
                if placed:
                    yield min((self.numbers(node, impl) for impl in placed), key=lambda numbers: numbers.tau)

    def _profiled(self, node: LlmNode, model: str) -> Iterator[str]:
        for policy in self.problem.policies.values():
            key = (node.skill, model, policy.name, self._verifier(node, model, policy), node.thinking)
            if key in self.problem.profiles.by_key:
                yield policy.name

    def _placed(self, node: LlmNode, model: str, policy: str) -> Iterator[Implementation]:
        verifier = self._verifier(node, model, self.problem.policies[policy])
        seconds = (None,) if verifier is None else tuple(n for n, served in self.serves.items() if served == verifier)
        for backend in (name for name, served in self.serves.items() if served == model):
            for second in seconds:
                yield Implementation(
                    model=model, backend=backend, policy=policy, verifier_model=verifier, verifier_backend=second
                )

    def _price(self, node: LlmNode, model: str, name: str) -> float:
        verifier = self._verifier(node, model, self.problem.policies[name])
        profile = self.problem.profiles.by_key[(node.skill, model, name, verifier, node.thinking)]
        prompt, most = self._prompt(node, profile), node.max_tokens
        return sum(
            [
                times * ((prompt + tokens_in) * price_in + (tokens_out if tokens_out < most else most) * price_out)
                for times, tokens_in, tokens_out, price_in, price_out in self._paid(profile)
            ]
        )

    def _paid(self, profile: PairProfile) -> tuple[tuple[float, float, float, float, float], ...]:
        """(expected times, own prompt tokens, output tokens, price of each) of a pair's calls, for all requests."""
        tables = self.problem.menus.prices
        found: tuple[tuple[float, float, float, float, float], ...] | None = tables.get(profile.key)
        if found is None:
            catalog, demand = self.problem.catalog, {call.role: call for call in profile.calls}
            calls = [call for stage in self.problem.policies[profile.policy].stages for call in stage.calls]
            served = [catalog.model(profile.model if c.model == "base" else str(profile.verifier_model)) for c in calls]
            needs = [demand[call.role] for call in calls]
            found = tables[profile.key] = tuple(
                (c.count * n.probability, n.prompt_tokens, n.output_tokens, m.price_in, m.price_out)
                for c, n, m in zip(calls, needs, served, strict=True)
            )
        return found

    # --- The graph ---------------------------------------------------------------------------------------------------

    @cached_property
    def tools_s(self) -> Mapping[str, float]:
        """Planned seconds of the tools: two significant digits."""
        nodes = self.workflow.nodes
        return {node.id: float(f"{node.expected_s:.2g}") for node in nodes if not isinstance(node, LlmNode)}

    def descendants(self, node_id: str) -> set[str]:
        """The node and all that can be reached from it."""
        found = self._below.get(node_id)
        if found is None:
            found, frontier = {node_id}, [node_id]
            while frontier:
                below = set(self.workflow.successors[frontier.pop()]) - found
                found |= below
                frontier.extend(below)
            self._below[node_id] = found
        return found

    @cached_property
    def reach(self) -> Mapping[str, float]:
        """rho(n) of the LLM nodes."""
        share = self.problem.weights.beta * self.problem.effort / max(1, len(self.workflow.nodes) - 1)
        return {node.id: 1 + share * (len(self.descendants(node.id)) - 1) for node in self.llm}

    @cached_property
    def vulnerability(self) -> Mapping[str, float]:
        """v_n of the LLM nodes."""
        return {node.id: self._vulnerability(node) for node in self.llm}

    def _vulnerability(self, node: LlmNode) -> float:
        workflow, output = self.workflow, self.workflow.output
        if output not in self.descendants(node.id):
            return 0.0
        before = len(set(workflow.predecessors[node.id]))
        last = node.id == output or not workflow.successors[node.id]
        role: Role = "terminal" if last else "intermediate" if before else "source"
        return self.problem.profiles.vulnerability.lookup(role, node.skill, fan_in(before))


def _token_share_s(rates: ServiceRates) -> float:
    """A token's share of one decode step at the priced batch.

    Without a fit, w + s * B from two equations: w + s * concurrency is a step at the decode rate, and a step at the
    capacity C takes twice a single stream's, w + s * C = 2 (w + s), where that leaves w positive.
    """
    base, slope = rates.step_base_s, rates.step_per_sequence_s
    if base is None or slope is None:
        ratio = max(0, rates.capacity - 2)
        slope = 1 / rates.decode_tokens_per_s / (ratio + rates.concurrency)
        base = ratio * slope
    return base / PRICED_BATCH + slope


def longest_path(workflow: Workflow, durations_s: Mapping[str, float]) -> float:
    """By relaxation over the edges until nothing changes: at most |V| rounds on a DAG."""
    finish, changed = dict(durations_s), True
    while changed:
        changed = False
        for source, target in workflow.edges:
            end = finish[source] + durations_s[target]
            if end > finish[target]:
                finish[target], changed = end, True
    return max(finish.values())
