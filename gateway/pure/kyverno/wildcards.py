"""Kyverno's wildcards: ``*`` stands for any characters, ``?`` for one.

Source: github.com/IGLOU-EU/go-wildcard (Match), which takes exponential time; github.com/kyverno/kyverno
ext/wildcard.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.meter import count_steps
from gateway.pure.cel.regex import Regex

if TYPE_CHECKING:
    from collections.abc import Collection

_STEPS: Final = 120
"""What a comparison of a pattern counts, beside the length of the text."""


class Wildcard:
    """A pattern, which matches whole texts in time linear in their length."""

    __slots__ = ("_regex", "is_all", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_all = text == "*"
        self._regex = None
        if has_wildcards(text) and not self.is_all:
            parts = ("(?s:.*)" if part[0] == "*" else _escaped(part) for part in _PARTS.findall(text))
            self._regex = Regex(rf"\A{''.join(parts)}\z")

    def matches(self, text: str) -> bool:
        """Whether the whole *text* matches."""
        if self._regex is None:
            return self.is_all or text == self.text
        # Short texts cost little more than the call.
        count_steps(_STEPS)
        return self._regex.search(text) is not None

    def matches_any(self, texts: Collection[str]) -> bool:
        """Whether the whole of one of *texts* matches. Without wildcards, a set is not searched."""
        if self._regex is None:
            return bool(texts) if self.is_all else self.text in texts
        return any(map(self.matches, texts))


def name_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern *text* for names of some ten characters, as an expression for ``fullmatch``.

    Other than a ``Wildcard`` it counts no steps, so documents can be read with it. What a ``*`` has taken up
    to the next part is never tried again: the first place of a part is as good as any other.
    """
    first, *others = re.split(r"\*+", text)
    middle = "".join(f"(?>.*?{_literal(each)})" for each in others[:-1])
    return re.compile(f"(?s:{_literal(first)}{middle}{f'.*{_literal(others[-1])}' if others else ''})")


def _literal(text: str) -> str:
    return "".join(map(_escaped, _PARTS.findall(text)))


_PARTS = re.compile(r"\*+|\?|[^*?]+")


def _escaped(part: str) -> str:
    return "(?s:.)" if part == "?" else re.escape(part)


def has_wildcards(text: str) -> bool:
    """Whether *text* has any."""
    return "*" in text or "?" in text
