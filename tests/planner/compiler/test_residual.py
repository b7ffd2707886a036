"""Residual plans against brute force over the free nodes, with T walked on the state itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.compiler.bundle import compile_bundle
from planner.compiler.certificate.residual import verify_residual
from planner.compiler.limits import Limits
from planner.compiler.plan import Implementation, Infeasible, Plan
from planner.compiler.pricing import fleet_pricing
from planner.compiler.problem import PlanningProblem
from planner.compiler.residual import (
    ResidualProblem,
    compile_residual,
    compile_residual_bundle,
    dispatched,
    remaining_limits,
    residual_key,
)
from planner.compiler.residual.settled import InFlight, Settled, Spent
from planner.compiler.solve import compile_plan, plan_digest
from planner.compiler.workflow import LlmNode
from tests.planner.compiler.cases import (
    LARGE,
    MIDDLE,
    SMALL,
    bundled,
    coefficients_of,
    h200_catalog,
    linked_problem,
    llm,
    pair,
    planned,
    problems,
    profile_set,
    tool,
    workflow,
)
from tests.sampling import sampled

few = sampled(40)
SECONDS = st.sampled_from([-1.0, 0.0, 0.35, 2.5, 40.0])


@st.composite
def residuals(draw: st.DrawFn, max_nodes: int = 4) -> ResidualProblem:
    """Any state of a random problem, with settled nodes behind free ones as recovery leaves them; priced or not."""
    problem = draw(problems(max_nodes))
    if draw(st.booleans()):
        problem = replace(problem, pricing=fleet_pricing(problem.catalog))
    admitted = coefficients_of(problem)
    completed: dict[str, Implementation | None] = {}
    in_flight: dict[str, InFlight] = {}
    for node in problem.workflow.nodes:
        known = admitted.nodes.get(node.id)
        chosen = draw(st.sampled_from(known.columns)).implementation if known else None
        state = draw(st.sampled_from(["free", "free", "completed", "in flight"]))
        if state == "completed":
            completed[node.id] = chosen
        elif state == "in flight":
            in_flight[node.id] = InFlight(remaining_s=draw(SECONDS), implementation=chosen)
    return ResidualProblem(admission=problem, settled=Settled(completed=completed, in_flight=in_flight))


def seconds_from_now(residual: ResidualProblem, durations_s: Mapping[str, float]) -> float:
    """When the last output is there: a settled node's by itself, any other's after those it waits for."""
    state, graph = residual.settled, residual.admission.workflow

    def there(node_id: str) -> float:
        if node_id in state.completed:
            return 0.0
        if node_id in state.in_flight:
            return max(0.0, state.in_flight[node_id].remaining_s)
        return durations_s[node_id] + max(map(there, graph.predecessors[node_id]), default=0.0)

    return max(there(node.id) for node in graph.nodes)


def best_by_brute_force(residual: ResidualProblem, level: float, max_cost: float = inf) -> float | None:
    """The best objective of the free nodes' assignments that cost no more; None when there is none."""
    admitted = coefficients_of(residual.admission)
    settled = {*residual.settled.completed, *residual.settled.in_flight}
    free = {node_id: node for node_id, node in admitted.nodes.items() if node_id not in settled}
    found: list[float] = []
    for columns in product(*(node.columns for node in free.values())):
        chosen = dict(zip(free, columns, strict=True))
        if sum(column.cost for column in columns) <= max_cost * (1 + 1e-9):
            durations = {**admitted.fixed_s, **{node_id: column.duration_s for node_id, column in chosen.items()}}
            gains = sum(admitted.gain(free[node_id], column, level) for node_id, column in chosen.items())
            found.append(gains - admitted.latency_price * seconds_from_now(residual, durations))
    return max(found, default=None)


@few
@given(residual=residuals())
def test_the_residual_plan_is_optimal_over_the_free_nodes(residual: ResidualProblem) -> None:
    for level in (0.0, 3.0):
        plan = planned(compile_residual(residual, level))
        assert plan.objective == pytest.approx(best_by_brute_force(residual, level), abs=1e-9)
        assert plan.gap == 0.0


@few
@given(residual=residuals(max_nodes=6))
def test_every_residual_plan_is_what_it_says(residual: ResidualProblem) -> None:
    plan = planned(compile_residual(residual, 1.5))
    assert tuple(plan.assignment) == residual.free
    assert plan.makespan_s == pytest.approx(seconds_from_now(residual, plan.durations_s))
    assert sum(plan.terms.values()) == pytest.approx(plan.objective)
    assert verify_residual(residual, plan) == ()


