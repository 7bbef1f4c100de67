"""The Semver functions of Kubernetes.

Source: k8s.io/apiserver pkg/cel/library/semverlib.go (version 1); github.com/blang/semver/v4 semver.go.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import ClassVar, Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import function
from gateway.pure.cel.meter import charge, count_items, count_steps, count_text
from gateway.pure.cel.values import quoted

_DIGITS: Final = re.compile("[0-9]*")
_LONGEST: Final = 20
"""Digits of a number of 64 bits."""
_WORD: Final = re.compile("[0-9A-Za-z-]+")
_MOST: Final = 2**64 - 1
_WORD_STEPS: Final = 20
"""Steps to compare two words of pre-releases."""
_WORD_ITEMS: Final = 20
"""The number of items of a list that take as much memory as a word of a pre-release."""


@dataclass(frozen=True, slots=True)
class Semver:
    """A version, without build metadata."""

    cel_type: ClassVar[str] = "kubernetes.Semver"
    key: tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]
    """Sorts as versions do: a version without pre-release after those with one, numbers before words."""
    comparison_steps: int = field(compare=False)
    """Steps to compare it with another version."""


def _number(text: str, which: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in {which} number {quoted(text)}")
    return _value(text, f"{which.capitalize()} number")


def _value(digits: str, which: str) -> int:
    if len(digits) > 1 and digits[0] == "0":
        raise EvaluationError(f"{which} must not contain leading zeroes {quoted(digits)}")
    if not digits or len(digits) > _LONGEST or int(digits) > _MOST:
        problem = "value out of range" if digits else "invalid syntax"
        raise EvaluationError(f"strconv.ParseUint: parsing {quoted(digits)}: {problem}")
    return int(digits)


def _pre_release(text: str) -> tuple[bool, int, str]:
    if not text:
        raise EvaluationError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        return False, _value(text, "Numeric PreRelease version"), ""
    if not _WORD.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in prerelease {quoted(text)}")
    return True, 0, text


def _parsed(text: str) -> Semver:
    parts = text.split(".", 2)
    if not text or len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found" if text else "Version string empty")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    rest, plus, build = parts[2].partition("+")
    patch, minus, pre = rest.partition("-")
    count_items((pre.count(".") + build.count(".")) * _WORD_ITEMS)
    number = _number(patch, "patch")
    words = tuple(_pre_release(word) for word in pre.split(".")) if minus else ()
    for word in build.split(".") if plus else ():
        if not word:
            raise EvaluationError("Build meta data is empty")
        if not _WORD.fullmatch(word):
            raise EvaluationError(f"Invalid character(s) found in build meta data {quoted(word)}")
    return Semver((major, minor, number, not words, words), len(words) * _WORD_STEPS + (len(pre) >> 5))


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for position, part in enumerate(parts):
        if len(part.encode()) > 1:
            bare = part.lstrip("0")
            parts[position] = bare if bare[:1] in tuple("123456789") else f"0{bare}"
    if len(parts) < 3 and re.search("[+-]", parts[-1]):
        raise EvaluationError("short version cannot contain PreRelease/Build meta data")
    return ".".join([*parts, "0", "0"][:3] if len(parts) < 3 else parts)


def _semver(text: str, normalize: bool = False) -> Semver:
    charge(math.ceil(len(text) * 0.1))
    count_text(2 * len(text))
    return _parsed(_normalized(text) if normalize else text)


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _semver(text, normalize)
    except EvaluationError:
        return False
    return True


def _signed(number: int) -> int:
    """Return *number* as Go converts uint64 to int64."""
    return number - 2**64 if number >= 2**63 else number


def _major(version: Semver) -> int:
    charge(1)
    return _signed(version.key[0])


def _minor(version: Semver) -> int:
    charge(1)
    return _signed(version.key[1])


def _patch(version: Semver) -> int:
    charge(1)
    return _signed(version.key[2])


def _compare(version: Semver, other: Semver) -> int:
    charge(1)
    count_steps(version.comparison_steps)
    return (version.key > other.key) - (version.key < other.key)


_TYPE: Final = "kubernetes.Semver"
FUNCTIONS: Final = (
    function("string_to_semver", f"semver(string) -> {_TYPE}", _semver),
    function("string_bool_to_semver", f"semver(string, bool) -> {_TYPE}", _semver),
    function("is_semver_string", "isSemver(string) -> bool", _is_semver),
    function("is_semver_string_bool", "isSemver(string, bool) -> bool", _is_semver),
    function("semver_major", f"{_TYPE}::major() -> int", _major),
    function("semver_minor", f"{_TYPE}::minor() -> int", _minor),
    function("semver_patch", f"{_TYPE}::patch() -> int", _patch),
    function("semver_compare_to", f"{_TYPE}::compareTo({_TYPE}) -> int", _compare),
    function("semver_is_less_than", f"{_TYPE}::isLessThan({_TYPE}) -> bool", lambda a, b: _compare(a, b) < 0),
    function(
        "semver_is_greater_than", f"{_TYPE}::isGreaterThan({_TYPE}) -> bool", lambda a, b: _compare(a, b) > 0
    ),
)
