from __future__ import annotations

import pytest

from planner.compiler.limits import Limits
from planner.compiler.plan import Conflict
from planner.errors import OptionsInvalid
from planner.options import PlanOptions
from planner.presenters.limits import MOST_CHARACTERS, conflict_rows, errors_by_field, limit_form, limits_of
from planner.presenters.sliders import options_of, plan_controls, query_of


def _problems(query: dict[str, str]) -> dict[str, str]:
    with pytest.raises(OptionsInvalid) as caught:
        limits_of(query)
    return caught.value.problems


def test_fields_and_lines_make_one_set_of_limits() -> None:
    found = limits_of({"max_cost": " 1.5 ", "min_quality": "", "limits": "\ncalls.a=3\n  pin.n=a/b,c \n"})

    assert found == Limits(max_cost=1.5, max_model_calls={"a": 3}, pinned={"n": ("a/b", "c")})
    assert limits_of({}).is_empty


def test_an_address_gives_back_the_options_that_wrote_it() -> None:
    query = {"bundle": "priced", "max_tokens": "12345.5", "max_calls": "7", "limits": "work_s.a=2.5\nforbid.*=a/b"}
    options = options_of(query)

    written = query_of(options)
    assert options.bundle == "priced"
    assert written.startswith("bundle=priced&max_calls=7&max_tokens=12345.5&limits=")
    assert "\n" not in written
    assert query_of(PlanOptions(limits=options.limits)).startswith("max_calls=")


def test_every_problem_is_said_at_once_where_it_belongs() -> None:
    problems = _problems({"max_cost": "many", "max_calls": "2.5", "limits": "rubbish\npin.n=a/b/c/d\nfoo.x=1"})

    beside = dict(errors_by_field(problems))
    assert "finite number" in beside["max_cost"]
    assert "whole number" in beside["max_calls"]
    assert beside["max_tokens"] == ""
    for name in ("rubbish: write NAME=VALUE", "pin.n: ", "foo: is unknown"):
        assert name in beside["limits"]


def test_a_limit_given_twice_and_a_text_without_end_are_refused() -> None:
    assert "given twice" in _problems({"max_cost": "1", "limits": "max_cost=2"})["limits.max_cost"]
    assert "characters" in _problems({"limits": "x" * (MOST_CHARACTERS + 1)})["limits.limits"]


def test_options_report_weights_and_limits_together() -> None:
    with pytest.raises(OptionsInvalid) as caught:
        options_of({"effort": "7", "bundle": "cheap", "max_cost": "-1"})

    assert {"limits.max_cost", "bundle"} <= set(caught.value.problems)


def test_the_form_keeps_what_was_typed() -> None:
    form = limit_form({"max_cost": "many", "limits": "rubbish"})

    assert next(field.value for field in form.fields if field.name == "max_cost") == "many"
    assert form.text == "rubbish"
    assert form.used
    assert not limit_form({}).used
    assert [kind.name for kind in plan_controls({"bundle": "cheap"}).kinds if kind.chosen] == ["levels"]


@pytest.mark.parametrize(
    ("limit", "asked", "needed", "value"),
    [
        ("max_cost", 1.0, 1.70231, "1.703"),
        ("max_calls", 3, 12.0, "12"),
        ("min_quality", 0.9, 0.71239, "0.7123"),
        ("min_quality", 0.9, 0.0, "0"),
        ("pin.a", "x,y", "z/none/b", "x,y,z/none/b"),
        ("forbid.a", "x/none,y", "x/none/b", "y"),
        ("forbid.*", "x/*/b", "x/none/b", ""),
        ("max_cost", 1.0, None, None),
    ],
)
def test_a_button_puts_in_what_is_enough(
    limit: str, asked: float | str, needed: float | str | None, value: str | None
) -> None:
    (row,) = conflict_rows([Conflict(limit=limit, asked=asked, needed=needed, text="words")])

    assert row.value == value


def test_what_is_enough_but_not_least_says_so() -> None:
    (row,) = conflict_rows([Conflict(limit="max_cost", asked=1.0, needed=2.0, text="words", least=False)])

    assert row.needed == "for example 2"
