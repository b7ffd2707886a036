"""Seeded planning problems for benchmarks: at most 11 nodes, 24 implementations a node (ours; sizes: paper 7.6).

Three classes with one backend each, eight policies each. The largest class has no larger one to cross-check it: here
its verdict comes from itself, so that all classes have eight policies. Profiles are the shipped, illustrative ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from fleet.demo import demo_catalog
from planner.compiler.policies import CROSS_CHECK, POLICIES, Policy
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import ProfileSet
from planner.compiler.weights import PRESETS
from planner.compiler.workflow import LlmNode, Node, OutputSpec, ToolNode, Workflow
from planner.data import load_profiles

INSTANCES = 92
MAX_NODES = 11
SELF_CROSS_CHECK = replace(
    CROSS_CHECK,
    name="cross_check_self",
    title="Cross-check by the same class",
    requires=frozenset(),
    stages=tuple(
        replace(stage, calls=tuple(replace(call, model="base") for call in stage.calls)) for stage in CROSS_CHECK.stages
    ),
)
BENCH_POLICIES: Mapping[str, Policy] = {**POLICIES, SELF_CROSS_CHECK.name: SELF_CROSS_CHECK}
JSON = OutputSpec(format="json")
Edges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One seeded problem by its shape; `problem()` makes it anew, with nothing computed yet."""

    shape: str
    workflow: Workflow
    preset: str
    profiles: ProfileSet

    def problem(self) -> PlanningProblem:
        return PlanningProblem(
            workflow=replace(self.workflow),
            catalog=demo_catalog(),
            profiles=replace(self.profiles),
            policies=BENCH_POLICIES,
            weights=PRESETS[self.preset],
        )


def instances(seed: int = 0, count: int = INSTANCES, max_nodes: int = MAX_NODES) -> tuple[Instance, ...]:
    """`count` problems of 3 to `max_nodes` nodes; shapes and presets in turn."""
    rng = Random(seed)  # noqa: S311  # seeded on purpose
    profiles = bench_profiles()
    shapes, presets = list(SHAPES), list(PRESETS)
    return tuple(
        Instance(
            shape=shapes[i % len(shapes)],
            workflow=_workflow(rng, shapes[i % len(shapes)], rng.randint(3, max_nodes), profiles),
            preset=presets[i % len(presets)],
            profiles=profiles,
        )
        for i in range(count)
    )


def bench_profiles() -> ProfileSet:
    """The shipped profiles, and for the largest class its own cross-check: self-check, a little better."""
    shipped = load_profiles()
    largest = demo_catalog().served_models()[-1].name
    checked = (pair for pair in shipped.pairs if (pair.model, pair.policy) == (largest, "self_check"))
    added = tuple(
        replace(pair, policy=SELF_CROSS_CHECK.name, quality=quality, interval=(pair.interval[0], max(high, quality)))
        for pair in checked
        for quality, high in ((pair.quality + 0.2 * (1 - pair.quality), pair.interval[1]),)
    )
    return replace(shipped, pairs=(*shipped.pairs, *added))


# --- Shapes ----------------------------------------------------------------------------------------------------------


def _chain(rng: Random, count: int) -> Edges:
    return [(i, i + 1) for i in range(count - 1)]


def _fork_join(rng: Random, count: int) -> Edges:
    return [edge for i in range(1, count - 1) for edge in ((0, i), (i, count - 1))]


def _layered(rng: Random, count: int) -> Edges:
    layers: list[list[int]] = []
    first = 0
    while first < count:
        width = min(rng.randint(1, 4), count - first)
        layers.append(list(range(first, first + width)))
        first += width
    return [
        (before, node)
        for above, below in pairwise(layers)
        for node in below
        for before in rng.sample(above, rng.randint(1, min(2, len(above))))
    ]


def _irregular(rng: Random, count: int) -> Edges:
    return [(i, j) for j in range(count) for i in range(j) if rng.random() < 2.2 / count]


SHAPES: Mapping[str, Callable[[Random, int], Edges]] = {
    "chain": _chain,
    "fork_join": _fork_join,
    "layered": _layered,
    "irregular": _irregular,
}


def _workflow(rng: Random, shape: str, count: int, profiles: ProfileSet) -> Workflow:
    """Every eighth node or so is a tool; the first never is, so that there is something to plan."""

    def node(i: int) -> Node:
        if i and rng.random() < 0.125:
            return ToolNode(id=f"n{i}", tool="template", expected_s=rng.choice([0.3, 1.0, 4.0]))
        skill, tokens = rng.choice(profiles.skills), rng.choice([256, 512, 1024, 2048])
        return LlmNode(id=f"n{i}", skill=skill, prompt="...", max_tokens=tokens, output=JSON)

    return Workflow(
        name=f"{shape}-{count}",
        nodes=tuple(map(node, range(count))),
        edges=tuple((f"n{a}", f"n{b}") for a, b in SHAPES[shape](rng, count)),
        output=f"n{count - 1}",
    )
