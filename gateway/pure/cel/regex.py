"""Regular expressions of Go: RE2, which takes time linear in the length of the text.

Source: Go regexp/syntax; cel-go common/types/string.go (matches).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import re2

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import count_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_PATTERN: Final = 50_000
"""In characters. RE2 bounds the memory of a compiled pattern, but only after it has parsed the pattern."""
_CLASSES: Final = {"\\p": 400, "\\P": 400, ".": 4, "[^": 2}
"""Parts of patterns that take as long as so many characters: sets of characters from all of Unicode."""
_STEPS: Final = 2000
"""Steps to compile a character of a pattern."""
_MATCH: Final = 500
"""Steps of a match beside the search."""
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 2 * 1024 * 1024
_IN_GO: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}
_ANY_BYTE: Final = re.compile(r"(?s)(?:\\Q(?>.*?(?:\\E|\Z))|\\[^CQ]|[^\\])*+\\C")
"""``\\C`` matches a single byte in RE2, and is an error in Go."""


class Match(Protocol):
    """A match in UTF-8."""

    def span(self, group: int = 0, /) -> tuple[int, int]:
        """Return where a group begins and ends; -1 if it has no part in the match."""


class Regex:
    """A compiled pattern."""

    __slots__ = ("_compiled", "_size", "groups")

    def __init__(self, pattern: str) -> None:
        self._compiled = re2.compile(pattern.encode(), _OPTIONS)
        # If there are too many states for RE2's cache, a byte takes as many steps as there are instructions.
        self._size = self._compiled.programsize
        self.groups: int = self._compiled.groups
        """The number of capturing groups."""

    def search(self, text: str) -> object | None:
        """Return the leftmost match in *text*, if any."""
        count_steps(len(text) * self._size)
        raw = text.encode()
        return self._compiled.search(raw)  # type: ignore[no-any-return]

    def find(self, raw: bytes, start: int = 0) -> Match | None:
        """Return the leftmost match in UTF-8 *raw* from *start* on, if any."""
        count_steps((len(raw) - start) * self._size)
        return self._compiled.search(raw, start)  # type: ignore[no-any-return]

    def find_all(self, raw: bytes) -> Iterator[Match]:
        """Yield the matches in UTF-8 *raw* from left to right. Source: Go regexp regexp.go (allMatches)."""
        at, before = 0, -1
        while at <= len(raw):
            found = self.find(raw, at)
            if found is None:
                break
            start, end = found.span()
            # An empty match right after the previous match does not count.
            if end > start or start != before:
                count_steps(_MATCH)
                yield found
            before = end
            at = end if end > at else _next_character(raw, at)


def _next_character(raw: bytes, at: int) -> int:
    at += 1
    while at < len(raw) and raw[at] & 0xC0 == 0x80:
        at += 1
    return at


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> Regex:
    """Return *pattern* compiled.

    Raises:
        EvaluationError: the pattern is not valid in Go, or too long.
    """
    weight = len(pattern)
    if weight <= LONGEST_PATTERN:
        weight += sum(pattern.count(each) * more for each, more in _CLASSES.items())
    if weight > LONGEST_PATTERN:
        raise EvaluationError(
            f"error parsing regexp: found {weight} characters, expected at most {LONGEST_PATTERN}; "
            "a Unicode class counts as 400"
        )
    count_steps(weight * _STEPS)
    try:
        if "\\C" in pattern and _ANY_BYTE.match(pattern):
            raise EvaluationError(r"error parsing regexp: invalid escape sequence: `\C`")
        return Regex(pattern)
    except (re2.error, UnicodeEncodeError) as error:
        raise EvaluationError(f"error parsing regexp: {_go_message(error)}") from None


def _go_message(error: Exception) -> str:
    """Return Go's message for RE2's *error*."""
    what = error.args[0] if error.args else error
    text = what.decode("utf-8", "replace") if isinstance(what, bytes) else str(what)
    problem, colon, where = text.partition(": ")
    if problem == "trailing \\":
        problem, colon = "trailing backslash at end of expression", ": "
    return f"{_IN_GO.get(problem, problem)}: `{where}`" if colon else problem
