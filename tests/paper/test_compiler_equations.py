"""Eq. 2, reach weight, residual risk and vulnerability with back-off, on numbers small enough to check by hand."""

from __future__ import annotations

import pytest

from fleet.serving.catalog import Backend
from planner.compiler.coefficients import reach_weight
from planner.compiler.durations import Server, cost, place_calls, tau, work
from planner.compiler.policies import POLICIES
from planner.compiler.problem import PlanningProblem
from planner.compiler.profile import CallDemand, PairProfile
from planner.compiler.vulnerability import VulnerabilityCell, VulnerabilityTable, vulnerability
from tests.planner.compiler.cases import (
    LARGE,
    coefficients_of,
    h200_catalog,
    llm,
    model,
    pair,
    profile_set,
    rates,
    tool,
    workflow,
)


def server(name: str, decode: float, price: float) -> Server:
    served = model(name, 1, price * 1000)
    backend = Backend(name=f"b-{name}", model=name, hardware="h", rates=rates(decode, prefill=1000, base_s=0.5))
    return Server(model=served, backend=backend)


def demand(role: str, prompt: float, output: float, probability: float = 1.0) -> CallDemand:
    return CallDemand(role=role, prompt_tokens=prompt, output_tokens=output, probability=probability)


def profile(policy: str, *calls: CallDemand, verifier: str | None = None) -> PairProfile:
    return PairProfile(
        skill="s", model="m", policy=policy, quality=0.8, samples=10, interval=(0, 1), prompt_tokens=0, calls=calls,
        verifier_model=verifier,
    )  # fmt: skip


def test_eq2_serial_stages_weighted_by_their_probability() -> None:
    """self_check: 100 + 10 always, 90 tokens in a quarter of the cases; every call 0.5 s + 1 ms a prompt token."""
    stages = place_calls(
        POLICIES["self_check"],
        profile("self_check", demand("generate", 0, 100), demand("verdict", 100, 10), demand("revise", 200, 90, 0.25)),
        base=server("m", 10, 1),
        verifier=None,
        prompt_tokens=500,
        max_tokens=1024,
    )
    generate, verdict, revise = 0.5 + 0.5 + 10, 0.5 + 0.6 + 1, 0.5 + 0.7 + 9
    assert tau(stages) == pytest.approx(generate + verdict + 0.25 * revise)
    assert work(stages) == pytest.approx({"m": generate + verdict + 0.25 * revise})
    assert cost(stages) == pytest.approx((500 + 100) + (600 + 10) + 0.25 * (700 + 90))


def test_eq2_parallel_calls_count_once_in_time_and_each_in_work() -> None:
    stages = place_calls(
        POLICIES["multi_critique"],
        profile("multi_critique", demand("generate", 0, 100), demand("critique", 0, 50), demand("revise", 0, 80)),
        base=server("m", 10, 1),
        verifier=None,
        prompt_tokens=0,
        max_tokens=1024,
    )
    assert tau(stages) == pytest.approx(10.5 + 5.5 + 8.5)
    assert work(stages) == pytest.approx({"m": 10.5 + 3 * 5.5 + 8.5})


def test_a_verifier_of_another_class_is_priced_on_its_own_backend() -> None:
    stages = place_calls(
        POLICIES["cross_check"],
        profile(
            "cross_check",
            demand("generate", 0, 100),
            demand("verdict", 0, 10),
            demand("revise", 0, 100, 0.5),
            verifier="big",
        ),
        base=server("m", 10, 1),
        verifier=server("big", 5, 3),
        prompt_tokens=0,
        max_tokens=1024,
    )
    assert work(stages) == pytest.approx({"m": 10.5 + 0.5 * 10.5, "big": 2.5})
    assert tau(stages) == pytest.approx(10.5 + 2.5 + 0.5 * 10.5)
    assert cost(stages) == pytest.approx(100 * 1 + 10 * 3 + 0.5 * 100)


def test_output_tokens_never_exceed_the_nodes_limit() -> None:
    stages = place_calls(
        POLICIES["none"],
        profile("none", demand("generate", 0, 100)),
        base=server("m", 10, 1),
        verifier=None,
        prompt_tokens=0,
        max_tokens=40,
    )
    assert tau(stages) == pytest.approx(0.5 + 4)


def test_reach_weight() -> None:
    """rho(n) = 1 + beta e (|R(n)| - 1) / (|V| - 1): all of the graph below the source, nothing below the end."""
    chain = workflow(llm("a"), tool("b"), llm("c"), edges=[("a", "b"), ("b", "c")])
    weights = [reach_weight(chain, name, beta=2.0, effort=0.5) for name in ("a", "b", "c")]
    assert weights == [2.0, 1.5, 1.0]
    assert reach_weight(chain, "a", beta=2.0, effort=0.0) == 1.0
    assert reach_weight(workflow(llm("only")), "only", beta=2.0, effort=1.0) == 1.0


def test_residual_risk_is_vulnerability_times_error_rate() -> None:
    problem = PlanningProblem(
        workflow=workflow(llm("a")),
        catalog=h200_catalog(),
        profiles=profile_set([pair(quality=0.9, model=LARGE)], vulnerability=0.3),
    )
    node = coefficients_of(problem).nodes["a"]
    assert node.vulnerability == pytest.approx(0.3)
    assert node.columns[0].error_rate == pytest.approx(0.1)
    assert node.residual_risk(node.columns[0]) == pytest.approx(0.03)


TABLE = VulnerabilityTable(
    cells=(
        VulnerabilityCell(role="intermediate", skill="reasoning", fan_in="1-2", pairs=100, flips=39),
        VulnerabilityCell(role="intermediate", skill="tool", fan_in="1-2", pairs=100, flips=18),
        VulnerabilityCell(role="intermediate", skill="tool", fan_in="3+", pairs=4, flips=4),
        VulnerabilityCell(role="terminal", skill="answer", fan_in="1-2", pairs=96, flips=64),
    ),
    pseudo_pairs=20,
)


def test_vulnerability_back_off_shrinks_each_level_towards_the_next() -> None:
    """Every level by hand: all -> role -> (role, fan-in) -> (role, skill) -> (role, skill, fan-in)."""
    everything = 125 / 300
    role = (61 + 20 * everything) / (204 + 20)
    role_fan_in = (4 + 20 * role) / (4 + 20)
    role_skill = (22 + 20 * role_fan_in) / (104 + 20)
    cell = (4 + 20 * role_skill) / (4 + 20)
    assert TABLE.lookup("intermediate", "tool", "3+") == pytest.approx(cell)
    assert TABLE.lookup("intermediate", "writing", "3+") == pytest.approx(role_fan_in)
    assert TABLE.lookup("intermediate", "writing", "0") == pytest.approx(role)
    assert TABLE.lookup("source", "writing", "0") == pytest.approx(everything)


def test_vulnerability_depends_on_position_and_task_type() -> None:
    """Paper 2.2: 0.39 for intermediate reasoning nodes with fan-in one or two, 0.18 for tool use."""
    reasoning, tool_use = (TABLE.lookup("intermediate", skill, "1-2") for skill in ("reasoning", "tool"))
    assert reasoning == pytest.approx(0.39, abs=0.05)
    assert tool_use == pytest.approx(0.18, abs=0.05)


def test_a_node_that_cannot_reach_the_output_is_not_vulnerable() -> None:
    graph = workflow(llm("a"), llm("side"), llm("end"), edges=[("a", "side"), ("a", "end")])
    assert vulnerability(graph, "side", "reasoning", TABLE) == 0.0
    assert vulnerability(graph, "a", "reasoning", TABLE) > 0.0
