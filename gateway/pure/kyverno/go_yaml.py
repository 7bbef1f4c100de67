"""Texts as Go's YAML encoder writes them: plain, quoted, or in several lines.

Kyverno writes the messages of its rules so.

Source: go.yaml.in/yaml/v3 encode.go (stringv), resolve.go, emitterc.go (analyze_scalar, select_scalar_style,
write_*_scalar), sorter.go.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import cmp_to_key
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS: Final = frozenset(
    word
    for group in (
        "true True TRUE false False FALSE ~ null Null NULL .nan .NaN .NAN .inf .Inf .INF +.inf +.Inf +.INF",
        "-.inf -.Inf -.INF y Y yes Yes YES on On ON n N no No NO off Off OFF",
    )
    for word in group.split()
)
"""What would be read as another type than a text."""
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DOTTED_FLOAT: Final = re.compile(r"\.[0-9][0-9_]*([eE][-+]?[0-9]+)?")
_INTEGER: Final = re.compile(
    r"[-+]?(0[xX]_?[0-9a-fA-F]+(_[0-9a-fA-F]+)*|0[bB]_?[01]+(_[01]+)*|0[oO]?_?[0-7]+(_[0-7]+)*|0|[1-9][0-9]*)"
)
_SIGNED_LATE: Final = re.compile(r"0b[-+][01]{1,63}|0o[-+][0-7]{1,21}")
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)"
    r"(?:[Tt](\d\d?):(\d\d?):(\d\d?)(?:[.,]\d+)?(?:Z|[-+](\d\d):(\d\d))"
    r"|\x20(\d\d?):(\d\d?):(\d\d?)(?:[.,]\d+)?)?",
    re.ASCII,
)
_ESCAPES: Final = {
    "\0": "0",
    "\a": "a",
    "\b": "b",
    "\t": "t",
    "\n": "n",
    "\v": "v",
    "\f": "f",
    "\r": "r",
    "\x1b": "e",
    '"': '"',
    "\\": "\\",
    "\x85": "N",
    "\xa0": "_",
    "\u2028": "L",
    "\u2029": "P",
}
_BREAKS: Final = "\r\n\x85\u2028\u2029"
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff\U00010000-\U0010ffff]"
)
_ESCAPED: Final = re.compile(f'["\\\\\t\n\u2028\u2029{_UNPRINTABLE.pattern[1:]}')
_INDICATORS: Final = frozenset("#,[]{}&*!|>'\"%@`")
_LONGEST_KEY_BYTES: Final = 128
"""A longer key is written in a form of its own. Names of rules are shorter."""


def as_yaml(policies: Mapping[str, Mapping[str, str]]) -> str:
    """Return *policies*, each a mapping of texts, as a document with an indentation of two blanks."""
    lines: list[str] = []
    for name in sorted(policies, key=_KEY_ORDER):
        found = policies[name]
        rules = [f"  {scalar(rule, 2)}: {scalar(found[rule], 4)}" for rule in sorted(found, key=_KEY_ORDER)]
        if len(name.encode()) > _LONGEST_KEY_BYTES:
            rules[0] = f"? {scalar(name, 2)}\n: {rules[0].removeprefix('  ')}"
        else:
            lines.append(f"{scalar(name, 2)}:\n")
        lines += [line if line[-1] in _BREAKS else f"{line}\n" for line in rules]
    return "".join(lines)


def scalar(text: str, indent: int) -> str:
    """Return *text* as a key or value; its further lines begin with *indent* blanks.

    It ends with a line break only if it is in lines of its own, and ends with one.
    """
    # A lone surrogate, which no JSON has, would be one of Go's replacement characters.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    is_block, is_plain, is_single = _styles(text)
    if "\n" in text:
        return _literal(text, indent) if is_block else _double_quoted(text)
    if not _is_text(text):
        return _double_quoted(text)
    if is_plain:
        return text
    return _single_quoted(text, indent) if is_single else _double_quoted(text)


def _styles(text: str) -> tuple[bool, bool, bool]:
    """Return whether *text* may be written in lines of its own, plain, and in single quotes."""
    has_special = _UNPRINTABLE.search(text) is not None
    has_breaks = any(each in text for each in _BREAKS)
    space_break = re.search(f" [{_BREAKS}]", text) is not None
    break_space = re.search(f"[{_BREAKS}] ", text) is not None
    begins_or_ends = text[:1] in (" ", *_BREAKS) or text[-1:] in (" ", *_BREAKS)
    is_block = text != "" and not (text.endswith(" ") or space_break or has_special)
    is_single = not (break_space or space_break or "\t" in text or has_special)
    is_plain = is_single and not (begins_or_ends or has_breaks or _has_indicators(text))
    return is_block, is_plain, is_single


def _has_indicators(text: str) -> bool:
    """Whether *text* would be read as more than one plain text."""
    if text[:1] in _INDICATORS or text.startswith(("---", "...")):
        return True
    if re.match(r"[-?:](?:[ \t]|\Z)", text):
        return True
    return re.search(rf":(?:[ \t]|\Z)|[ \t{_BREAKS}\0]#", text) is not None


def _is_text(text: str) -> bool:
    """Whether a plain *text* is read as a text."""
    if text == "" or text in _WORDS:
        return False
    if text[0] == ".":
        return not _DOTTED_FLOAT.fullmatch(text)
    if text[0] not in "+-0123456789":
        return True
    plain = text.replace("_", "")
    return not (
        _BASE_60.fullmatch(text)
        or _is_integer(plain)
        or (_FLOAT.fullmatch(plain) and abs(float(plain)) != float("inf"))
        or _is_time(text)
    )


def _is_integer(text: str) -> bool:
    if _SIGNED_LATE.fullmatch(text):
        return True
    found = _INTEGER.fullmatch(text)
    if found is None:
        return False
    digits = text.lstrip("+-").lower()
    value = int(digits[1:], 8) if re.fullmatch("0[0-7]+", digits) else int(digits, 0)
    if text.startswith("-"):
        return value <= 2**63
    # ParseUint takes no sign.
    return value < 2**63 if text.startswith("+") else value < 2**64


def _is_time(text: str) -> bool:
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    year, month, day, *rest = found.groups()
    zone = rest[3:5]
    hour, minute, second = next(
        (each for each in (rest[:3], rest[5:]) if each[0] is not None), ("0", "0", "0")
    )
    try:
        # Go has the year 0, and 24 hours in a zone.
        datetime(int(year) or 4, int(month), int(day), int(hour), int(minute), int(second))  # noqa: DTZ001
    except ValueError:
        return False
    return zone[0] is None or (int(zone[0]) <= 24 and int(zone[1]) < 60)


def _single_quoted(text: str, indent: int) -> str:
    lines = re.sub(f"(?<=[{_BREAKS}])(?=[^{_BREAKS}])", " " * indent, text.replace("'", "''"))
    return f"'{lines}'"


def _double_quoted(text: str) -> str:
    is_after_bom = text.startswith("\ufeff")
    escaped = _ESCAPED.sub(_escape, text)
    if is_after_bom:
        # Go looks for the mark at the beginning, whichever character it writes.
        escaped = "".join(map(_escape_one, text))
    return f'"{escaped}"'


def _escape(found: re.Match[str]) -> str:
    return _escape_one(found[0])


def _escape_one(character: str) -> str:
    if short := _ESCAPES.get(character):
        return f"\\{short}"
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _literal(text: str, indent: int) -> str:
    """Return *text* in lines of its own."""
    hint = "2" if text[0] in (" ", *_BREAKS) else ""
    if text[-1] not in _BREAKS:
        hint += "-"
    elif len(text) == 1 or text[-2] in _BREAKS:
        hint += "+"
    margin = " " * indent
    lines = re.split(f"(\r\n|[{_BREAKS}])", text)
    written = "".join(
        each if number % 2 or not each else f"{margin}{each}" for number, each in enumerate(lines)
    )
    return f"|{hint}\n{written}"


def _compare(left: str, right: str) -> int:
    """Compare keys as Go sorts them: numbers in them by their values."""
    digits = False
    for at, (one, other) in enumerate(zip(left, right, strict=False)):
        if one == other:
            digits = one.isdigit()
            continue
        if one.isalpha() or other.isalpha():
            if one.isalpha() and other.isalpha():
                return -1 if one < other else 1
            return -1 if (one.isalpha() if digits else other.isalpha()) else 1
        return _compare_numbers(left, right, at)
    return len(left) - len(right)


def _compare_numbers(left: str, right: str, at: int) -> int:
    start = 0
    if "0" in (left[at], right[at]):
        before = at - 1
        while before >= 0 and left[before].isdigit():
            if left[before] != "0":
                start = 1
                break
            before -= 1
    (end, number), (other_end, other) = (_number(text, at, start) for text in (left, right))
    for one, two in ((number, other), (end, other_end)):
        if one != two:
            return -1 if one < two else 1
    return -1 if left[at] < right[at] else 1


def _number(text: str, at: int, start: int) -> tuple[int, int]:
    """Return the end of the digits from *at* on, and their value as an int64 with *start* before them."""
    value = start
    while at < len(text) and text[at].isdecimal():
        value = value * 10 + ord(text[at]) - ord("0")
        at += 1
    return at, (value + 2**63) % 2**64 - 2**63


_KEY_ORDER: Final = cmp_to_key(_compare)
