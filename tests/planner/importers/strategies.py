"""Hypothesis strategies for JSON values, documents that nearly are workflows, and workflows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from planner.compiler.policies import policy_names
from planner.compiler.workflow import InputSpec, LlmNode, Node, OutputSpec, ToolNode, Workflow
from planner.importers.native import merged_edges

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,8}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda members: st.lists(members, max_size=4) | st.dictionaries(texts, members, max_size=4),
    max_leaves=12,
)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Workflows of 1 to 6 nodes whose templates refer to earlier nodes and to inputs."""
    inputs = draw(st.lists(names, unique=True, max_size=3))
    ids = draw(st.lists(names, unique=True, min_size=1, max_size=6))
    nodes: list[Node] = [draw(_nodes(name, ids[:index], inputs)) for index, name in enumerate(ids)]
    pairs = [(a, b) for i, a in enumerate(ids) for b in ids[i + 1 :]]
    explicit = draw(st.lists(st.sampled_from(pairs), max_size=4)) if pairs else []
    return Workflow(
        name=draw(texts.filter(bool)),
        description=draw(texts),
        inputs=tuple(draw(_inputs(name)) for name in inputs),
        nodes=tuple(nodes),
        edges=merged_edges(tuple(nodes), explicit),
        output=draw(st.sampled_from(ids)),
        deadline_s=draw(st.none() | st.floats(0.1, 1000)),
    )


@st.composite
def _inputs(draw: st.DrawFn, name: str) -> InputSpec:
    default = draw(st.none() | texts)
    return InputSpec(
        name=name,
        required=draw(st.booleans()) if default is None else False,
        default=default,
        description=draw(texts),
    )


@st.composite
def _nodes(draw: st.DrawFn, name: str, earlier: list[str], inputs: list[str]) -> Node:
    references = [f"{{{{ nodes.{other}.output }}}}" for other in earlier] + [f"{{{{ inputs.{i} }}}}" for i in inputs]
    plain = texts.map(lambda text: text.replace("{{", "").replace("{", ""))
    template = st.lists(plain | st.sampled_from([*references, "{{ '{{' }}"]), min_size=1, max_size=4).map("".join)
    if draw(st.booleans()):
        return ToolNode(
            id=name,
            tool="template",
            title=draw(texts),
            arguments={"template": draw(template), "more": [draw(template), 1, None]},
            timeout_s=draw(st.floats(0.1, 100)),
            expected_s=draw(st.floats(0, 10)),
            effect=draw(st.sampled_from(["pure", "idempotent", "effectful"])),
        )
    return LlmNode(
        id=name,
        skill=draw(st.sampled_from(["plan", "code", "my-skill"])),
        prompt=draw(template.filter(bool)),
        system=draw(template),
        title=draw(texts),
        max_tokens=draw(st.integers(1, 5000)),
        temperature=draw(st.none() | st.floats(0, 2)),
        thinking=draw(st.booleans()),
        models=draw(st.none() | st.just(("qwen3.5-9b",))),
        policies=draw(st.none() | st.just(policy_names())),
        output=draw(st.sampled_from([OutputSpec(), OutputSpec(format="json", schema={"type": "object"})])),
        reexecute=draw(st.sampled_from(["safe", "never"])),
    )


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """`document` with a few of its values replaced, removed or renamed."""
    for _ in range(draw(st.integers(1, 4))):
        document = _mutate(draw, document)
    return document


def _mutate(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value)))
        changed = dict(value)
        action = draw(st.sampled_from(["inside", "inside", "inside", "remove", "rename"]))
        member = changed.pop(key)
        if action == "inside":
            changed[key] = _mutate(draw, member)
        elif action == "rename":
            changed[draw(texts)] = member
        return changed
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        index = draw(st.integers(0, len(value) - 1))
        action = draw(st.sampled_from(["inside", "inside", "remove", "repeat"]))
        if action == "inside":
            return [*value[:index], _mutate(draw, value[index]), *value[index + 1 :]]
        return value[:index] + ([*value[index:], value[index]] if action == "repeat" else value[index + 1 :])
    return draw(json_values | st.just("{{ nodes.write.output }}"))
