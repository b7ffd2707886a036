"""Profiles without skills: every pair with the mean of its profiles over all skills (paper 7.5, an ablation)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from planner.compiler.profile import CallDemand, PairProfile, ProfileSet


def collapsed(profiles: ProfileSet) -> ProfileSet:
    """The same pairs, each with the unweighted means over the skills that it is profiled for; vulnerability stays."""
    alike: dict[tuple[str, str, str | None, bool], list[PairProfile]] = {}
    for pair in profiles.pairs:
        alike.setdefault(_pair_of(pair), []).append(pair)
    means = {key: _mean(pairs) for key, pairs in alike.items()}
    return replace(profiles, pairs=tuple(replace(means[_pair_of(p)], skill=p.skill) for p in profiles.pairs))


def _pair_of(pair: PairProfile) -> tuple[str, str, str | None, bool]:
    return pair.model, pair.policy, pair.verifier_model, pair.thinking


def _mean(pairs: Sequence[PairProfile]) -> PairProfile:
    return replace(
        pairs[0],
        quality=fmean(pair.quality for pair in pairs),
        samples=sum(pair.samples for pair in pairs),
        interval=(fmean(pair.interval[0] for pair in pairs), fmean(pair.interval[1] for pair in pairs)),
        prompt_tokens=fmean(pair.prompt_tokens for pair in pairs),
        calls=tuple(_mean_call(role.role, pairs) for role in pairs[0].calls),
    )


def _mean_call(role: str, pairs: Sequence[PairProfile]) -> CallDemand:
    calls = [pair.call(role) for pair in pairs]
    return CallDemand(
        role=role,
        prompt_tokens=fmean(call.prompt_tokens for call in calls),
        output_tokens=fmean(call.output_tokens for call in calls),
        probability=fmean(call.probability for call in calls),
    )
