from __future__ import annotations

import pytest

from planner.errors import OptionsInvalid
from planner.options import PlanOptions
from planner.presenters.sliders import options_of, plan_controls, query_of


def test_without_a_query_everything_stands_at_its_default() -> None:
    assert options_of({}) == PlanOptions()
    assert [preset.name for preset in plan_controls({}).presets if preset.active] == ["quality_leaning"]


def test_an_address_carries_the_options_and_only_what_differs() -> None:
    options = options_of({"effort": "0.75", "lambda_l": "0.4", "beta": "2"})

    assert (options.effort, options.weights.lambda_l) == (0.75, 0.4)
    assert query_of(options) == "effort=0.75&lambda_l=0.4"
    assert query_of(PlanOptions()) == ""


@pytest.mark.parametrize("text", ["", "many", "nan", "inf"])
def test_what_is_no_number_is_the_default(text: str) -> None:
    assert options_of({"effort": text}) == PlanOptions()


def test_a_number_out_of_range_is_refused_by_the_options_and_clamped_by_the_slider() -> None:
    with pytest.raises(OptionsInvalid):
        options_of({"effort": "7"})
    effort = next(slider for slider in plan_controls({"effort": "7"}).sliders if slider.name == "effort")
    assert effort.value == effort.high == 1.0
