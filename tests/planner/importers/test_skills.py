from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.importers.skills import SKILL_WORDS, choose_skill


@pytest.mark.parametrize(
    ("objective", "role", "skill", "word", "place"),
    [
        ("Outline the talk.", "", "plan", "outline", "objective"),
        ("Design a CSS stylesheet.", "Planner", "code", "css", "objective"),
        ("Design and TEST the rules, then write them down.", "", "test", "test", "objective"),
        ("Combine everything.", "Copy Editor", "writing", "copy", "role"),
        ("Vergleiche beide Wege.", "Gutachter", "reasoning", "", "nothing"),
        ("Attest the contest.", "", "reasoning", "", "nothing"),
        ("", "", "reasoning", "", "nothing"),
    ],
)
def test_the_first_known_word_decides(objective: str, role: str, skill: str, word: str, place: str) -> None:
    choice = choose_skill(objective, role)
    assert (choice.skill, choice.word, choice.found_in) == (skill, word, place)
    assert choice.skill in choice.reason
    assert choice.word in choice.reason


def test_every_word_leads_to_one_skill() -> None:
    words = [word for listed in SKILL_WORDS.values() for word in listed]
    assert len(words) == len(set(words))
    assert all(word == word.casefold() and word.isalpha() for word in words)
    assert set(SKILL_WORDS) == {"plan", "code", "test", "tool", "extract", "answer", "reasoning", "writing"}


@given(st.text(), st.text())
def test_any_text_gets_a_skill_and_its_word_stands_in_the_text(objective: str, role: str) -> None:
    choice = choose_skill(objective, role)
    assert choice.skill in SKILL_WORDS
    if choice.word:
        assert choice.word in {"objective": objective, "role": role}[choice.found_in].casefold()
