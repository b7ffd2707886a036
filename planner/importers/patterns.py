"""Regular expressions of user JSON Schemas: only those that Python's backtracking `re` runs in linear time (ours).

The rule: wherever the pattern has a choice (another repetition or go on; which branch), the next character alone
decides it. Then a failed match gives back every character at most once. `search` would start again at every
position, so a pattern that can match more than SEARCHED characters must begin with `^`. Backreferences and
look-around have no place in this. Lengths are bounded, so that the pattern itself is no bomb.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_PATTERN = 300
MAX_GROUPS = 20
MAX_REPEAT = 1000
SEARCHED = 256
_UNBOUNDED = 10**9

# Sets of characters are bit masks: one bit per ASCII character and one for all others together.
_OTHERS = 1 << 128
_ANY = (1 << 129) - 1
_NEWLINE = 1 << ord("\n")


class UnsafePattern(ValueError):
    """A pattern outside the subset; the message says what is not supported and where."""


@dataclass(frozen=True, slots=True)
class _Chars:
    mask: int


@dataclass(frozen=True, slots=True)
class _Anchor:
    text: str


@dataclass(frozen=True, slots=True)
class _Sequence:
    items: tuple[_Tree, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    branches: tuple[_Tree, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    item: _Tree
    low: int
    high: int


_Tree = _Chars | _Anchor | _Sequence | _Choice | _Repeat


def check_pattern(pattern: str) -> None:
    """Raises UnsafePattern unless `pattern` is in the subset that runs in linear time."""
    if len(pattern) > MAX_PATTERN:
        raise UnsafePattern(f"it is longer than {MAX_PATTERN} characters")
    tree = _Parser(pattern).parse()
    _check_choices(tree, after=0)
    if _longest(tree) > SEARCHED and not _is_anchored(tree):
        raise UnsafePattern(f"it can match more than {SEARCHED} characters and does not begin with ^")
    try:
        re.compile(pattern)
    except (re.error, OverflowError) as error:
        raise UnsafePattern(str(error)) from error


# --- The rule --------------------------------------------------------------------------------------------------------


def _check_choices(tree: _Tree, after: int) -> None:
    """`after`: the characters that may follow `tree`."""
    if isinstance(tree, _Sequence):
        for item in reversed(tree.items):
            _check_choices(item, after)
            after = _first(item) | (after if _can_be_empty(item) else 0)
    elif isinstance(tree, _Choice):
        seen = 0
        for branch in tree.branches:
            _check_choices(branch, after)
            starts = _first(branch) | (after if _can_be_empty(branch) else 0)
            if seen & starts:
                raise UnsafePattern("two alternatives can begin with the same character")
            seen |= starts
        if sum(_can_be_empty(branch) for branch in tree.branches) > 1:
            raise UnsafePattern("two alternatives can be empty")
    elif isinstance(tree, _Repeat):
        if _can_be_empty(tree.item) and tree.high > 1:
            raise UnsafePattern("a repeated part can be empty")
        if tree.low != tree.high and _first(tree.item) & after:
            raise UnsafePattern("after a repetition the same character can also go on differently")
        _check_choices(tree.item, after | (_first(tree.item) if tree.high > 1 else 0))


def _first(tree: _Tree) -> int:
    """The characters a match of `tree` can begin with."""
    if isinstance(tree, _Chars):
        return tree.mask
    if isinstance(tree, _Repeat):
        return _first(tree.item)
    if isinstance(tree, _Choice):
        mask = 0
        for branch in tree.branches:
            mask |= _first(branch)
        return mask
    mask = 0
    for item in tree.items if isinstance(tree, _Sequence) else ():
        mask |= _first(item)
        if not _can_be_empty(item):
            break
    return mask


def _can_be_empty(tree: _Tree) -> bool:
    if isinstance(tree, _Chars):
        return False
    if isinstance(tree, _Sequence):
        return all(_can_be_empty(item) for item in tree.items)
    if isinstance(tree, _Choice):
        return any(_can_be_empty(branch) for branch in tree.branches)
    return True if isinstance(tree, _Anchor) else tree.low == 0 or _can_be_empty(tree.item)


def _longest(tree: _Tree) -> int:
    """The length of the longest match, at most _UNBOUNDED."""
    if isinstance(tree, _Chars | _Anchor):
        return int(isinstance(tree, _Chars))
    if isinstance(tree, _Sequence):
        return min(sum(_longest(item) for item in tree.items), _UNBOUNDED)
    if isinstance(tree, _Choice):
        return max(_longest(branch) for branch in tree.branches)
    return min(_longest(tree.item) * tree.high, _UNBOUNDED)


def _is_anchored(tree: _Tree) -> bool:
    if isinstance(tree, _Sequence):
        return bool(tree.items) and _is_anchored(tree.items[0])
    if isinstance(tree, _Choice):
        return all(_is_anchored(branch) for branch in tree.branches)
    return isinstance(tree, _Anchor) and tree.text == "^"


# --- Parsing ---------------------------------------------------------------------------------------------------------

_CLASSES = {
    "d": sum(1 << ord(c) for c in "0123456789"),
    "w": sum(1 << i for i in range(128) if chr(i).isalnum() or chr(i) == "_") | _OTHERS,
    "s": sum(1 << i for i in range(128) if chr(i).isspace()) | _OTHERS,
}
# Digits beyond ASCII exist too: \d and its complement both contain the bit of all other characters.
_CLASSES["d"] |= _OTHERS
_COMPLEMENTS = {name.upper(): (_ANY & ~mask) | _OTHERS for name, mask in _CLASSES.items()}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_COUNT = re.compile(r"\{(\d{1,6})(,?)(\d{0,6})\}")
_HEX = re.compile(r"(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4}))")


class _Parser:
    """Recursive descent over the subset's syntax."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.groups = pattern, 0, 0

    def parse(self) -> _Tree:
        tree = self._choice()
        if self.at < len(self.pattern):
            raise self._unsupported("an unmatched )")
        return tree

    def _choice(self) -> _Tree:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else _Choice(tuple(branches))

    def _sequence(self) -> _Tree:
        items: list[_Tree] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            items.append(self._repeated(self._atom()))
        return _Sequence(tuple(items))

    def _atom(self) -> _Tree:
        char = self._next()
        if char == "(":
            return self._group()
        if char in "^$":
            return _Anchor(char)
        if char == ".":
            return _Chars(_ANY & ~_NEWLINE)
        if char == "[":
            return _Chars(self._class())
        if char == "\\":
            return _Chars(self._escape())
        if char in "*+?{":
            raise self._unsupported(f"the character {char!r}")
        return _Chars(_mask(char))

    def _group(self) -> _Tree:
        self.groups += 1
        if self.groups > MAX_GROUPS:
            raise UnsafePattern(f"it has more than {MAX_GROUPS} groups")
        if self._take("?") and not self._take(":"):
            raise self._unsupported("look-around or another special group")
        tree = self._choice()
        if not self._take(")"):
            raise self._unsupported("a group that is not closed")
        return tree

    def _repeated(self, item: _Tree) -> _Tree:
        low, high = self._bounds()
        if (low, high) == (1, 1):
            return item
        if isinstance(item, _Anchor):
            raise self._unsupported("a repeated anchor")
        if self.pattern[self.at : self.at + 1] in tuple("?*+{"):
            raise self._unsupported("a lazy, possessive or double repetition")
        return _Repeat(item, low, high)

    def _bounds(self) -> tuple[int, int]:
        if self._take("*"):
            return 0, _UNBOUNDED
        if self._take("+"):
            return 1, _UNBOUNDED
        if self._take("?"):
            return 0, 1
        count = _COUNT.match(self.pattern, self.at)
        if not count:
            return 1, 1
        self.at = count.end()
        low = int(count[1])
        high = low if not count[2] else int(count[3] or _UNBOUNDED)
        if low > MAX_REPEAT or MAX_REPEAT < high < _UNBOUNDED or high < max(low, 1):
            raise self._unsupported(f"a repetition outside 1 to {MAX_REPEAT}")
        return low, high

    def _class(self) -> int:
        negated = self._take("^")
        if self.pattern.startswith("]", self.at):
            raise self._unsupported("a class that begins with ]")
        mask = 0
        while not self._take("]"):
            first = self._class_item()
            if self.pattern[self.at : self.at + 1] == "-" and self.pattern[self.at + 1 : self.at + 2] != "]":
                self.at += 1
                first = _range(first, self._class_item(), self._unsupported("a range of characters"))
            mask |= first if isinstance(first, int) else _mask(first)
        # A complement may still contain some of the other characters, so that bit stays.
        return (_ANY & ~mask) | _OTHERS if negated else mask

    def _class_item(self) -> int | str:
        char = self._next()
        if char == "[":
            raise self._unsupported("an unescaped [ inside a class")
        return self._escaped() if char == "\\" else char

    def _escape(self) -> int:
        escaped = self._escaped()
        return escaped if isinstance(escaped, int) else _mask(escaped)

    def _escaped(self) -> int | str:
        """After a backslash: a class as a mask, or one character."""
        code = _HEX.match(self.pattern, self.at)
        if code:
            self.at = code.end()
            return chr(int(code[1] or code[2], 16))
        char = self._next()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _COMPLEMENTS:
            return _COMPLEMENTS[char]
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isalnum():
            raise self._unsupported(f"\\{char}")
        return char

    def _next(self) -> str:
        if self.at >= len(self.pattern):
            raise self._unsupported("an incomplete pattern")
        self.at += 1
        return self.pattern[self.at - 1]

    def _take(self, char: str) -> bool:
        found = self.pattern.startswith(char, self.at)
        self.at += found
        return found

    def _unsupported(self, what: str) -> UnsafePattern:
        return UnsafePattern(f"{what} at character {self.at} is not supported")


def _mask(char: str) -> int:
    return 1 << ord(char) if ord(char) < 128 else _OTHERS


def _range(first: int | str, last: int | str, refusal: UnsafePattern) -> int:
    if isinstance(first, int) or isinstance(last, int) or ord(first) > ord(last):
        raise refusal
    low, high = ord(first), min(ord(last), 127)
    ascii_part = sum(1 << i for i in range(low, high + 1))
    return ascii_part | (_OTHERS if ord(last) > 127 else 0)
