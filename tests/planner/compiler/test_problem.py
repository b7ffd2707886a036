"""What a problem is made of: no number that planning reads is negative or not finite, whoever made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.compiler.profile import CallDemand
from planner.compiler.vulnerability import VulnerabilityCell, VulnerabilityTable
from planner.compiler.weights import Weights
from tests.planner.compiler.cases import h200_catalog, pair, rates, tool

CELL = VulnerabilityCell(role="source", skill="any", fan_in="0", pairs=10, flips=4)
MODEL, RATES = h200_catalog().models[0], rates(100.0)
MAKERS: dict[str, Callable[[float], object]] = {
    "weight lambda_l": lambda x: Weights(lambda_l=x),
    "weight beta": lambda x: Weights(beta=x),
    "call prompt": lambda x: CallDemand(role="r", prompt_tokens=x, output_tokens=1),
    "call output": lambda x: CallDemand(role="r", prompt_tokens=1, output_tokens=x),
    "pair prompt": lambda x: pair(prompt_tokens=x),
    "pseudo pairs": lambda x: VulnerabilityTable(cells=(CELL,), pseudo_pairs=x),
    "price in": lambda x: replace(MODEL, price_in=x),
    "price out": lambda x: replace(MODEL, price_out=x),
    "decode rate": lambda x: replace(RATES, decode_tokens_per_s=x),
    "prefill base": lambda x: replace(RATES, prefill_base_s=x),
    "prefill per token": lambda x: replace(RATES, prefill_per_token_s=x),
    "time scale": lambda x: replace(RATES, time_scale=x),
    "step times": lambda x: replace(RATES, step_base_s=x, step_per_sequence_s=0.1),
    "tool seconds": lambda x: tool("t", x),
}


@pytest.mark.parametrize("number", [-1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("made", MAKERS)
def test_no_number_is_negative_or_not_finite(made: str, number: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        MAKERS[made](number)
