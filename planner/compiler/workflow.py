"""The workflow G=(V,E) as a value: nodes, edges and the graph facts that compiler and engine need (paper 3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import Any, Literal

OutputFormat = Literal["text", "json"]
Effect = Literal["pure", "idempotent", "effectful"]
Role = Literal["source", "intermediate", "terminal"]
InputType = Literal["string", "number", "integer", "boolean", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    name: str
    type: InputType = "string"
    required: bool = True
    default: Any = None
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """`json` outputs are validated against `schema` (a JSON Schema, or None for any JSON)."""

    format: OutputFormat = "text"
    schema: Mapping[str, Any] | None = None

    @property
    def comparable(self) -> bool:
        """Whether two outputs can be compared for a majority vote (a choice, a number, JSON)."""
        return self.format == "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmNode:
    """An LLM operation. `models` and `policies` restrict the legal implementations; None means all."""

    id: str
    skill: str
    prompt: str
    system: str = ""
    title: str = ""
    max_tokens: int = 1024
    temperature: float | None = None
    thinking: bool = False
    models: tuple[str, ...] | None = None
    policies: tuple[str, ...] | None = None
    output: OutputSpec = OutputSpec()
    reexecute: Literal["safe", "never"] = "safe"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNode:
    """A tool invocation. `arguments` is a JSON object whose strings may hold references; times in seconds.

    Raises ValueError on an `expected_s` that is negative or not finite.
    """

    id: str
    tool: str
    title: str = ""
    arguments: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    timeout_s: float = 60.0
    expected_s: float = 1.0
    effect: Effect = "pure"
    anchor: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.expected_s < inf:
            raise ValueError(f"expected_s of tool {self.id} must be finite and not negative, got {self.expected_s}")


Node = LlmNode | ToolNode


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """A finite DAG. Nodes keep file order, which every tie in the planner follows.

    Raises ValueError when ids repeat, an edge names an unknown node, the output is unknown or there is a cycle;
    importers report those with line and pointer before they get here.
    """

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]
    output: str
    inputs: tuple[InputSpec, ...] = ()
    description: str = ""
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError("a workflow needs at least one node")
        ids = [node.id for node in self.nodes]
        if len(set(ids)) != len(ids):
            raise ValueError("node ids must be unique")
        known = set(ids)
        for source, target in self.edges:
            if source not in known or target not in known:
                raise ValueError(f"edge {source} -> {target} names an unknown node")
        if self.output not in known:
            raise ValueError(f"output node {self.output} does not exist")
        if len(self.topological_order) != len(self.nodes):
            raise ValueError("the workflow has a cycle")

    @cached_property
    def by_id(self) -> Mapping[str, Node]:
        return MappingProxyType({node.id: node for node in self.nodes})

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each node in file order."""
        return MappingProxyType({node.id: i for i, node in enumerate(self.nodes)})

    @cached_property
    def predecessors(self) -> Mapping[str, tuple[str, ...]]:
        return self._neighbours((target, source) for source, target in self.edges)

    @cached_property
    def successors(self) -> Mapping[str, tuple[str, ...]]:
        return self._neighbours(self.edges)

    @cached_property
    def topological_order(self) -> tuple[str, ...]:
        """Kahn's order, ties in file order; shorter than `nodes` when there is a cycle."""
        waiting = {node.id: len(self.predecessors[node.id]) for node in self.nodes}
        ready = [node.id for node in self.nodes if waiting[node.id] == 0]
        order: list[str] = []
        while ready:
            node_id = ready.pop(0)
            order.append(node_id)
            for successor in self.successors[node_id]:
                waiting[successor] -= 1
                if waiting[successor] == 0:
                    ready.append(successor)
        return tuple(order)

    @cached_property
    def llm_nodes(self) -> tuple[LlmNode, ...]:
        return tuple(node for node in self.nodes if isinstance(node, LlmNode))

    @cached_property
    def tool_nodes(self) -> tuple[ToolNode, ...]:
        return tuple(node for node in self.nodes if isinstance(node, ToolNode))

    @cached_property
    def reachable(self) -> Mapping[str, frozenset[str]]:
        """R(n): n and every node reachable from it."""
        result: dict[str, frozenset[str]] = {}
        for node_id in reversed(self.topological_order):
            below = (result[successor] for successor in self.successors[node_id])
            result[node_id] = frozenset({node_id}).union(*below)
        return MappingProxyType(result)

    def role(self, node_id: str) -> Role:
        """Role on the full DAG: output or without successors = terminal, else without predecessors = source."""
        if node_id == self.output or not self.successors[node_id]:
            return "terminal"
        return "intermediate" if self.predecessors[node_id] else "source"

    def reaches_output(self, node_id: str) -> bool:
        return self.output in self.reachable[node_id]

    def _neighbours(self, pairs: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {node.id: {} for node in self.nodes}
        for node_id, other in pairs:
            if node_id in found:
                found[node_id][other] = None
        return MappingProxyType({node_id: tuple(others) for node_id, others in found.items()})