@few
@given(problem=problems(max_nodes=5))
def test_with_nothing_dispatched_it_is_the_problem_of_admission(problem: PlanningProblem) -> None:
    residual = ResidualProblem(admission=problem, settled=Settled())
    for level in (0.0, 3.0):
        ours, admission = planned(compile_residual(residual, level)), planned(compile_plan(problem, level))
        assert replace(ours, solve_s=0.0) == replace(admission, solve_s=0.0)
    bundle, first = bundled(compile_residual_bundle(residual)), bundled(compile_bundle(problem))
    assert [plan.digest for plan in bundle.variants] == [plan.digest for plan in first.variants]


@few
@given(problem=problems(max_nodes=5))
def test_a_source_in_flight_as_planned_leaves_the_rest_as_planned(problem: PlanningProblem) -> None:
    """No better plan of the rest turns up only because a node went off with all its time ahead."""
    plan = planned(compile_plan(problem, 1.5))
    source = next(n for n in problem.workflow.topological_order if not problem.workflow.predecessors[n])
    implementation = plan.assignment.get(source)
    flight = InFlight(remaining_s=plan.durations_s[source], implementation=implementation)
    residual = ResidualProblem(admission=problem, settled=Settled(in_flight={source: flight}))
    coefficients, node = coefficients_of(problem), problem.workflow.by_id[source]
    column = coefficients.nodes[source].column(implementation) if implementation else None
    kept = coefficients.gain(coefficients.nodes[source], column, 1.5) if column else 0.0
    rounding = coefficients.latency_price * abs(flight.planned_s - flight.remaining_s)
    rest = planned(compile_residual(residual, 1.5))
    assert isinstance(node, LlmNode) == (column is not None)
    assert rest.objective + kept == pytest.approx(plan.objective, abs=rounding + 1e-9)
    assert rest.estimated_quality > 0 or plan.estimated_quality == 0


# --- States ----------------------------------------------------------------------------------------------------------


def fork(**options: object) -> PlanningProblem:
    """a -> b, c -> t (a tool of 2.34 s) -> d; c's larger model is worth its time only where b takes as long."""
    pairs = [pair(model=name, quality=quality) for name, quality in ((SMALL, 0.5), (MIDDLE, 0.7), (LARGE, 0.75))]
    graph = workflow(
        llm("a"), llm("b"), llm("c"), tool("t", 2.34), llm("d"),
        edges=[("a", "b"), ("a", "c"), ("b", "t"), ("c", "t"), ("t", "d")],
    )  # fmt: skip
    problem = PlanningProblem(workflow=graph, catalog=h200_catalog(), profiles=profile_set(pairs))
    return replace(problem, **options)  # type: ignore[arg-type]  # test shorthand


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned(compile_plan(fork(), 0.0))


def implementation(model: str, policy: str = "none", backend: str | None = None) -> Implementation:
    return Implementation(model=model, backend=backend or f"h200-{model}", policy=policy)


def state(*completed: str, spent: Spent | None = None, **in_flight: float) -> Settled:
    """LLM nodes ran on the middle class; `in_flight` gives seconds."""
    used = implementation(MIDDLE)
    return Settled(
        completed={node: None if node == "t" else used for node in completed},
        in_flight={
            node: InFlight(remaining_s=seconds, implementation=None if node == "t" else used)
            for node, seconds in in_flight.items()
        },
        spent=spent or Spent(),
    )


def suffix(settled: Settled, **options: object) -> ResidualProblem:
    return ResidualProblem(admission=fork(**options), settled=settled)


def test_completed_nodes_take_no_time_and_those_in_flight_what_is_left() -> None:
    rest = planned(compile_residual(suffix(state("a", b=7.26, c=-3.0)), 0.0))
    assert dict(rest.assignment).keys() == {"d"}
    assert {n: rest.durations_s[n] for n in "abct"} == {"a": 0.0, "b": 7.3, "c": 0.0, "t": 2.3}
    assert rest.makespan_s == pytest.approx(7.3 + 2.3 + rest.durations_s["d"])


def test_a_tool_in_flight_takes_what_is_left_of_it_and_a_completed_one_nothing() -> None:
    flying = planned(compile_residual(suffix(state("a", "b", "c", t=0.5)), 0.0))
    done = planned(compile_residual(suffix(state("a", "b", "c", "t")), 0.0))
    assert flying.makespan_s - done.makespan_s == pytest.approx(0.5)


