"""Kyverno's wildcards: ``*`` stands for any characters, ``?`` for one.

Source: github.com/IGLOU-EU/go-wildcard (Match), which takes exponential time; github.com/kyverno/kyverno
ext/wildcard.
"""

from __future__ import annotations

import re

from gateway.pure.cel.regex import Regex


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
        return self._regex.search(text) is not None


_PARTS = re.compile(r"\*+|\?|[^*?]+")


def _escaped(part: str) -> str:
    return "(?s:.)" if part == "?" else re.escape(part)


def has_wildcards(text: str) -> bool:
    """Whether *text* has any."""
    return "*" in text or "?" in text
