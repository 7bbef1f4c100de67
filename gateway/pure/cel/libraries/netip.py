"""Messages of Go's net/netip for invalid addresses. The addresses themselves are of Python's ipaddress.

Source: Go net/netip netip.go (ParseAddr, ParsePrefix).
"""

from __future__ import annotations

import re
from typing import Final

from gateway.pure.cel.values import quoted

_HEX: Final = re.compile("[0-9A-Fa-f]*")
_SEPARATOR: Final = re.compile("[.:%]")
_FIELDS: Final = 8
_GROUP_PROBLEMS: Final = (
    "each group must have 4 or less digits",
    "each colon-separated field must have at least one digit",
)
_COLON_PROBLEMS: Final = (
    "unexpected character, want colon",
    "colon must be followed by more characters",
)


def address_problem(text: str) -> str:
    """Return Go's message for *text*, which is not an address."""
    problem, at = _problem(text)
    return f"ParseAddr({quoted(text)}): {problem}" + (f" (at {quoted(at)})" if at else "")


def _problem(text: str) -> tuple[str, str]:
    """Return the problem, and the rest of the text from its position if Go shows it."""
    first = _SEPARATOR.search(text)
    if first is None:
        return "unable to parse IP", ""
    if first[0] == "%":
        return "missing IPv6 address", ""
    return _problem4(text) if first[0] == "." else _problem6(text)


def _problem4(text: str) -> tuple[str, str]:
    fields, digits = 0, ""
    for index, character in enumerate(text):
        if "0" <= character <= "9":
            if digits == "0":
                return "IPv4 field has octet with leading zero", ""
            digits += character
            if int(digits) > 255:
                return "IPv4 field has value >255", ""
        elif character == ".":
            if index in (0, len(text) - 1) or text[index - 1] == ".":
                return "IPv4 field must have at least one digit", text[index:]
            if fields == 3:
                return "IPv4 address too long", ""
            fields, digits = fields + 1, ""
        else:
            return "unexpected character", text[index:]
    return "IPv4 address too short" if fields < 3 else "", ""


def _problem6(text: str) -> tuple[str, str]:
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        return "zone must be a non-empty string", ""
    has_gap = rest.startswith("::")
    rest = rest.removeprefix("::")
    fields = 0
    while fields < _FIELDS:
        digits = _HEX.match(rest)[0]  # type: ignore[index]
        if not 1 <= len(digits) <= 4:
            return _GROUP_PROBLEMS[not digits], rest
        if rest[len(digits) :].startswith("."):
            return _embedded(rest, fields, has_gap)
        fields += 1
        rest = rest[len(digits) :]
        if not rest:
            break
        if rest[0] != ":" or rest == ":":
            return _COLON_PROBLEMS[rest == ":"], rest
        rest = rest[1:]
        if rest[0] == ":":
            if has_gap:
                return "multiple :: in address", rest
            has_gap, rest = True, rest[1:]
            if not rest:
                break
    if rest:
        return "trailing garbage after address", rest
    return _count_problem(fields, has_gap)


def _embedded(rest: str, fields: int, has_gap: bool) -> tuple[str, str]:
    """Return the problem of *rest*, the IPv4 address at the end."""
    if not has_gap and fields != _FIELDS - 2:
        return "embedded IPv4 address must replace the final 2 fields of the address", rest
    if fields > _FIELDS - 2:
        return "too many hex fields to fit an embedded IPv4 at the end of the address", rest
    problem = _problem4(rest)
    return problem if problem[0] else _count_problem(fields + 2, has_gap)


def _count_problem(fields: int, has_gap: bool) -> tuple[str, str]:
    if fields < _FIELDS and not has_gap:
        return "address string too short", ""
    return "the :: must expand to at least one field of zeros", ""


def prefix_problem(text: str, address: object | None) -> str:
    """Return Go's message for *text*, not a prefix; *address* is the one before the slash, if any."""
    where, slash, bits = text.rpartition("/")
    if not slash:
        problem = "no '/'"
    elif address is None:
        problem = address_problem(where)
    elif "%" in where:
        problem = "IPv6 zones cannot be present in a prefix"
    elif not re.fullmatch("[0-9]|[1-9][0-9]{0,17}", bits):
        problem = f"bad bits after slash: {quoted(bits)}"
    else:
        problem = "prefix length out of range"
    return f"netip.ParsePrefix({quoted(text)}): {problem}"