def test_references_weights_and_count_are_those_of_admission() -> None:
    ours, admission = suffix(state("a", "b")).coefficients, coefficients_of(fork())
    assert not isinstance(ours, Infeasible)
    for name in ("llm_count", "t_ref", "k_ref", "d_ref"):
        assert getattr(ours, name) == getattr(admission, name)
    assert {n: (c.rho, c.vulnerability) for n, c in ours.nodes.items()} == {
        n: (admission.nodes[n].rho, admission.nodes[n].vulnerability) for n in "cd"
    }


def test_the_estimate_is_that_of_the_whole_run_cost_and_demand_those_of_the_rest(plan: Plan) -> None:
    completed = {"a": implementation(SMALL), "b": implementation(LARGE), "c": implementation(LARGE), "t": None}
    rest = planned(compile_residual(ResidualProblem(admission=fork(), settled=Settled(completed=completed)), 0.0))
    settled = (1 - 0.4 * 0.5) * (1 - 0.4 * 0.25) ** 2
    column = coefficients_of(fork()).nodes["d"].column(rest.assignment["d"])
    assert column is not None
    assert rest.estimated_quality == pytest.approx(settled * (1 - 0.4 * column.error_rate))
    assert rest.cost == pytest.approx(column.cost)
    assert rest.demand == column.work


def test_everything_settled_gives_the_empty_plan() -> None:
    residual = suffix(state("a", "b", "c", "t", d=3.0))
    for rest in (planned(compile_residual(residual, 0.0)), *bundled(compile_residual_bundle(residual)).variants):
        assert (dict(rest.assignment), rest.cost, dict(rest.demand), rest.dominant_model) == ({}, 0, {}, None)
        assert (rest.solver, rest.makespan_s) == ("none", 3.0)
        assert verify_residual(residual, rest) == ()
    assert len(bundled(compile_residual_bundle(residual)).variants) == 1


def test_a_workflow_without_llm_nodes_has_an_empty_residual_plan() -> None:
    tools = replace(fork(), workflow=workflow(tool("x", 2.0), tool("y", 3.0), edges=[("x", "y")]))
    flying = Settled(in_flight={"x": InFlight(remaining_s=0.5)})
    rest = planned(compile_residual(ResidualProblem(admission=tools, settled=flying), 0.0))
    assert (dict(rest.assignment), rest.makespan_s) == ({}, 3.5)


def test_after_recovery_consumers_dispatched_before_do_not_wait_again() -> None:
    """The anchor `a` is executed once more while b and c have run on its old output."""
    residual = suffix(state("b", "c"))
    rest = planned(compile_residual(residual, 0.0))
    assert list(rest.assignment) == ["a", "d"]
    assert rest.makespan_s == pytest.approx(max(rest.durations_s["a"], 2.3 + rest.durations_s["d"]))
    assert verify_residual(residual, rest) == ()


def test_hundreds_of_nodes() -> None:
    count = 300
    ids = [f"n{i}" for i in range(count)]
    graph = workflow(
        *map(llm, ids), edges=[(ids[i], ids[i + k]) for i in range(count) for k in (1, 2) if i + k < count]
    )
    problem = replace(fork(), workflow=graph)
    done = Settled(completed={n: implementation(MIDDLE) for n in ids[:150]})
    residual = ResidualProblem(admission=problem, settled=done)
    rest = planned(compile_residual(residual, 1.5))
    assert (list(rest.assignment), rest.gap) == (ids[150:], 0.0)


