"""Seeded planning problems for benchmarks: at most 11 nodes, 24 implementations a node (ours; sizes: paper 7.6).

Three classes with one backend each, eight policies each. The largest class has no larger one to cross-check it: here
its verdict comes from itself, so that all classes have eight policies. Profiles are the shipped, illustrative ones.
Larger sizes, and three backends a class with 72 implementations, are for the table of how cost grows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random

from fleet.catalogs import versioned_catalog
from fleet.demo import demo_catalog
from fleet.serving.catalog import Catalog
from planner.compiler.policies import CROSS_CHECK, POLICIES, Policy
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import ProfileSet
from planner.compiler.weights import PRESETS
from planner.compiler.workflow import LlmNode, Node, OutputSpec, ToolNode, Workflow
from planner.data import load_profiles
from planner.importers.problems import WorkflowRejected
from planner.importers.registry import import_workflow

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
    catalog: Catalog

    def problem(self) -> PlanningProblem:
        return PlanningProblem(
            workflow=replace(self.workflow),
            catalog=self.catalog,
            profiles=replace(self.profiles),
            policies=BENCH_POLICIES,
            weights=PRESETS[self.preset],
        )


def instances(seed: int = 0, count: int = INSTANCES, max_nodes: int = MAX_NODES) -> tuple[Instance, ...]:
    """`count` problems of 3 to `max_nodes` nodes; shapes and presets in turn."""
    rng = Random(seed)  # noqa: S311  # seeded on purpose
    return _instances(rng, tuple(SHAPES), [rng.randint(3, max_nodes) for _ in range(count)], demo_catalog())


def large_instances(
    seed: int, count: int, nodes: int, backends: int = 1, width: int | None = None
) -> tuple[Instance, ...]:
    """`count` problems of `nodes` nodes with 24 implementations per backend of a class; `width`: of every layer."""
    rng = Random(f"{seed}/{nodes}/{backends}/{width}")  # noqa: S311  # seeded on purpose
    found = _instances(rng, GENERAL_SHAPES, [nodes] * count, bench_catalog(backends))
    if width is None:
        return found
    edges = [tuple((f"n{a}", f"n{b}") for a, b in _layers(rng, [width] * (nodes // width))) for _ in found]
    return tuple(
        replace(instance, shape=f"layers of {width}", workflow=replace(instance.workflow, edges=layered))
        for instance, layered in zip(found, edges, strict=True)
    )


def real_instances(folder: Path, max_nodes: int = MAX_NODES) -> tuple[Instance, ...]:
    """The workflow files below a folder that dyserve can import, with every implementation legal for every LLM node.

    Files that are no workflow, have no LLM node, or more than `max_nodes` nodes are left out; none when there is no
    such folder.
    """
    profiles, presets = bench_profiles(), list(PRESETS)
    found = [workflow for path in sorted(folder.rglob("*")) if (workflow := _read(path, profiles, max_nodes))]
    return tuple(
        Instance(
            shape="real", workflow=workflow, preset=presets[i % len(presets)], profiles=profiles, catalog=demo_catalog()
        )
        for i, workflow in enumerate(found)
    )


def _instances(rng: Random, shapes: Sequence[str], sizes: Sequence[int], catalog: Catalog) -> tuple[Instance, ...]:
    profiles, presets = bench_profiles(), list(PRESETS)
    return tuple(
        Instance(
            shape=shapes[i % len(shapes)],
            workflow=_workflow(rng, shapes[i % len(shapes)], size, profiles),
            preset=presets[i % len(presets)],
            profiles=profiles,
            catalog=catalog,
        )
        for i, size in enumerate(sizes)
    )


def _read(path: Path, profiles: ProfileSet, max_nodes: int) -> Workflow | None:
    if path.suffix not in (".json", ".yaml", ".yml") or not path.is_file():
        return None
    try:
        workflow = import_workflow(path.read_bytes(), filename=path.name).workflow
    except WorkflowRejected:
        return None
    if not workflow.llm_nodes or len(workflow.nodes) > max_nodes:
        return None
    return replace(workflow, nodes=tuple(_unrestricted(node, profiles) for node in workflow.nodes))


def _unrestricted(node: Node, profiles: ProfileSet) -> Node:
    if not isinstance(node, LlmNode):
        return node
    skill = node.skill if node.skill in profiles.skills else profiles.skills[0]
    return replace(node, skill=skill, models=None, policies=None, thinking=False, output=JSON)


def bench_catalog(backends: int) -> Catalog:
    """The demo fleet with `backends` pools a class, each some percent slower than the one before."""
    demo = demo_catalog()
    return versioned_catalog(
        demo.models,
        (
            replace(backend, name=f"{backend.name}-{i}", rates=backend.rates.scaled(1 - 0.07 * i))
            for backend in demo.backends
            for i in range(backends)
        ),
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
    widths: list[int] = []
    while sum(widths) < count:
        widths.append(min(rng.randint(1, 4), count - sum(widths)))
    return _layers(rng, widths)


def _layers(rng: Random, widths: Sequence[int]) -> Edges:
    """Layers of these widths; every node reads one or two of the layer before."""
    first = [sum(widths[:i]) for i in range(len(widths))]
    layers = [range(start, start + width) for start, width in zip(first, widths, strict=True)]
    return [
        (before, node)
        for above, below in pairwise(layers)
        for node in below
        for before in rng.sample(above, rng.randint(1, min(2, len(above))))
    ]


def _irregular(rng: Random, count: int) -> Edges:
    return [(i, j) for j in range(count) for i in range(j) if rng.random() < 2.2 / count]


def _walkthrough(rng: Random, count: int) -> Edges:
    """The paper's (section 6): two branches, a tool after both, and an answer; whatever the count."""
    return [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]


SHAPES: Mapping[str, Callable[[Random, int], Edges]] = {
    "chain": _chain,
    "fork_join": _fork_join,
    "layered": _layered,
    "irregular": _irregular,
    "walkthrough": _walkthrough,
}
GENERAL_SHAPES = tuple(shape for shape in SHAPES if shape != "walkthrough")


def _workflow(rng: Random, shape: str, count: int, profiles: ProfileSet) -> Workflow:
    """Every eighth node or so is a tool; the first never is, so that there is something to plan."""
    if shape == "walkthrough":
        count = 5

    def node(i: int) -> Node:
        if i == 3 if shape == "walkthrough" else i and rng.random() < 0.125:
            return ToolNode(id=f"n{i}", tool="template", expected_s=rng.choice([0.3, 1.0, 4.0]))
        skill, tokens = rng.choice(profiles.skills), rng.choice([256, 512, 1024, 2048])
        return LlmNode(id=f"n{i}", skill=skill, prompt="...", max_tokens=tokens, output=JSON)

    return Workflow(
        name=f"{shape}-{count}",
        nodes=tuple(map(node, range(count))),
        edges=tuple((f"n{a}", f"n{b}") for a, b in SHAPES[shape](rng, count)),
        output=f"n{count - 1}",
    )
