"""An independent check of a plan (ours): every number again from the inputs, sharing no code with the compiler's path.

It reads workflow, profiles, rates and policies directly. What it repeats on purpose: Eq. 2, the reach weight, the
residual risk, the reference plan, the longest path, the GPU-seconds of the priced objective. Only the vulnerability
look-up is the table's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose, log, prod

from fleet.serving.rates import ServiceRates
from planner.compiler.digest import content_digest
from planner.compiler.plan import Implementation, Plan
from planner.compiler.policies import Policy
from planner.compiler.pricing import Pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import PairProfile
from planner.compiler.vulnerability import fan_in
from planner.compiler.workflow import LlmNode, Role, Workflow

TOLERANCE = 1e-6
PRICED_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    quality: float
    tau: float
    work: dict[str, float]
    cost: float
    gpu_s: dict[str, float]


def verify_plan(problem: PlanningProblem, plan: Plan) -> tuple[str, ...]:
    """Discrepancies between the plan and its problem, each a sentence; empty when the plan is what it says."""
    illegal = tuple(_illegal(problem, plan))
    return illegal or tuple(_wrong_numbers(problem, plan, _derive(problem, plan)))


def _illegal(problem: PlanningProblem, plan: Plan) -> Iterator[str]:
    expected = {node.id for node in problem.workflow.nodes if isinstance(node, LlmNode)}
    for node_id in sorted(set(plan.assignment) - expected):
        yield f"{node_id} is assigned but is no LLM node of the workflow"
    for node_id in sorted(expected - set(plan.assignment)):
        yield f"LLM node {node_id} has no implementation"
    for node in problem.workflow.nodes:
        if isinstance(node, LlmNode) and node.id in plan.assignment:
            reason = _why_illegal(problem, node, plan.assignment[node.id])
            if reason:
                yield f"node {node.id}: {plan.assignment[node.id].label} is not legal: {reason}"


def _why_illegal(problem: PlanningProblem, node: LlmNode, impl: Implementation) -> str:
    serves = {backend.name: backend.model for backend in problem.catalog.backends}
    policy = problem.policies.get(impl.policy)
    if policy is None or (node.policies is not None and impl.policy not in node.policies):
        return f"policy {impl.policy} is not allowed"
    if serves.get(impl.backend) != impl.model or (node.models is not None and impl.model not in node.models):
        return f"model {impl.model} on {impl.backend} is not allowed"
    if "comparable" in policy.requires and node.output.format != "json":
        return "its outputs cannot be compared"
    if impl.verifier_model != _verifier(problem, node, impl.model, policy):
        return f"its verifier must be {_verifier(problem, node, impl.model, policy)}"
    if impl.verifier_model is not None and serves.get(impl.verifier_backend or "") != impl.verifier_model:
        return f"backend {impl.verifier_backend} does not serve {impl.verifier_model}"
    if (impl.verifier_model is None) != (impl.verifier_backend is None):
        return "a verifier needs a model and a backend"
    profile = _profile(problem, node, impl)
    if profile is None:
        return "the pair is not profiled"
    return _context_too_short(problem, node, impl, policy, profile)


def _verifier(problem: PlanningProblem, node: LlmNode, model: str, policy: Policy) -> str | None:
    if all(call.model == "base" for stage in policy.stages for call in stage.calls):
        return None
    rank = {m.name: m.size_rank for m in problem.catalog.models}
    served = {backend.model for backend in problem.catalog.backends}
    larger = [m for m in served if rank[m] > rank[model] and (node.models is None or m in node.models)]
    return min(larger, key=lambda name: (rank[name], name), default="a larger class")


def _profile(problem: PlanningProblem, node: LlmNode, impl: Implementation) -> PairProfile | None:
    return problem.profiles.by_key.get((node.skill, impl.model, impl.policy, impl.verifier_model, node.thinking))


def _prompt(problem: PlanningProblem, node: LlmNode, profile: PairProfile) -> float:
    if node.id not in problem.known_prompt_tokens:
        return profile.prompt_tokens
    known, power = problem.known_prompt_tokens[node.id], 1
    while power < known:
        power *= 2
    return float(power if known else 0)


def _context_too_short(
    problem: PlanningProblem, node: LlmNode, impl: Implementation, policy: Policy, profile: PairProfile
) -> str:
    demand = {call.role: call for call in profile.calls}
    for stage in policy.stages:
        for call in stage.calls:
            name = impl.model if call.model == "base" else str(impl.verifier_model)
            answer = min(demand[call.role].output_tokens, node.max_tokens)
            room = answer if call.answers in ("verdict", "choice") else node.max_tokens
            need = _prompt(problem, node, profile) + demand[call.role].prompt_tokens + room
            if need > problem.catalog.model(name).context_tokens:
                return f"the context of {name} is too short for {need:.0f} tokens"
    return ""


def _numbers(problem: PlanningProblem, node: LlmNode, impl: Implementation) -> _Numbers:
    """Eq. 2, work, cost and GPU-seconds of a legal implementation."""
    profile, policy = _profile(problem, node, impl), problem.policies[impl.policy]
    if profile is None:
        raise ValueError(f"{impl.label} of node {node.id} is not profiled")
    demand = {call.role: call for call in profile.calls}
    total_s, work, price, gpu_s = 0.0, dict[str, float](), 0.0, dict[str, float]()
    for stage in policy.stages:
        longest = likely = 0.0
        for call in stage.calls:
            base = call.model == "base"
            model = problem.catalog.model(impl.model if base else str(impl.verifier_model))
            rates = problem.catalog.backend(impl.backend if base else str(impl.verifier_backend)).rates
            tokens_in = _prompt(problem, node, profile) + demand[call.role].prompt_tokens
            tokens_out = min(demand[call.role].output_tokens, node.max_tokens)
            seconds = rates.prefill_base_s + rates.prefill_per_token_s * tokens_in
            seconds += tokens_out / rates.decode_tokens_per_s
            probability = demand[call.role].probability
            longest, likely = max(longest, seconds), max(likely, probability)
            work[model.name] = work.get(model.name, 0.0) + call.count * probability * seconds
            price += call.count * probability * (tokens_in * model.price_in + tokens_out * model.price_out)
            busy = rates.prefill_base_s + rates.prefill_per_token_s * tokens_in + tokens_out * _token_share_s(rates)
            gpu_s[model.name] = gpu_s.get(model.name, 0.0) + call.count * probability * busy * rates.time_scale
        total_s += likely * longest
    return _Numbers(quality=profile.quality, tau=total_s, work=work, cost=price, gpu_s=gpu_s)


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


def _longest_path(workflow: Workflow, durations_s: dict[str, float]) -> float:
    """By relaxation over the edges until nothing changes: at most |V| rounds on a DAG."""
    finish, before = dict(durations_s), dict[str, float]()
    while finish != before:
        before = dict(finish)
        for source, target in workflow.edges:
            finish[target] = max(finish[target], finish[source] + durations_s[target])
    return max(finish.values())


def _descendants(workflow: Workflow, node_id: str) -> set[str]:
    found, frontier = {node_id}, [node_id]
    while frontier:
        below = set(workflow.successors[frontier.pop()]) - found
        found |= below
        frontier.extend(below)
    return found


def _vulnerability(problem: PlanningProblem, node: LlmNode) -> float:
    workflow, output = problem.workflow, problem.workflow.output
    if output not in _descendants(workflow, node.id):
        return 0.0
    before = len(set(workflow.predecessors[node.id]))
    last = node.id == output or not workflow.successors[node.id]
    role: Role = "terminal" if last else "intermediate" if before else "source"
    return problem.profiles.vulnerability.lookup(role, node.skill, fan_in(before))


def _reference(problem: PlanningProblem, node: LlmNode) -> _Numbers:
    """Largest legal model, cheapest legal policy, fastest backend: all implementations of the largest class tried."""
    legal: list[tuple[Implementation, _Numbers]] = []
    rank = {m.name: (m.size_rank, m.name) for m in problem.catalog.models}
    for backend in sorted(problem.catalog.backends, key=lambda b: rank[b.model], reverse=True):
        if legal and backend.model != legal[0][0].model:
            break  # a smaller class than one that is legal
        for policy in problem.policies.values():
            verifier = _verifier(problem, node, backend.model, policy)
            seconds = [b.name for b in problem.catalog.backends if b.model == verifier] if verifier else [None]
            for second in seconds:
                impl = Implementation(
                    model=backend.model,
                    backend=backend.name,
                    policy=policy.name,
                    verifier_model=verifier,
                    verifier_backend=second,
                )
                if not _why_illegal(problem, node, impl):
                    legal.append((impl, _numbers(problem, node, impl)))
    order = list(problem.policies)
    cheapest = min(legal, key=lambda pair: (pair[1].cost, order.index(pair[0].policy)))[0].policy
    return min((n for impl, n in legal if impl.policy == cheapest), key=lambda n: n.tau)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Derived:
    """A legal plan's numbers by LLM node, and those of the reference plan; the tools' seconds.

    T is the longest path of `graph`. A residual plan has fewer LLM nodes than the reference plan; those it lacks count
    among the `tools`, and give `settled_quality`.
    """

    llm: dict[str, _Numbers]
    reference: dict[str, _Numbers]
    risk: dict[str, float]
    tools: dict[str, float]
    graph: Workflow
    settled_quality: float = 1.0

    @property
    def durations(self) -> dict[str, float]:
        return {node_id: value.tau for node_id, value in self.llm.items()} | self.tools


def _derive(problem: PlanningProblem, plan: Plan) -> _Derived:
    nodes = problem.workflow.nodes
    llm = [node for node in nodes if isinstance(node, LlmNode)]
    numbers = {node.id: _numbers(problem, node, plan.assignment[node.id]) for node in llm}
    return _Derived(
        llm=numbers,
        reference={node.id: _reference(problem, node) for node in llm},
        risk={node.id: _vulnerability(problem, node) * (1 - numbers[node.id].quality) for node in llm},
        tools={node.id: float(f"{node.expected_s:.2g}") for node in nodes if not isinstance(node, LlmNode)},
        graph=problem.workflow,
    )


def _demand(values: dict[str, _Numbers]) -> dict[str, float]:
    demand: dict[str, float] = {}
    for value in values.values():
        for model, slot_s in value.work.items():
            demand[model] = demand.get(model, 0.0) + slot_s
    return demand


def _amount(problem: PlanningProblem, values: dict[str, _Numbers]) -> float:
    """D: slot-seconds, or the sum of tau."""
    if problem.demand == "tau":
        return sum(value.tau for value in values.values())
    return sum(_demand(values).values())


def _terms(problem: PlanningProblem, plan: Plan, derived: _Derived) -> dict[str, float]:
    """The objective's summands, signs included."""
    if problem.pricing is not None:
        return _priced_terms(problem.pricing, plan, derived)
    workflow, weights, count = problem.workflow, problem.weights, max(1, len(derived.reference))
    others = max(1, len(workflow.nodes) - 1)
    reach = {
        node_id: 1 + weights.beta * problem.effort * (len(_descendants(workflow, node_id)) - 1) / others
        for node_id in derived.llm
    }
    nominal = {node_id: value.tau for node_id, value in derived.reference.items()}
    t_ref = _longest_path(workflow, dict.fromkeys(derived.tools, 0.0) | nominal)
    k_ref = sum(value.cost for value in derived.reference.values())
    d_ref = _amount(problem, derived.reference)
    return {
        "quality": sum(reach[n] * value.quality for n, value in derived.llm.items()) / count,
        "risk": -weights.lambda_r * sum(derived.risk.values()) / count,
        "latency": _penalty(weights.lambda_l, _longest_path(derived.graph, derived.durations), t_ref),
        "cost": _penalty(weights.lambda_c, sum(value.cost for value in derived.llm.values()), k_ref),
        "demand": _penalty(plan.level * weights.lambda_d, _amount(problem, derived.llm), d_ref),
    }


