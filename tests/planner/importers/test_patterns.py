from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.importers.patterns import MAX_PATTERN, UnsafePattern, check_pattern


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "abc", "[a-z]{1,20}", "^[a-z]+-[0-9]+$", r"^\d{4}-\d{2}-\d{2}$", "^(?:yes|no)$", "^(foo|bar)+$"),
        *("^[A-Z][a-z]*(?: [A-Z][a-z]*)*$", "^[^@ ]+@[a-z]+$", "^.*$", r"^[\w.-]{1,10}$", "^https?://", "^é+$"),
        *(r"^\x41\u0042+\.$", "^(a|)$", "^[-a]$", "^[a-]+$", "x{3}", r"^\s*$", "^(?:[a-z]+,)*;$", "^(?:^a|^b)c*$"),
    ],
)
def test_patterns_that_the_next_character_decides_are_accepted(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+$", "^(a|a)*$", "^(a|ab)*$", "^(a*)*$", "^(?:a?)*$", "^.*a", "^a*a*b", r"^\w+\d", "^é+ü", "^a{2,5}a"),
        *(
            "a+b",
            ".*",
            "x*",
            "(?:ab){200}",
            r"^a+(b)\1",
            r"\1",
            "(?=a)",
            "(?!a)",
            "(?<=a)b",
            "(?<!a)b",
            "(?P<n>a)",
            "(?i)a",
        ),
        *(
            "a{2000}",
            "a{0,0}",
            "a{3,2}",
            "^a{,5}$",
            "{",
            "a**",
            "a+?",
            "^a*+",
            "(a",
            "a)",
            "[a",
            "[]a]",
            "[z-a]",
            r"[a-\d]",
        ),
        *(
            r"\b",
            r"\Z",
            r"\p{L}",
            "^*",
            "[[a]]",
            "\\",
            "^(a|b|)*$",
            "^(|a|)$",
            "a" * (MAX_PATTERN + 1),
            "(" * 30 + ")" * 30,
        ),
        *("^(?:a|[^b])c", "^(?:a|b+)?a", "(?:^a|b*)c"),
    ],
)
def test_patterns_that_may_backtrack_or_are_unknown_are_refused(pattern: str) -> None:
    with pytest.raises(UnsafePattern):
        check_pattern(pattern)


@given(st.text(st.sampled_from("ab^$.*+?|()[]{}\\-,01dw:="), max_size=16))
def test_what_is_accepted_python_compiles_and_what_is_not_says_why(pattern: str) -> None:
    reason = _refusal(pattern)
    if reason is None:
        re.compile(pattern)
    else:
        assert reason


def _refusal(pattern: str) -> str | None:
    try:
        check_pattern(pattern)
    except UnsafePattern as unsafe:
        return str(unsafe)
    return None


@given(
    st.recursive(
        st.sampled_from(["a", "b", "c", "[ab]", r"\d", "."]),
        lambda inner: st.builds("(?:{}{}|{}){}".format, inner, inner, inner, st.sampled_from(["", "*", "?", "{1,3}"])),
        max_leaves=6,
    ),
    st.text(st.sampled_from("abc1"), max_size=12),
)
def test_an_accepted_pattern_has_one_way_at_most_to_match_a_text(pattern: str, text: str) -> None:
    """Ambiguity is what makes backtracking expensive: count the ways by brute force and compare."""
    if _refusal(f"^{pattern}$") is None:
        assert _ways(pattern, text) <= 1


def _ways(pattern: str, text: str) -> int:
    """In how many ways `pattern` derives the whole text (a small matcher that explores every choice)."""
    return sum(rest == "" for rest in _Ways(pattern).choice(0, text)[0])


class _Ways:
    """Returns (the rests of the text after each way to match, position after the construct in the pattern)."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def choice(self, at: int, text: str) -> tuple[list[str], int]:
        rests, at = self.sequence(at, text)
        while self.pattern[at : at + 1] == "|":
            more, at = self.sequence(at + 1, text)
            rests = rests + more
        return rests, at

    def sequence(self, at: int, text: str) -> tuple[list[str], int]:
        rests = [text]
        while at < len(self.pattern) and self.pattern[at] not in "|)":
            end = self.atom(at, "")[1]
            low, high, after = self.bounds(end)
            rests = [rest for start in rests for rest in self.repeated(at, start, low, high)]
            at = after
        return rests, at

    def repeated(self, at: int, text: str, low: int, high: int) -> list[str]:
        found, current = [text] * (low == 0), [text]
        for count in range(1, min(high, len(text)) + 1):
            current = [rest for start in current for rest in self.atom(at, start)[0]]
            if count >= low:
                found += current
        return found

    def bounds(self, at: int) -> tuple[int, int, int]:
        for sign, low, high in (("*", 0, 99), ("?", 0, 1), ("{1,3}", 1, 3)):
            if self.pattern.startswith(sign, at):
                return low, high, at + len(sign)
        return 1, 1, at

    def atom(self, at: int, text: str) -> tuple[list[str], int]:
        if self.pattern.startswith("(?:", at):
            rests, end = self.choice(at + 3, text)
            return rests, end + 1
        length = {"[": 4, "\\": 2}.get(self.pattern[at], 1)
        token = self.pattern[at : at + length]
        return ([text[1:]] if text and re.fullmatch(token, text[0]) else []), at + length
