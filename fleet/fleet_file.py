"""A fleet as a YAML file: models, pools of replicas and their rates, checked whole before anything is stored (ours).

fleet: h200-node
models:
  - {name: qwen3.5-27b, size_rank: 3, parameters_b: 27}
backends:
  - name: h200-27b
    model: qwen3.5-27b
    served_name: Qwen/Qwen3.5-27B
    rates: calibrate
    replicas:
      - {name: 27b-0, url: "http://10.20.0.5:8000"}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from fleet.common.pointers import json_pointer
from fleet.demo import PRICE_PER_BILLION
from fleet.serving.rates import ServiceRates

MAX_BYTES = 1024 * 1024
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f]*$", max_length=200)]
KeyName = Annotated[str, Field(pattern=r"^(DYSERVE_KEY_[A-Z0-9_]+)?$", max_length=100)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]


class FleetFileInvalid(ValueError):
    """A file that describes no fleet; `problems` by JSON pointer."""

    def __init__(self, problems: dict[str, str]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{place or '/'}: {text}" for place, text in problems.items()))


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelPart(_Part):
    """A model class; prices per token, by default in proportion to the parameters (MATH.md)."""

    name: Name
    size_rank: Annotated[int, Field(ge=0, le=32767)]
    parameters_b: Annotated[float, Field(ge=0.01, allow_inf_nan=False)]
    context_tokens: Count = 32768
    price_in: NotNegative | None = None
    price_out: NotNegative | None = None
    reasoning: bool = True

    @property
    def default_price(self) -> float:
        return self.parameters_b * PRICE_PER_BILLION


class RatesPart(_Part):
    """Rates that somebody knows; all in wall seconds."""

    decode_tokens_per_s: Positive
    prefill_base_s: NotNegative = 0.0
    prefill_per_token_s: NotNegative
    concurrency: Count
    capacity: Count
    step_base_s: NotNegative | None = None
    step_per_sequence_s: NotNegative | None = None
    source: Literal["illustrative", "roofline", "calibrated"] = "illustrative"

    def value(self) -> ServiceRates:
        """Raises ValueError for rates that contradict each other."""
        return ServiceRates(**self.model_dump())


def _kind_of_rates(given: Any) -> str:
    """Which alternative a person meant: so that only its problems are named."""
    return "word" if isinstance(given, str) else "figures"


Rates = Annotated[
    Annotated[Literal["calibrate"], Tag("word")] | Annotated[RatesPart, Tag("figures")],
    Discriminator(_kind_of_rates),
]


class ReplicaPart(_Part):
    name: Name
    url: Annotated[str, Field(pattern=r"^https?://[^\x00-\x20]+$", max_length=200)]
    api_key_env: KeyName = ""


class BackendPart(_Part):
    """A pool of identical replicas; `rates`: known ones, `calibrate` (measured after the import), or none."""

    name: Name
    model: Name
    served_name: Text = ""
    hardware: Annotated[Text, Field(min_length=1, max_length=63)] = "h200"
    max_num_seqs: Count = 128
    rates: Rates | None = None
    replicas: Annotated[list[ReplicaPart], Field(max_length=1000)] = []


class FleetFile(_Part):
    """`default`: runs that name no fleet use this one."""

    fleet: Name
    default: bool = False
    models: Annotated[list[ModelPart], Field(max_length=100)] = []
    backends: Annotated[list[BackendPart], Field(min_length=1, max_length=1000)]


def parse_fleet(text: bytes) -> FleetFile:
    """Raises FleetFileInvalid with every problem and its place."""
    if len(text) > MAX_BYTES:
        raise FleetFileInvalid({"": f"the file is larger than {MAX_BYTES} bytes: split it into several fleets"})
    try:
        data: Any = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise FleetFileInvalid({"": f"not YAML: {' '.join(str(error).split())}"}) from error
    try:
        parsed = FleetFile.model_validate(data)
    except ValidationError as error:
        raise FleetFileInvalid({json_pointer(_place(item["loc"])): item["msg"] for item in error.errors()}) from error
    problems = dict(_contradictions(parsed))
    if problems:
        raise FleetFileInvalid(problems)
    return parsed


def _place(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Without the tag of the alternative that the validator adds below `rates`."""
    if "rates" not in location:
        return location
    at = location.index("rates")
    return (*location[: at + 1], *location[at + 2 :])


def _contradictions(parsed: FleetFile) -> Iterator[tuple[str, str]]:
    """What no single field shows: names and addresses given twice, and rates that are none."""
    yield from _twice("/models/{}/name", [model.name for model in parsed.models])
    yield from _twice("/backends/{}/name", [backend.name for backend in parsed.backends])
    replicas = [(i, k, part) for i, backend in enumerate(parsed.backends) for k, part in enumerate(backend.replicas)]
    for field in ("name", "url"):
        seen = dict[str, str]()
        for i, k, part in replicas:
            place, given = f"/backends/{i}/replicas/{k}/{field}", getattr(part, field).rstrip("/")
            if given in seen:
                yield place, f"{given} is at {seen[given]} already: every replica needs its own"
            seen.setdefault(given, place)
    for i, backend in enumerate(parsed.backends):
        if isinstance(backend.rates, RatesPart):
            try:
                backend.rates.value()
            except ValueError as error:
                yield f"/backends/{i}/rates", str(error)
        if backend.rates == "calibrate" and not backend.replicas:
            yield f"/backends/{i}/rates", "nothing can be calibrated without a replica: add one, or give rates"


def _twice(place: str, names: list[str]) -> Iterator[tuple[str, str]]:
    for i, name in enumerate(names):
        if name in names[:i]:
            yield place.format(i), f"{name} is at {place.format(names.index(name))} already: give it another name"
