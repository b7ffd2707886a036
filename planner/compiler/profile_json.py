"""JSON form of a profile set; every problem of a document is reported at once, by JSON pointer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from planner.compiler.policies import POLICIES, Policy
from planner.compiler.profile import CallDemand, PairProfile, ProfileSet
from planner.compiler.vulnerability import FAN_INS, ROLES, VulnerabilityCell, VulnerabilityTable

FORMAT_VERSION = 1


class ProfilesInvalid(ValueError):
    """A profile document that cannot be used; `errors` holds one `pointer: message` per problem."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = tuple(errors)


def profiles_to_json(profiles: ProfileSet) -> dict[str, Any]:
    return {
        "dyserve_profiles": FORMAT_VERSION,
        "version": profiles.version,
        "illustrative": profiles.illustrative,
        "description": profiles.description,
        "vulnerability": {
            "pseudo_pairs": profiles.vulnerability.pseudo_pairs,
            "cells": [
                {"role": c.role, "skill": c.skill, "fan_in": c.fan_in, "pairs": c.pairs, "flips": c.flips}
                for c in profiles.vulnerability.cells
            ],
        },
        "pairs": [_pair_to_json(pair) for pair in profiles.pairs],
    }


def _pair_to_json(pair: PairProfile) -> dict[str, Any]:
    return {
        "skill": pair.skill,
        "model": pair.model,
        "policy": pair.policy,
        **({"verifier_model": pair.verifier_model} if pair.verifier_model else {}),
        "thinking": pair.thinking,
        "quality": pair.quality,
        "samples": pair.samples,
        "interval": list(pair.interval),
        "prompt_tokens": pair.prompt_tokens,
        "calls": [
            {
                "role": call.role,
                "prompt_tokens": call.prompt_tokens,
                "output_tokens": call.output_tokens,
                "probability": call.probability,
            }
            for call in pair.calls
        ],
    }


def profiles_from_json(data: Any, policies: Mapping[str, Policy] = POLICIES) -> ProfileSet:
    """Raises ProfilesInvalid with every problem found; `policies` are those that pairs may name."""
    reader = _Reader(policies)
    profiles = reader.profiles(data)
    if reader.errors or profiles is None:
        raise ProfilesInvalid(reader.errors)
    return profiles


_MISSING = object()
_NAMES = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