def test_hostile_node_ids_are_ids_like_any_other() -> None:
    strange = "x\n'; drop\u202e \x00 __proto__"
    graph = workflow(llm(strange), llm("d"), edges=[(strange, "d")])
    problem = replace(fork(), workflow=graph)
    residual = ResidualProblem(admission=problem, settled=Settled(completed={strange: implementation(MIDDLE)}))
    rest = planned(compile_residual(residual, 0.0))
    assert list(rest.assignment) == ["d"]
    assert verify_residual(residual, rest) == ()


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: suffix(state("nowhere")), "settled node nowhere is no node of workflow case"),
    (lambda: suffix(Settled(completed={"a": None})), "LLM node a needs the implementation"),
    (lambda: suffix(Settled(in_flight={"a": InFlight(remaining_s=1)})), "LLM node a needs the implementation"),
    (lambda: suffix(Settled(completed={"t": implementation(MIDDLE)})), "t is a tool node"),
    (lambda: suffix(Settled(completed={"a": implementation(MIDDLE, "debate")})), "debate is not profiled"),
    (lambda: state("a", a=1.0), "node a is completed and in flight"),
    (lambda: InFlight(remaining_s=float("nan")), "remaining_s must be finite"),
    (lambda: InFlight(remaining_s=float("inf")), "remaining_s must be finite"),
    (lambda: Spent(cost=-1), "spent cost must be"),
    (lambda: Spent(work_s={MIDDLE: float("inf")}), f"spent work_s of {MIDDLE} must be"),
    (lambda: Spent(calls={MIDDLE: -1}), f"spent calls of {MIDDLE} must be"),
    (lambda: compile_residual(suffix(state()), -1.0), "level must not be negative"),
    (lambda: compile_residual_bundle(suffix(state()), []), "at least one level"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_states_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# --- Caps ------------------------------------------------------------------------------------------------------------


def test_caps_that_remain_are_the_limit_less_what_was_dispatched() -> None:
    column = coefficients_of(fork()).nodes["b"].column(implementation(MIDDLE))
    assert column is not None
    spent = Spent(cost=0.5, tokens=400, elapsed_s=2.0, work_s={MIDDLE: 3.0}, calls={MIDDLE: 2, LARGE: 1})
    limits = Limits(
        max_cost=10.0, max_calls=9, max_tokens=5000.0, max_makespan_s=30.0, min_quality=0.2,
        max_model_work_s={MIDDLE: 20.0, LARGE: 4.0}, max_model_calls={MIDDLE: 7},
        pinned={"d": (LARGE,)}, forbidden={"d": (SMALL,)},
    )  # fmt: skip
    residual = suffix(state("a", spent=spent, b=1.0), limits=limits)
    assert dispatched(residual).calls == {MIDDLE: 3, LARGE: 1}
    left = remaining_limits(residual)
    assert isinstance(left, Limits)
    assert left.max_cost == pytest.approx(9.5 - column.cost)
    assert left.max_tokens == pytest.approx(4600 - column.tokens)
    assert (left.max_calls, left.max_makespan_s, left.min_quality) == (5, 28.0, 0.2)
    assert left.max_model_work_s == pytest.approx({MIDDLE: 17.0 - column.work[MIDDLE], LARGE: 4.0})
    assert dict(left.max_model_calls) == {MIDDLE: 4}
    assert (left.pinned, left.forbidden) == (limits.pinned, limits.forbidden)


def test_a_cap_that_is_spent_makes_the_rest_infeasible() -> None:
    limits = Limits(max_cost=1.0, max_model_calls={MIDDLE: 1})
    spent = Spent(cost=1.2, calls={MIDDLE: 2})
    found = compile_residual(suffix(state("a", spent=spent), limits=limits), 0.0)
    assert isinstance(found, Infeasible)
    assert "limit max_cost=1 is spent: what was dispatched takes 1.2" in found.text
    assert f"limit calls.{MIDDLE}=1 is spent: what was dispatched takes 2" in found.text
    assert compile_residual_bundle(suffix(state("a", spent=spent), limits=limits)) == found


def test_a_cap_that_is_spent_does_not_matter_when_nothing_is_left_to_decide() -> None:
    everything = state("a", "b", "c", "t", "d", spent=Spent(cost=2.0))
    assert planned(compile_residual(suffix(everything, limits=Limits(max_cost=1.0)), 0.0)).assignment == {}


def test_the_rest_keeps_what_remains_of_a_cap() -> None:
    free = planned(compile_residual(suffix(state("a", "b")), 0.0))
    cap = free.cost * 0.7
    limits = Limits(max_cost=1.0 + cap)
    residual = suffix(state("a", "b", spent=Spent(cost=1.0)), limits=limits)
    rest = planned(compile_residual(residual, 0.0))
    assert rest.cost <= cap < free.cost
    assert verify_residual(residual, rest) == ()


def test_a_rest_that_does_not_fit_says_what_was_taken_before() -> None:
    limits = Limits(max_cost=1.5, max_tokens=1e9)
    found = compile_residual(suffix(state("a", "b", spent=Spent(cost=1.4)), limits=limits), 0.0)
    assert isinstance(found, Infeasible)
    assert found.reasons[-1] == "caps are what is left; dispatched before: max_cost 1.4"
    (conflict,) = found.conflicts
    assert conflict.limit == "max_cost"
    assert float(conflict.asked) == pytest.approx(0.1)


def test_pins_hold_for_free_nodes_and_are_idle_for_settled_ones() -> None:
    """The recovered anchor d has to use the largest class; what forbids everything for b no longer matters."""
    limits = Limits(pinned={"d": (LARGE,)}, forbidden={"b": ("*",)})
    residual = suffix(state("a", "b"), limits=limits)
    rest = planned(compile_residual(residual, 30.0))
    assert (rest.assignment["d"].model, rest.assignment["c"].model) == (LARGE, SMALL)
    free, ours = suffix(state("a", "b")).coefficients, residual.coefficients
    assert not isinstance(ours, Infeasible)
    assert not isinstance(free, Infeasible)
    assert (ours.t_ref, ours.k_ref, ours.d_ref) == (free.t_ref, free.k_ref, free.d_ref)
    still = compile_residual(suffix(state("a"), limits=limits), 0.0)
    assert isinstance(still, Infeasible)
    assert "node b" in still.text


def test_an_invocation_in_flight_outside_the_fleet_is_named() -> None:
    flying = Settled(in_flight={"a": InFlight(remaining_s=1.0, implementation=implementation(MIDDLE, backend="gone"))})
    with pytest.raises(ValueError, match=r"node a is in flight with .* on gone, which is not legal"):
        remaining_limits(suffix(flying, limits=Limits(max_cost=1.0)))


# --- Bundles ---------------------------------------------------------------------------------------------------------


def test_the_key_follows_the_state_and_not_the_names() -> None:
    base = suffix(state("a", b=7.26))
    renamed = workflow(
        llm("A"), llm("B"), llm("C"), tool("T", 2.34), llm("D"),
        edges=[("A", "B"), ("A", "C"), ("B", "T"), ("C", "T"), ("T", "D")],
    )  # fmt: skip
    other_names = ResidualProblem(admission=fork(workflow=renamed), settled=state("A", B=7.26))
    assert residual_key(base) == residual_key(other_names) == residual_key(suffix(state("a", b=7.31)))
    changed = [
        suffix(state("a", b=7.4)),
        suffix(state("a", "b")),
        suffix(state("a", c=7.26)),
        suffix(Settled(completed={"a": implementation(LARGE)}, in_flight=state(b=7.26).in_flight)),
        suffix(state("a", b=7.26), effort=0.9),
    ]
    assert len({residual_key(base), residual_key(base, [0.0]), *map(residual_key, changed)}) == 2 + len(changed)


def test_what_was_spent_belongs_to_the_key_where_there_are_limits() -> None:
    spent = [state("a", spent=Spent(cost=cost)) for cost in (0.0, 0.25)]
    assert len({residual_key(suffix(s)) for s in spent}) == 1
    assert len({residual_key(suffix(s, limits=Limits(max_cost=9.0))) for s in spent}) == 2


def test_the_bundle_starts_from_the_first_plan_where_it_is_known() -> None:
    residual = suffix(state("a"))
    first = planned(compile_residual(residual, 0.0))
    bundle = bundled(compile_residual_bundle(residual, (0.0, 30.0), first=first))
    assert bundle.variants[0] is first
    assert [plan.level for plan in bundle.variants] == [0.0, 30.0]
    assert bundle.key == residual_key(residual, (0.0, 30.0))
    with pytest.raises(ValueError, match=r"at the smallest level 0\.0, got one at 30\.0"):
        compile_residual_bundle(residual, (0.0, 30.0), first=bundle.variants[1])


def test_a_priced_problem_has_priced_residual_bundles() -> None:
    problem = fork()
    residual = suffix(state("a"), pricing=fleet_pricing(problem.catalog))
    bundle = bundled(compile_residual_bundle(residual))
    assert bundle.kind == "priced"
    assert all(verify_residual(residual, variant) == () for variant in bundle.variants)


# --- Certificate -----------------------------------------------------------------------------------------------------


def test_the_certificate_names_what_is_wrong_with_a_residual_plan() -> None:
    residual = suffix(state("a", b=4.0))
    rest = planned(compile_residual(residual, 1.5))
    assert verify_residual(residual, rest) == ()
    more = replace(rest, assignment={**rest.assignment, "a": rest.assignment["d"]})
    fewer = replace(rest, assignment={"c": rest.assignment["c"]})
    other = replace(rest, assignment={**rest.assignment, "c": implementation(MIDDLE, "debate")})
    slow = replace(rest, durations_s={**rest.durations_s, "b": 4.1})
    wrong = [
        (more, "a is assigned but is no LLM node that is still to be dispatched"),
        (fewer, "LLM node d is still to be dispatched and has no implementation"),
        (other, "node c: .*debate is not legal"),
        (slow, "duration b is 4.1, the inputs give 4.0"),
        (replace(rest, estimated_quality=rest.estimated_quality * 1.01), "estimated_quality"),
        (replace(rest, level=0.0, digest=plan_digest(replace(rest, level=0.0))), "term demand"),
    ]
    for plan, message in wrong:
        assert any(re.search(message, said) for said in verify_residual(residual, plan)), message


def test_the_plan_of_another_state_is_no_plan_of_this_one() -> None:
    earlier = planned(compile_residual(suffix(state("a", b=9.0)), 0.0))
    assert verify_residual(suffix(state("a", "b")), earlier) != ()


def test_the_certificate_counts_what_was_dispatched_towards_the_limits() -> None:
    spent = Spent(cost=1.0, tokens=500, elapsed_s=2.0, work_s={MIDDLE: 2.0}, calls={MIDDLE: 2})
    settled = state("a", spent=spent, b=3.0)
    rest = planned(compile_residual(suffix(settled), 0.0))
    admitted = coefficients_of(fork()).nodes
    flight = admitted["b"].column(implementation(MIDDLE))
    chosen = [admitted[n].column(i) for n, i in rest.assignment.items()]
    assert flight is not None
    columns = [flight, *(column for column in chosen if column is not None)]
    used = {
        "max_cost": 1.0 + sum(c.cost for c in columns),
        "max_tokens": 500 + sum(c.tokens for c in columns),
        "max_calls": 2 + sum(sum(c.calls.values()) for c in columns),
        "max_makespan_s": 2.0 + rest.makespan_s,
    }
    for name, amount in used.items():
        kept, broken = (suffix(settled, limits=Limits.from_json({name: limit})) for limit in (amount, amount - 1))
        assert verify_residual(kept, rest) == ()
        (said,) = verify_residual(broken, rest)
        assert said.startswith(f"limit {name}={amount - 1:g} is broken")
    by_model = Limits(max_model_calls={MIDDLE: 2}, max_model_work_s={MIDDLE: 2.0 + 0.9 * flight.work[MIDDLE]})
    assert len(verify_residual(suffix(settled, limits=by_model), rest)) == 2
    pinned = Limits(pinned={"d": (f"{LARGE}/debate",)}, forbidden={"a": ("*",)})
    assert [said.split(":")[0] for said in verify_residual(suffix(settled, limits=pinned), rest)] == ["node d"]


@few
@given(residual=residuals(), level=st.sampled_from([0.0, 3.0]), share=st.floats(0.3, 1.2))
def test_plans_within_what_remains_of_a_cap_are_the_best_of_those(
    residual: ResidualProblem, level: float, share: float
) -> None:
    """A share of the cost of the plan without a cap; the certificate counts towards the same cap on its own."""
    free = planned(compile_residual(residual, level))
    total = dispatched(residual).cost + share * free.cost
    problem = replace(residual.admission, limits=Limits(max_cost=total))
    capped = ResidualProblem(admission=problem, settled=residual.settled)
    plan = compile_residual(capped, level)
    best = best_by_brute_force(residual, level, max_cost=share * free.cost)
    if isinstance(plan, Infeasible):
        assert best is None
    else:
        assert best is not None
        assert plan.objective == pytest.approx(best, abs=1e-7)
        assert verify_residual(capped, plan) == ()


def test_a_level_without_a_plan_in_time_does_not_lose_the_plan_of_another_one() -> None:
    free = linked_problem(12)
    best = planned(compile_plan(free, 0.0))
    caps = Limits(max_cost=0.8 * best.cost, min_quality=0.95 * best.estimated_quality, max_makespan_s=best.makespan_s)
    residual = ResidualProblem(admission=replace(free, limits=caps), settled=Settled())
    first = planned(compile_residual(residual, 0.0))
    assert isinstance(compile_residual(residual, 1.5, time_limit_s=0.0), Infeasible)
    hurried = compile_residual_bundle(residual, [0.0, 1.5], first=first, time_limit_s=0.0)
    assert bundled(hurried).variants == (first,)
    assert isinstance(compile_residual_bundle(residual, [0.0, 1.5], time_limit_s=0.0), Infeasible)
