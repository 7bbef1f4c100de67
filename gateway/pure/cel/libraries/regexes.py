"""The regex functions of Kubernetes.

Source: k8s.io/apiserver pkg/cel/library/regex.go; Go regexp regexp.go (allMatches).
"""

from __future__ import annotations

import math
from typing import Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import function
from gateway.pure.cel.meter import charge, count_reading, count_steps, count_text
from gateway.pure.cel.regex import Regex, compile_regex

_MATCH: Final = 500
"""Steps of a match beside the search."""


def _compiled(text: str, pattern: str) -> Regex:
    charge(math.ceil((1 + len(text)) * 0.1) * math.ceil(len(pattern) * 0.25))
    count_reading(text)
    try:
        return compile_regex(pattern)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    regex, raw = _compiled(text, pattern), text.encode()
    found = regex.find(raw)
    return "" if found is None else raw[found[0] : found[1]].decode()


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    regex, raw = _compiled(text, pattern), text.encode()
    matches: list[str] = []
    at, before = 0, -1
    while at <= len(raw) and len(matches) != limit:
        found = regex.find(raw, at)
        if found is None:
            break
        start, end = found
        # An empty match right after the previous match does not count.
        if end > start or start != before:
            matches.append(raw[start:end].decode())
            count_steps(_MATCH)
            count_text(end - start)
        before = end
        at = end if end > at else _next_character(raw, at)
    return matches


def _next_character(raw: bytes, at: int) -> int:
    at += 1
    while at < len(raw) and raw[at] & 0xC0 == 0x80:
        at += 1
    return at


FUNCTIONS: Final = (
    function("string_find_string", "string::find(string) -> string", _find),
    function("string_find_all_string", "string::findAll(string) -> list(string)", _find_all),
    function("string_find_all_string_int", "string::findAll(string, int) -> list(string)", _find_all),
)