def _priced_terms(pricing: Pricing, plan: Plan, derived: _Derived) -> dict[str, float]:
    used = [item for value in derived.llm.values() for item in value.gpu_s.items()]
    return {
        "log_quality": sum(log(max(1 - risk, 1e-6)) for risk in derived.risk.values()),
        "gpu": -plan.level * sum(pricing.prices[model] * seconds for model, seconds in used),
        "latency": -pricing.epsilon * _longest_path(derived.graph, derived.durations),
    }


def _penalty(weight: float, value: float, reference: float) -> float:
    return -weight * value / reference if reference > 0 else 0.0


def _wrong_numbers(problem: PlanningProblem, plan: Plan, derived: _Derived) -> Iterator[str]:
    terms, demand = _terms(problem, plan, derived), _demand(derived.llm)
    single = {
        "objective": (plan.objective, sum(terms.values())),
        "makespan_s": (plan.makespan_s, _longest_path(derived.graph, derived.durations)),
        "estimated_quality": (
            plan.estimated_quality,
            derived.settled_quality * prod(1 - risk for risk in derived.risk.values()),
        ),
        "cost": (plan.cost, sum(value.cost for value in derived.llm.values())),
    }
    for name, (said, right) in single.items():
        yield from _differences(name, {"": said}, {"": right})
    yield from _differences("term", dict(plan.terms), terms)
    yield from _differences("demand", dict(plan.demand), demand)
    yield from _differences("duration", dict(plan.durations_s), derived.durations)
    yield from _wrong_marks(problem, plan, demand)


def _wrong_marks(problem: PlanningProblem, plan: Plan, demand: dict[str, float]) -> Iterator[str]:
    largest = max(demand, key=lambda name: demand[name], default=None)
    share = demand.get(plan.dominant_model or "", 0.0)
    if largest is not None and not isclose(share, demand[largest], rel_tol=TOLERANCE):
        yield f"dominant_model is {plan.dominant_model}, the largest share of work is {largest}"
    if dict(plan.versions) != dict(problem.versions):
        yield f"versions are {dict(plan.versions)}, the problem's are {dict(problem.versions)}"
    if plan.digest != content_digest((plan.level, plan.assignment, plan.versions)):
        yield f"digest {plan.digest} does not belong to the plan's level, assignment and versions"


def _differences(what: str, said: dict[str, float], derived: dict[str, float]) -> Iterator[str]:
    for name in sorted(set(said) | set(derived)):
        ours, theirs = derived.get(name), said.get(name)
        if ours is None or theirs is None or not isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=1e-9):
            yield f"{what} {name}".rstrip() + f" is {theirs}, the inputs give {ours}"
