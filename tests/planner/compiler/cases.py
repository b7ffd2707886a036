"""Small fleets, profiles and workflows for compiler tests, a brute-force solver, and hypothesis strategies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from itertools import product

from hypothesis import strategies as st

from fleet.serving.catalog import Backend, Catalog, ModelClass
from fleet.serving.rates import ServiceRates
from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Choice, Evaluation, evaluate
from planner.compiler.limits import Limits, parse_limits
from planner.compiler.menu import Column
from planner.compiler.plan import Bundle, Infeasible, Plan
from planner.compiler.policies import POLICIES, Policy
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import CallDemand, PairProfile, ProfileSet
from planner.compiler.vulnerability import VulnerabilityCell, VulnerabilityTable, wilson_interval
from planner.compiler.weights import Weights
from planner.compiler.workflow import LlmNode, OutputSpec, ToolNode, Workflow

SMALL, MIDDLE, LARGE = "qwen3.5-4b", "qwen3.5-9b", "qwen3.5-27b"


def rates(decode: float, prefill: float = 30000.0, base_s: float = 0.02) -> ServiceRates:
    return ServiceRates(
        decode_tokens_per_s=decode,
        prefill_base_s=base_s,
        prefill_per_token_s=1 / prefill,
        concurrency=16,
        capacity=32,
        source="illustrative",
    )


def model(name: str, rank: int, billions: float, context_tokens: int = 32768) -> ModelClass:
    return ModelClass(
        name=name,
        size_rank=rank,
        parameters_b=billions,
        context_tokens=context_tokens,
        price_in=billions / 1000,
        price_out=billions / 1000,
    )


def h200_catalog(version: str = "test-1", context_tokens: int = 32768) -> Catalog:
    """Three classes, one backend each, with round H200 rates."""
    classes = ((SMALL, 1, 4.0, 260.0, 60000.0), (MIDDLE, 2, 9.0, 150.0, 34000.0), (LARGE, 3, 27.0, 55.0, 12000.0))
    return Catalog(
        models=tuple(model(name, rank, size, context_tokens) for name, rank, size, _, _ in classes),
        backends=tuple(
            Backend(name=f"h200-{name}", model=name, hardware="h200", rates=rates(decode, prefill))
            for name, _, _, decode, prefill in classes
        ),
        version=version,
    )


def pair(
    skill: str = "plan",
    model: str = LARGE,
    policy: Policy | str = "none",
    quality: float = 0.8,
    *,
    output_tokens: float = 200,
    prompt_tokens: float = 100,
    rejects: float = 0.25,
    verifier_model: str | None = None,
    thinking: bool = False,
) -> PairProfile:
    """Every role of the policy with the same demand; conditional stages happen with probability `rejects`."""
    graph = POLICIES[policy] if isinstance(policy, str) else policy
    return PairProfile(
        skill=skill,
        model=model,
        policy=graph.name,
        quality=quality,
        samples=100,
        interval=(0.0, 1.0),
        prompt_tokens=prompt_tokens,
        verifier_model=verifier_model,
        thinking=thinking,
        calls=tuple(
            CallDemand(
                role=call.role,
                prompt_tokens=50 if call.reads else 0,
                output_tokens=output_tokens if call.answers == "output" else 20,
                probability=rejects if stage.when == "rejected" else 1.0,
            )
            for stage in graph.stages
            for call in stage.calls
        ),
    )


def profile_set(pairs: Sequence[PairProfile], vulnerability: float = 0.4, version: str = "p1") -> ProfileSet:
    """One vulnerability for every node."""
    cell = VulnerabilityCell(role="source", skill="any", fan_in="0", pairs=1000, flips=round(1000 * vulnerability))
    return ProfileSet(version=version, pairs=tuple(pairs), vulnerability=VulnerabilityTable(cells=(cell,)))


def llm(node_id: str, skill: str = "plan", **options: object) -> LlmNode:
    return LlmNode(id=node_id, skill=skill, prompt="...", **options)  # type: ignore[arg-type]  # test shorthand


def tool(node_id: str, expected_s: float = 1.0) -> ToolNode:
    return ToolNode(id=node_id, tool="template", expected_s=expected_s)


JSON_OUTPUT = OutputSpec(format="json")


def workflow(*nodes: LlmNode | ToolNode, edges: Sequence[tuple[str, str]] = (), output: str | None = None) -> Workflow:
    return Workflow(name="case", nodes=nodes, edges=tuple(edges), output=output or nodes[-1].id)


def coefficients_of(problem: PlanningProblem) -> Coefficients:
    coefficients = problem.coefficients
    assert not isinstance(coefficients, Infeasible), coefficients.text
    return coefficients


def planned(plan: Plan | Infeasible) -> Plan:
    assert isinstance(plan, Plan), plan.text
    return plan


def bundled(bundle: Bundle | Infeasible) -> Bundle:
    assert isinstance(bundle, Bundle), bundle.text
    return bundle


def all_choices(coefficients: Coefficients) -> Iterator[Choice]:
    """Every assignment there is."""
    ids = list(coefficients.nodes)
    for columns in product(*(coefficients.nodes[node_id].columns for node_id in ids)):
        yield dict(zip(ids, columns, strict=True))


def brute_force(coefficients: Coefficients, level: float) -> Evaluation:
    return max((evaluate(coefficients, c, level) for c in all_choices(coefficients)), key=lambda e: e.objective)


def longest_path_by_enumeration(workflow: Workflow, durations_s: Mapping[str, float]) -> float:
    """The longest path, found by walking every path."""

    def from_node(node_id: str) -> float:
        below = [from_node(after) for after in workflow.successors[node_id]]
        return durations_s[node_id] + max(below, default=0.0)

    return max(from_node(node.id) for node in workflow.nodes)


@st.composite
def workflows(draw: st.DrawFn, max_nodes: int = 4, min_nodes: int = 1) -> Workflow:
    """Random DAGs of LLM and tool nodes with at least one LLM node."""
    count = draw(st.integers(min_nodes, max_nodes))
    kinds = draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any))
    nodes = [
        llm(f"n{i}", draw(st.sampled_from(["plan", "code"])), max_tokens=draw(st.sampled_from([64, 1024])))
        if is_llm
        else tool(f"n{i}", draw(st.sampled_from([0.0, 0.5, 3.0])))
        for i, is_llm in enumerate(kinds)
    ]
    possible = [(f"n{i}", f"n{j}") for j in range(count) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    return workflow(*nodes, edges=edges, output=f"n{draw(st.integers(0, count - 1))}")


POLICIES_IN_CASES = ("none", "self_check", "multi_critique")


@st.composite
def problems(draw: st.DrawFn, max_nodes: int = 4, min_nodes: int = 1) -> PlanningProblem:
    """Random problems of two classes x three policies (six columns a node) with random profiles and weights."""
    catalog = h200_catalog()
    small_fleet = Catalog(models=catalog.models[1:], backends=catalog.backends[1:], version="two")
    qualities = st.floats(0.3, 1.0).map(lambda q: round(q, 3))
    pairs = [
        pair(skill, name, policy, draw(qualities), output_tokens=draw(st.integers(20, 900)))
        for skill in ("plan", "code")
        for name in (MIDDLE, LARGE)
        for policy in POLICIES_IN_CASES
    ]
    return PlanningProblem(
        workflow=draw(workflows(max_nodes, min_nodes)),
        catalog=small_fleet,
        profiles=profile_set(pairs, draw(st.floats(0.0, 1.0))),
        effort=draw(st.floats(0.0, 1.0)),
        demand=draw(st.sampled_from(["work", "tau"])),
    )


def linked_problem(count: int, steps: Sequence[int] = (2, 3)) -> PlanningProblem:
    """`count` nodes that all differ, each linked to those `steps` further on: many partial plans stay open."""
    pairs = [
        pair(f"s{i}", name, policy, 0.5 + 0.4 * ((7 * i + 3 * p + 11 * m) % 10) / 10, output_tokens=90 + 53 * (i % 7))
        for i in range(count)
        for m, name in enumerate((MIDDLE, LARGE))
        for p, policy in enumerate(("none", "self_check", "self_refine", "multi_critique", "debate"))
    ]
    edges = [(f"n{i}", f"n{i + step}") for i in range(count) for step in steps if i + step < count]
    return PlanningProblem(
        workflow=workflow(*(llm(f"n{i}", f"s{i}") for i in range(count)), edges=edges),
        catalog=h200_catalog(),
        profiles=profile_set(pairs),
        weights=Weights(lambda_l=0.4),
    )


def measured(profile: PairProfile, samples: int) -> PairProfile:
    """The pair as `samples` independent trials measure it."""
    interval = wilson_interval(profile.quality * samples, samples)
    return replace(profile, samples=samples, interval=interval)


def certain(profile: PairProfile) -> PairProfile:
    """The pair with an interval of no width."""
    return replace(profile, interval=(profile.quality, profile.quality))


def with_pairs(problem: PlanningProblem, pairs: Iterable[PairProfile]) -> PlanningProblem:
    """The problem with other pairs profiled; nothing that was computed of it is kept."""
    return replace(problem, profiles=replace(problem.profiles, pairs=tuple(pairs)))


@st.composite
def uncertain_problems(draw: st.DrawFn, max_nodes: int = 3) -> PlanningProblem:
    """Random problems whose cells were measured from 3 to 1,000 times, some with an interval of another kind."""
    problem = draw(problems(max_nodes))
    samples = st.sampled_from([3, 20, 150, 1000])
    pairs = [measured(p, draw(samples)) if draw(st.integers(0, 3)) else p for p in problem.profiles.pairs]
    cells = [
        VulnerabilityCell(role="source", skill="plan", fan_in="0", pairs=4, flips=0),
        VulnerabilityCell(role="intermediate", skill="code", fan_in="1-2", pairs=30, flips=0),
        VulnerabilityCell(role="terminal", skill="plan", fan_in="1-2", pairs=9, flips=0),
        VulnerabilityCell(role="terminal", skill="code", fan_in="0", pairs=1, flips=0),
    ]
    table = VulnerabilityTable(cells=tuple(replace(c, flips=draw(st.integers(0, c.pairs))) for c in cells))
    return replace(problem, profiles=replace(problem.profiles, pairs=tuple(pairs), vulnerability=table))


def best_objective(coefficients: Coefficients, level: float) -> float:
    """The objective of the best of all assignments, as `brute_force`; every path is listed once, which is faster."""
    ids = list(coefficients.nodes)
    paths = [
        (sum(coefficients.fixed_s.get(n, 0.0) for n in path), [ids.index(n) for n in path if n in coefficients.nodes])
        for path in all_paths(coefficients.problem.workflow)
    ]
    options = [
        [(coefficients.gain(node, column, level), column.duration_s) for column in node.columns]
        for node in coefficients.nodes.values()
    ]
    price, best = coefficients.latency_price, float("-inf")
    for points in product(*options):
        longest = max([fixed_s + sum([points[i][1] for i in path]) for fixed_s, path in paths])
        best = max(best, sum([point[0] for point in points]) - price * longest)
    return best


def all_paths(workflow: Workflow) -> Iterator[tuple[str, ...]]:
    """Every path from a node without predecessors to one without successors."""
    open_paths: list[tuple[str, ...]] = [(node.id,) for node in workflow.nodes if not workflow.predecessors[node.id]]
    while open_paths:
        path = open_paths.pop()
        after = workflow.successors[path[-1]]
        open_paths.extend((*path, node_id) for node_id in after)
        if not after:
            yield path


CAP_FACTORS = (0.8, 0.99, 1.0, 1.0, 1.05)
"""A cap is what some plan uses of it times one of these: often exactly reached, often out of reach."""


def used(coefficients: Coefficients, choice: Choice) -> dict[str, float]:
    """What a plan uses of every cap there is, by the name of its limit."""
    value = evaluate(coefficients, choice, 0.0)
    found = {
        "max_cost": value.cost,
        "max_calls": sum(sum(column.calls.values()) for column in choice.values()),
        "max_tokens": sum(column.tokens for column in choice.values()),
        "max_makespan_s": value.makespan_s,
        "min_quality": value.estimated_quality,
    }
    for model in coefficients.problem.catalog.models:
        found[f"work_s.{model.name}"] = value.demand.get(model.name, 0.0)
        found[f"calls.{model.name}"] = sum(column.calls.get(model.name, 0) for column in choice.values())
    return found


def keeps_limits(coefficients: Coefficients, choice: Choice, limits: Limits) -> bool:
    """Every limit from the numbers of the whole plan, pins and prohibitions included."""
    amounts = used(coefficients, choice)
    for name, asked in limits.values().items():
        kind, _, key = name.partition(".")
        if kind in ("pin", "forbid"):
            columns = [column for node_id, column in choice.items() if key in ("*", node_id)]
            fits = [any(fnmatch(_triple(column), _padded(p)) for p in asked) for column in columns]
            if not all(fit == (kind == "pin") for fit in fits):
                return False
        elif name == "min_quality":
            if amounts[name] < asked * (1 - 1e-9):
                return False
        elif amounts[name] > asked * (1 + 1e-9):
            return False
    return True


def _triple(column: Column) -> str:
    chosen = column.implementation
    return f"{chosen.model}/{chosen.policy}/{chosen.backend}"


def _padded(pattern: str) -> str:
    return "/".join([*pattern.split("/"), "*", "*"][:3])


@st.composite
def limits_for(draw: st.DrawFn, problem: PlanningProblem, max_limits: int = 4) -> Limits:
    """Random limits around what a random plan uses; pins and prohibitions by model, policy or both."""
    coefficients = coefficients_of(problem)
    choice = {n: draw(st.sampled_from(node.columns)) for n, node in coefficients.nodes.items()}
    amounts = used(coefficients, choice)
    node_names = ["*", *coefficients.nodes]
    names = [*amounts, *(f"{kind}.{node}" for kind in ("pin", "forbid") for node in node_names)]
    texts = []
    for name in draw(st.lists(st.sampled_from(names), max_size=max_limits, unique=True)):
        if name.startswith(("pin.", "forbid.")):
            texts.append(f"{name}={draw(st.sampled_from(PATTERNS_IN_CASES))}")
        else:
            asked = amounts[name] * draw(st.sampled_from(CAP_FACTORS))
            whole = name == "max_calls" or name.startswith("calls.")
            texts.append(f"{name}={round(asked) if whole else min(1.0, asked) if name == 'min_quality' else asked!r}")
    return parse_limits(texts)


PATTERNS_IN_CASES = (LARGE, MIDDLE, "*/none", "*/self_check", f"{LARGE}/multi_critique", f"*/*/h200-{MIDDLE}")


@st.composite
def limited_problems(draw: st.DrawFn, max_nodes: int = 4, max_limits: int = 4) -> tuple[PlanningProblem, Limits]:
    """A random problem without limits, and limits for it."""
    problem = draw(problems(max_nodes))
    return problem, draw(limits_for(problem, max_limits))


def best_within(coefficients: Coefficients, level: float, limits: Limits) -> Evaluation | None:
    """Brute force: the best plan of the unrestricted columns that keeps the limits."""
    kept = (choice for choice in all_choices(coefficients) if keeps_limits(coefficients, choice, limits))
    return max((evaluate(coefficients, c, level) for c in kept), key=lambda e: e.objective, default=None)
