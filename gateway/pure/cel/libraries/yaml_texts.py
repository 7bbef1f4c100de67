"""``yaml.parse`` of Kyverno: the first document of a YAML text, as the API server's tools read YAML.

It becomes JSON: all numbers are doubles, and all keys texts. Values that an alias repeats are shared.

Source: github.com/kyverno/sdk extensions/cel/libs/yaml; sigs.k8s.io/yaml; go.yaml.in/yaml/v2 decode.go,
resolve.go.
"""

from __future__ import annotations

import binascii
import math
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Final

import yaml

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.meter import count_steps
from gateway.pure.cel.values import plain_double

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST: Final = 100_000
"""Characters of a text."""
_DEEPEST: Final = 100
"""Levels of nesting, as in a configuration."""
_PARSING: Final = 200
"""Steps for a character, which can be half a value."""
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = "<<"
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NOT_FINITE: Final = {
    **dict.fromkeys((".nan", ".NaN", ".NAN"), "NaN"),
    **{sign + word: "+Inf" for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), "-Inf"),
}
_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_MOST_DIGITS: Final = 400
"""Digits of a number. A longer one is a text, which is so in Go if it is not finite."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _parse(text: str) -> object:
    """Return the value of the first document in *text*; null if there is none."""
    if len(text) > _LONGEST:
        problem = f"found {len(text)} characters of YAML, expected at most {_LONGEST}"
        raise EvaluationError(problem)
    count_steps(len(text) * _PARSING)
    try:
        return _Composer(yaml.parse(text, Loader=_LOADER)).document()
    except yaml.MarkedYAMLError as error:
        line = (
            f"line {error.problem_mark.line + 1}: " if error.problem_mark and error.problem_mark.line else ""
        )
        raise _failed(f"{line}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML lets errors of chr() and int() through, for example for "\\UFFFFFFFF".
        raise _failed(" ".join(str(error).split())) from None


def _failed(problem: str) -> EvaluationError:
    return EvaluationError(f"error converting YAML to JSON: yaml: {problem}")


class _Composer:
    """Makes a value of the events of a parser."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._anchors: dict[str, object] = {}
        self._open: set[str] = set()
        """The anchors of the collections that are not complete."""
        self._levels = 0

    def document(self) -> object:
        """Return the value of the first document."""
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                return self._value(next(self._events))
        return None

    def _value(self, event: yaml.Event) -> object:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self._open:
                raise _failed(f"anchor '{event.anchor}' value contains itself")
            if event.anchor not in self._anchors:
                raise _failed(f"unknown anchor '{event.anchor}' referenced")
            return self._anchors[event.anchor]
        assert isinstance(event, yaml.NodeEvent)
        anchor = event.anchor
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        else:
            self._levels += 1
            if self._levels > _DEEPEST:
                raise _failed(f"nested deeper than {_DEEPEST} levels")
            if anchor is not None:
                self._open.add(anchor)
            value = self._list() if isinstance(event, yaml.SequenceStartEvent) else self._map()
            self._open.discard(anchor or "")
            self._levels -= 1
        if anchor is not None:
            self._anchors[anchor] = value
        return value

    def _list(self) -> list[object]:
        found = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            found.append(self._value(event))
        return found

    def _map(self) -> dict[object, object]:
        found: dict[object, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if _is_merge(event):
                self._merge(found, self._value(next(self._events)))
                continue
            key = self._value(event)
            value = self._value(next(self._events))
            found[_key(key)] = value
        return found

    def _merge(self, into: dict[object, object], value: object) -> None:
        """Take over the members of *value*; of a list, the first with a key counts."""
        for each in reversed(value) if isinstance(value, list) else [value]:
            if not isinstance(each, dict):
                raise _failed("map merge requires map or sequence of maps as the value")
            # An alias can be merged again and again.
            count_steps(len(each) * _PARSING)
            into |= each


def _is_merge(event: yaml.Event) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == _MERGE and event.implicit[0]


def _scalar(event: yaml.ScalarEvent) -> object:
    text: str = event.value
    if event.tag in (None, "!"):
        return _resolved(text) if event.implicit[0] else text
    kind = event.tag.removeprefix(_TAG)
    if kind == "binary":
        try:
            return b64decode("".join(text.split()), validate=True).decode(errors="replace")
        except binascii.Error:
            raise _failed("!!binary value contains invalid base64 data") from None
    if kind not in ("null", "bool", "int", "float"):
        return text
    value = _resolved(text)
    names = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}
    name = "int" if isinstance(value, float) and _whole(text) is not None else names[type(value)]
    if name != kind and not (name == "int" and kind == "float"):
        raise _failed(f"cannot decode !!{name} `{text[:100]}` as a !!{kind}")
    return value


def _resolved(text: str) -> object:
    """Return the value of the plain scalar *text*."""
    if text in _WORDS:
        return _WORDS[text]
    if text in _NOT_FINITE:
        problem = f"error converting YAML to JSON: json: unsupported value: {_NOT_FINITE[text]}"
        raise EvaluationError(problem)
    if text[0] not in "0123456789+-." or len(text) > _MOST_DIGITS:
        return text
    if (whole := _whole(text)) is not None:
        return float(whole)
    digits = text if text[0] == "." else text.replace("_", "")
    if _FLOAT.fullmatch(digits) and math.isfinite(number := float(digits)):
        return number
    return text


def _whole(text: str) -> int | None:
    """Return the integer *text*; None if it is none, or has more than 64 bits."""
    digits = text.replace("_", "")
    if text[:1] == "." or not _INTEGER.fullmatch(digits):
        return None
    sign = -1 if digits[0] == "-" else 1
    digits = digits.lstrip("+-")
    if digits[:1] == "0" and digits[1:2].isdigit():
        digits = f"0o{digits}"
    whole = sign * int(digits, 0)
    return whole if -(1 << 63) <= whole < 1 << 64 else None


def _key(value: object) -> str:
    """Return the key of JSON for the key *value* of YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return plain_double(value)
    if isinstance(value, str):
        return value
    raise _failed("invalid map key" if value is not None else "unsupported map key of type: null")


FUNCTIONS: Final[tuple[Function, ...]] = (
    # The variable before the dot costs one unit, too.
    function("parse_string_dyn", "yaml.parse(string) -> dyn", _parse, 2),
)
