"""Why no plan keeps the limits: limits that conflict, and the least change of each that would do (ours).

A set of limits is irreducible when no plan keeps all of them, though one would keep any smaller set. It is found by
leaving limits out, halves first, for as long as the rest is proved to conflict. Pins and prohibitions count as caps
here: no node may use a column that they rule out. Then the least change of a limit is one more MIP: the plan that uses
least of it and keeps the others of the set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from planner.compiler.coefficients import Coefficients
from planner.compiler.evaluate import Choice
from planner.compiler.limits import EVERY_NODE
from planner.compiler.limits.caps import NO_PLAN, Cap, caps_of, least, presolved
from planner.compiler.limits.patterns import asked, excludes, pattern_of, with_columns
from planner.compiler.menu import Column, menu_of
from planner.compiler.mip import checked as mip
from planner.compiler.mip.feasibility import find_within
from planner.compiler.mip.ilp import build_any, build_least
from planner.compiler.plan import Conflict, Infeasible
from planner.compiler.workflow import LlmNode

SHARE = 0.25
"""Of the time left, what one question may take: with a hard one unanswered, the others still are."""
GRACE_S = 1.0
"""Past the deadline no solver searches any more, and past this nothing more is asked: each of hundreds of limits is a
question, and each takes a model of the whole workflow."""
LEAST_QUALITY = 1e-300
"""A plan whose estimated quality is below this counts as having none: hundreds of nodes come near it."""
SHOWN_DIGITS = 4
WHOLE = ("max_calls", "calls")


def explained(coefficients: Coefficients, deadline: float) -> Infeasible:
    """Infeasible with its conflicts, for coefficients whose limits no plan keeps; what takes too long is left out.

    `conflicts` is one irreducible set, or a set that conflicts where the time did not suffice to shrink it.
    """
    end = max(deadline, time.perf_counter()) + GRACE_S
    search = _Search(coefficients=_unrestricted(coefficients), deadline=deadline, end=end)
    caps = (*_pins_as_caps(search.coefficients), *caps_of(search.coefficients))
    if not caps:
        return NO_PLAN
    conflicting = search.irreducible(caps)
    conflicts = tuple(search.conflict(cap, [other for other in conflicting if other is not cap]) for cap in conflicting)
    others = [cap for cap in caps if cap not in conflicting]
    said = " and ".join(f"{conflict.limit}={_number(conflict.asked)}" for conflict in conflicts)
    reasons = [f"no plan keeps {said}", *(conflict.text for conflict in conflicts)]
    if others and not search.late and search.conflicting(others):
        reasons.append("the other limits conflict with each other as well")
    return Infeasible(reasons=tuple(reasons), conflicts=conflicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Questions about sets of caps; `coefficients` hold every legal column."""

    coefficients: Coefficients
    deadline: float
    end: float

    @property
    def late(self) -> bool:
        return time.perf_counter() > self.end

    def irreducible(self, caps: Sequence[Cap]) -> list[Cap]:
        """A part of conflicting caps that conflicts; leaving out any one of it was seen to help, time permitting."""
        kept = list(caps)
        blocks = [list(caps)]
        while blocks and not self.late:
            block = blocks.pop()
            rest = [cap for cap in kept if cap not in block]
            if rest and self.conflicting(rest):
                kept = rest
            elif len(block) > 1:
                half = len(block) // 2
                blocks += [block[half:], block[:half]]
        return kept

    def conflicting(self, caps: Sequence[Cap]) -> bool:
        """Whether it is proved that no plan keeps them."""
        possible, coupled = self._possible(caps)
        if possible is None:
            return True
        until = self._until()
        if find_within(possible, 0.0, coupled, until) is not None:
            return False
        return mip.infeasible(possible, coupled, until)

    def _possible(self, caps: Sequence[Cap]) -> tuple[Coefficients | None, list[Cap]]:
        """The columns that may be in a plan that keeps the caps, None without a plan; and the caps that couple nodes.

        Pins and prohibitions do not: they take their columns away, in one pass, however many there are.
        """
        nodes = dict(self.coefficients.nodes)
        coupled = [cap for cap in caps if not _is_pin(cap)]
        for cap in caps:
            for node_id in _pinned_nodes(cap, nodes):
                columns = [c for c in nodes[node_id].columns if not cap.amount(node_id, c)]
                if not columns:
                    return None, coupled
                nodes[node_id] = with_columns(nodes[node_id], columns)
        return presolved(replace(self.coefficients, nodes=nodes), coupled), coupled

    def conflict(self, cap: Cap, others: Sequence[Cap]) -> Conflict:
        """What the limit asks, and the least that it would have to allow while the others hold."""
        found = self._least(cap, others)
        limits = self.coefficients.problem.limits
        pin = _is_pin(cap)
        conflict = Conflict(
            limit=cap.name, asked=asked(limits, cap.name) if pin else cap.asked, needed=None, text=f"change {cap.name}"
        )
        if found is None:
            return conflict
        choice, proved = found
        if pin:
            return _with_pattern(conflict, cap, choice, least=proved)
        needed = cap.in_its_unit(cap.total(self.coefficients, choice))
        kind = conflict.limit.partition(".")[0]
        return _with_number(conflict, float(round(needed)) if kind in WHOLE else needed, least=proved)

    def _least(self, cap: Cap, others: Sequence[Cap]) -> tuple[Choice, bool] | None:
        """The plan that uses least of the cap and keeps the others, and whether that is proved."""
        until = self._until()
        if not others:
            return least(self.coefficients, cap), True
        if self.late:
            return None
        # A quality of 0 has no logarithm: first the plans that have some.
        kept = [*others, replace(cap, room=-math.log(LEAST_QUALITY))] if cap.logarithmic else list(others)
        possible, coupled = self._possible(kept)
        if possible is None:
            return self._any(others, until)
        answer = mip.checked(build_least(possible, cap, coupled), coupled, until, mip.quicker(possible))
        if answer.status == "infeasible":
            return self._any(others, until)
        if answer.choice is not None:
            return answer.choice, answer.status == "optimal"
        choice = find_within(possible, 0.0, coupled, until)
        return None if choice is None else (choice, False)

    def _any(self, caps: Sequence[Cap], until: float) -> tuple[Choice, bool] | None:
        """Any plan within the caps: all are of quality 0."""
        possible, coupled = self._possible(caps)
        if possible is None:
            return None
        choice = mip.checked(build_any(possible, coupled), coupled, until, mip.quicker(possible)).choice
        return None if choice is None else (choice, True)

    def _until(self) -> float:
        now = time.perf_counter()
        return now + SHARE * max(0.0, self.deadline - now)


