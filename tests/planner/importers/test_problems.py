from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.importers.problems import MAX_PROBLEMS, Problem, WorkflowRejected, pointer, pointer_parts


@given(st.lists(st.text()))
def test_pointer_parts_invert_pointer(parts: list[str]) -> None:
    assert pointer_parts(pointer(*parts)) == tuple(parts)


def test_pointer_escapes_as_rfc_6901_says() -> None:
    assert pointer("a/b", 0, "m~n") == "/a~1b/0/m~0n"


def test_a_problem_reads_as_place_message_remedy() -> None:
    problem = Problem(code="c", pointer="/nodes/3", line=12, column=5, message="It is wrong.", remedy="Mend it.")
    assert str(problem) == "line 12, /nodes/3: It is wrong. Mend it."
    assert problem.to_json()["column"] == 5


def test_a_problem_without_place_has_none_in_its_text() -> None:
    assert str(Problem(code="c", message="It is wrong.", remedy="")) == "It is wrong."


@pytest.mark.parametrize("count", [1, MAX_PROBLEMS, MAX_PROBLEMS + 5])
def test_a_rejection_lists_a_bounded_number_and_counts_the_rest(count: int) -> None:
    rejected = WorkflowRejected(Problem(code="c", message=str(n), remedy="") for n in range(count))
    assert len(rejected.problems) == min(count, MAX_PROBLEMS)
    if count > MAX_PROBLEMS:
        assert rejected.problems[-1].message == "At least 6 more problems are not listed."
