"""The shipped profiles: marked, complete, plausible, and exactly what the generator makes."""

from __future__ import annotations

from importlib.resources import files

import pytest

from fleet.demo import demo_catalog
from planner.compiler.policies import ALL_POLICIES
from planner.compiler.profile import ProfileSet, rejection_probabilities
from planner.compiler.vulnerability import wilson_interval
from planner.data import load_profiles
from planner.data.make_profiles import MODELS, build_profiles, to_text

SKILLS = ("plan", "code", "test", "tool", "extract", "answer", "reasoning", "writing")


@pytest.fixture(scope="module")
def profiles() -> ProfileSet:
    return load_profiles()


def test_the_file_is_what_the_generator_makes(profiles: ProfileSet) -> None:
    shipped = files("planner.data").joinpath("profiles.json").read_text("utf-8")
    assert shipped == to_text(build_profiles())
    assert profiles == build_profiles()


def test_they_say_that_they_are_illustrative(profiles: ProfileSet) -> None:
    assert profiles.illustrative
    assert "Not measured" in profiles.description
    assert profiles.version.startswith("illustrative")


def test_eight_skills_three_models_eight_policies(profiles: ProfileSet) -> None:
    """The largest class has no cross-check; the smallest has one for either larger class."""
    assert profiles.skills == SKILLS
    for skill in SKILLS:
        for thinking in (False, True):
            found = {
                (p.model, p.policy, p.verifier_model)
                for p in profiles.pairs
                if (p.skill, p.thinking) == (skill, thinking)
            }
            plain = {(m, p.name, None) for m in MODELS for p in ALL_POLICIES if not p.uses_verifier}
            crossed = {(MODELS[0], MODELS[1]), (MODELS[0], MODELS[2]), (MODELS[1], MODELS[2])}
            assert found == plain | {(small, "cross_check", large) for small, large in crossed}


def test_larger_models_and_verification_are_better(profiles: ProfileSet) -> None:
    for skill in SKILLS:
        plain = [profiles.by_key[skill, model, "none", None, False].quality for model in MODELS]
        assert plain == sorted(plain)
        for pair in profiles.pairs:
            if pair.skill == skill:
                base = profiles.by_key[skill, pair.model, "none", None, pair.thinking]
                assert pair.quality >= base.quality


def test_intervals_come_from_the_samples(profiles: ProfileSet) -> None:
    for pair in profiles.pairs:
        low, high = wilson_interval(pair.quality * pair.samples, pair.samples)
        assert pair.interval == pytest.approx((low, high), abs=1e-3)


def test_the_papers_vulnerability_contrast(profiles: ProfileSet) -> None:
    """Paper 2.2: intermediate, fan-in one or two: reasoning 0.39, tool use 0.18."""
    table = profiles.vulnerability
    assert table.lookup("intermediate", "reasoning", "1-2") == pytest.approx(0.39, abs=0.015)
    assert table.lookup("intermediate", "tool", "1-2") == pytest.approx(0.18, abs=0.015)


def test_verdicts_of_every_demo_model_reject_sometimes(profiles: ProfileSet) -> None:
    rates = rejection_probabilities(profiles, demo_catalog())
    assert set(rates) == set(MODELS)
    assert all(0.15 < rate < 0.45 for rate in rates.values())