class _Reader:
    """Reads a document and keeps the errors; a method returns None for a part that cannot be used."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self.policies = policies
        self.errors: list[str] = []

    def fail(self, pointer: str, message: str) -> None:
        self.errors.append(f"{pointer or '/'}: {message}")

    def get(self, data: Mapping[str, Any], pointer: str, name: str, kind: type, default: Any = _MISSING) -> Any:
        """`data[name]` checked to be a `kind`; on an error the kind's empty value, so that reading goes on."""
        value = data.get(name, default)
        if value is _MISSING:
            self.fail(f"{pointer}/{name}", f"is missing; give {_NAMES[kind]}")
            return kind()
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        right = number if kind is float else isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not right:
            self.fail(f"{pointer}/{name}", f"must be {_NAMES[kind]}, got {value!r:.60}")
            return kind()
        return float(value) if kind is float else value

    def profiles(self, data: Any) -> ProfileSet | None:
        if not isinstance(data, dict):
            self.fail("", "must be an object with dyserve_profiles, version, pairs and vulnerability")
            return None
        if data.get("dyserve_profiles") != FORMAT_VERSION:
            self.fail("/dyserve_profiles", f"must be {FORMAT_VERSION}, the only known format of profiles")
        version = self.get(data, "", "version", str)
        illustrative = self.get(data, "", "illustrative", bool, False)
        description = self.get(data, "", "description", str, "")
        table = self.table(self.get(data, "", "vulnerability", dict))
        entries = self.get(data, "", "pairs", list)
        pairs = [self.pair(entry, f"/pairs/{i}") for i, entry in enumerate(entries)]
        seen: dict[object, int] = {}
        for i, pair in enumerate(pairs):
            if pair is not None and seen.setdefault(pair.key, i) != i:
                self.fail(f"/pairs/{i}", f"repeats /pairs/{seen[pair.key]}; keep one of them")
        if self.errors or table is None:
            return None
        return ProfileSet(
            version=version,
            pairs=tuple(pair for pair in pairs if pair is not None),
            vulnerability=table,
            illustrative=illustrative,
            description=description,
        )

    def table(self, data: dict[str, Any]) -> VulnerabilityTable | None:
        at = "/vulnerability"
        before = len(self.errors)
        pseudo_pairs = self.get(data, at, "pseudo_pairs", float)
        cells = [self.cell(cell, f"{at}/cells/{i}") for i, cell in enumerate(self.get(data, at, "cells", list))]
        if len(self.errors) > before:
            return None
        try:
            return VulnerabilityTable(cells=tuple(c for c in cells if c is not None), pseudo_pairs=pseudo_pairs)
        except ValueError as error:
            self.fail(at, str(error))
            return None

    def cell(self, data: Any, at: str) -> VulnerabilityCell | None:
        if not isinstance(data, dict):
            self.fail(at, "must be an object")
            return None
        before = len(self.errors)
        role, bucket = self.get(data, at, "role", str), self.get(data, at, "fan_in", str)
        skill = self.get(data, at, "skill", str)
        pairs, flips = self.get(data, at, "pairs", int), self.get(data, at, "flips", int)
        for name, value, allowed in (("role", role, ROLES), ("fan_in", bucket, FAN_INS)):
            if value not in allowed:
                self.fail(f"{at}/{name}", f"must be one of {', '.join(allowed)}")
        if len(self.errors) > before:
            return None
        try:
            return VulnerabilityCell(
                role=cast("Any", role), skill=skill, fan_in=cast("Any", bucket), pairs=pairs, flips=flips
            )
        except ValueError as error:
            self.fail(at, str(error))
            return None

    def pair(self, data: Any, at: str) -> PairProfile | None:
        if not isinstance(data, dict):
            self.fail(at, "must be an object")
            return None
        before = len(self.errors)
        interval = self.get(data, at, "interval", list)
        if len(interval) != 2 or not all(isinstance(end, int | float) for end in interval):
            self.fail(f"{at}/interval", "must be two numbers: the low and the high end")
        verifier = self.get(data, at, "verifier_model", str, "") or None
        calls = [self.call(call, f"{at}/calls/{i}") for i, call in enumerate(self.get(data, at, "calls", list))]
        fields = {name: self.get(data, at, name, str) for name in ("skill", "model", "policy")}
        numbers = {name: self.get(data, at, name, float) for name in ("quality", "prompt_tokens")}
        samples, thinking = self.get(data, at, "samples", int), self.get(data, at, "thinking", bool, False)
        if len(self.errors) > before:
            return None
        try:
            pair = PairProfile(
                **fields,
                **numbers,
                samples=samples,
                thinking=thinking,
                interval=(float(interval[0]), float(interval[1])),
                verifier_model=verifier,
                calls=tuple(call for call in calls if call is not None),
            )
        except ValueError as error:
            self.fail(at, str(error))
            return None
        self.check_policy(pair, at)
        return pair

    def call(self, data: Any, at: str) -> CallDemand | None:
        if not isinstance(data, dict):
            self.fail(at, "must be an object")
            return None
        before = len(self.errors)
        role = self.get(data, at, "role", str)
        prompt, output = self.get(data, at, "prompt_tokens", float), self.get(data, at, "output_tokens", float)
        probability = self.get(data, at, "probability", float, 1.0)
        if len(self.errors) > before:
            return None
        try:
            return CallDemand(role=role, prompt_tokens=prompt, output_tokens=output, probability=probability)
        except ValueError as error:
            self.fail(at, str(error))
            return None

    def check_policy(self, pair: PairProfile, at: str) -> None:
        """The calls of a pair must be those of its policy's graph, and only conditional ones may be improbable."""
        policy = self.policies.get(pair.policy)
        if policy is None:
            self.fail(f"{at}/policy", f"is unknown; known policies: {', '.join(self.policies)}")
            return
        if policy.uses_verifier != (pair.verifier_model is not None):
            need = "needs" if policy.uses_verifier else "takes no"
            self.fail(f"{at}/verifier_model", f"policy {policy.name} {need} verifier model")
        expected, listed = [call.role for call in policy.calls], [call.role for call in pair.calls]
        if sorted(expected) != sorted(listed):
            self.fail(
                f"{at}/calls", f"policy {policy.name} has the roles {', '.join(expected)}, got {', '.join(listed)}"
            )
            return
        for stage in policy.stages:
            probabilities = {pair.call(call.role).probability for call in stage.calls}
            if stage.when == "always" and probabilities != {1.0}:
                self.fail(f"{at}/calls", f"role {stage.calls[0].role} always runs: its probability must be 1")
            if len(probabilities) > 1:
                self.fail(f"{at}/calls", "calls of one stage happen together: give them one probability")