# --- Pins ------------------------------------------------------------------------------------------------------------


def _unrestricted(coefficients: Coefficients) -> Coefficients:
    """With the columns that pins and prohibitions took away."""
    problem = coefficients.problem
    by_id = {node.id: node for node in problem.workflow.nodes if isinstance(node, LlmNode)}
    nodes = {n: replace(node, menu=menu_of(problem, by_id[n])) for n, node in coefficients.nodes.items()}
    return replace(coefficients, nodes=nodes)


def _pins_as_caps(coefficients: Coefficients) -> list[Cap]:
    """Each says: no node that it holds for uses a column that it rules out."""
    limits = coefficients.problem.limits

    def cap(name: str, key: str) -> Cap:
        def amount(node_id: str, column: Column) -> float:
            return float(key in (EVERY_NODE, node_id) and excludes(limits, name, column.implementation))

        return Cap(name=name, asked=0.0, room=0.0, amount=amount)

    return [
        cap(f"{kind}.{key}", key)
        for kind, given in (("pin", limits.pinned), ("forbid", limits.forbidden))
        for key in given
        if key == EVERY_NODE or key in coefficients.nodes
    ]


def _is_pin(cap: Cap) -> bool:
    return cap.name.startswith(("pin.", "forbid."))


def _pinned_nodes(cap: Cap, node_ids: Iterable[str]) -> list[str]:
    """The nodes that a pin or a prohibition holds for; none for any other cap."""
    key = cap.name.partition(".")[2]
    return [] if not _is_pin(cap) else list(node_ids) if key == EVERY_NODE else [key]


# --- Words -----------------------------------------------------------------------------------------------------------


def _with_pattern(conflict: Conflict, cap: Cap, choice: Choice, *, least: bool) -> Conflict:
    """`needed`: the patterns that the limit would have to allow, and the nodes that would use them."""
    users = [node_id for node_id, column in choice.items() if cap.amount(node_id, column)]
    patterns = ",".join(dict.fromkeys(pattern_of(choice[node_id].implementation) for node_id in users))
    nodes = ("node " if len(users) == 1 else "nodes ") + ", ".join(users)
    text = f"let {nodes} use {patterns}, which {conflict.limit}={conflict.asked} rules out"
    return replace(conflict, needed=patterns, least=least, text=text)


def _with_number(conflict: Conflict, needed: float, *, least: bool) -> Conflict:
    lower = conflict.limit == "min_quality"
    verb, bound = ("lower", "at most") if lower else ("raise", "at least")
    shown = _number(_rounded(needed, down=lower))
    text = f"{verb} {conflict.limit} from {_number(conflict.asked)} to {bound if least else 'for example'} {shown}"
    return replace(conflict, needed=needed, least=least, text=text)


def _rounded(value: float, *, down: bool) -> float:
    """To a few digits, to the side on which the number suffices."""
    shown = float(f"{value:.{SHOWN_DIGITS}g}")
    if value == 0 or (shown <= value if down else shown >= value):
        return shown
    step = 10.0 ** (math.floor(math.log10(abs(value))) - SHOWN_DIGITS + 1)
    return float(f"{shown + (-step if down else step):.{SHOWN_DIGITS}g}")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"
