"""The regex functions of cel-go, in version 1.

Source: cel-go ext/regex.go.
"""

from __future__ import annotations

import math
from typing import Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.meter import charge, count_items, count_reading, count_text
from gateway.pure.cel.regex import Match, Regex, compile_regex
from gateway.pure.cel.values import NONE, Optional, quoted

_LIST: Final = 10
_LONGEST: Final = 10_000
"""Characters of a replacement, each of which is looked at for each match."""


def _search_cost(text: str, pattern: str) -> float:
    """Return the cost of the search, which is charged here already, so that it is not begun in vain."""
    cost = (len(text) + 1) * 0.1 * (len(pattern) + 1) * 0.25
    charge(math.floor(cost))
    count_reading(text)
    return cost


def _one_group(pattern: str) -> Regex:
    regex = compile_regex(pattern)
    if regex.groups > 1:
        count_text(len(pattern))
        problem = f"regular expression has more than one capturing group: {quoted(pattern)}"
        raise EvaluationError(problem)
    return regex


def _text(raw: bytes, found: Match, group: int) -> str:
    start, end = found.span(group)
    count_text(end - start)
    return raw[start:end].decode() if start >= 0 else ""


def _extract(text: str, pattern: str) -> Optional:
    cost = _search_cost(text, pattern)
    charge(math.ceil(cost + 1) - math.floor(cost))
    regex, raw = _one_group(pattern), text.encode()
    found = regex.find(raw)
    part = "" if found is None else _text(raw, found, regex.groups)
    # An empty group is as good as none, an empty match is one.
    return NONE if found is None or (regex.groups and not part) else Optional(part)


def _extract_all(text: str, pattern: str) -> list[object]:
    cost = _search_cost(text, pattern)
    regex, raw = _one_group(pattern), text.encode()
    parts: list[object] = []
    for found in regex.find_all(raw):
        part = _text(raw, found, regex.groups)
        if part or not regex.groups:
            count_items(1)
            parts.append(part)
    charge(math.ceil(cost + len(parts) + _LIST) - math.floor(cost))
    return parts


def _replace(text: str, pattern: str, replacement: str, limit: int = -1) -> str:
    cost = _search_cost(text, pattern)
    if limit == 0:
        charge(math.floor(cost + len(text)) - math.floor(cost))
        return text
    if len(replacement) > _LONGEST:
        found = f"found {len(replacement)} characters, expected at most {_LONGEST}"
        raise EvaluationError(f"invalid replacement string: {found}")
    regex, raw = compile_regex(pattern), text.encode()
    parts: list[str] = []
    last = 0
    for number, match in enumerate(regex.find_all(raw)):
        if number == limit:
            break
        start, end = match.span()
        # A part between two matches is at most that of the text.
        parts.append(raw[last:start].decode())
        parts.append(_replaced(raw, regex, match, replacement))
        last = end
    result = "".join([*parts, raw[last:].decode()])
    count_text(len(result), text, replacement)
    charge(math.floor(cost + len(result)) - math.floor(cost))
    return result


def _replaced(raw: bytes, regex: Regex, found: Match, replacement: str) -> str:
    """Return *replacement* with the groups of the match *found* in place of their references."""
    count_text(5 * len(replacement))
    if "\\" not in replacement:
        return replacement
    parts = []
    characters = iter(replacement)
    invalid = f"invalid replacement string: '{replacement}' \\"
    for character in characters:
        if character != "\\":
            parts.append(character)
            continue
        following = next(characters, None)
        if following is None:
            raise EvaluationError(f"{invalid} not allowed at end")
        if following == "\\":
            parts.append(following)
            continue
        if following not in "0123456789":
            raise EvaluationError(f"{invalid} must be followed by a digit or \\")
        group = int(following)
        if group > regex.groups:
            has = f"regex has only {regex.groups} group(s)"
            raise EvaluationError(f"replacement string references group {group} but {has}")
        parts.append(_text(raw, found, group))
    return "".join(parts)


FUNCTIONS: Final[tuple[Function, ...]] = (
    function(
        "regex_extract_string_string",
        "regex.extract(string, string) -> optional_type(string)",
        _extract,
        1,
    ),
    function(
        "regex_extractAll_string_string",
        "regex.extractAll(string, string) -> list(string)",
        _extract_all,
        1,
    ),
    function(
        "regex_replace_string_string_string",
        "regex.replace(string, string, string) -> string",
        _replace,
        1,
    ),
    function(
        "regex_replace_string_string_string_int",
        "regex.replace(string, string, string, int) -> string",
        _replace,
        1,
    ),
)
