"""The string functions of cel-go, version 2, except ``format``. Positions count characters.

Source: cel-go ext/strings.go; k8s.io/apiserver pkg/cel/library/cost.go; Go strings.
"""

from __future__ import annotations

import math
from typing import Final

from gateway.pure.cel.chunks import split, stripped, text_chunks
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import function
from gateway.pure.cel.libraries.formatting import format_string, literal
from gateway.pure.cel.meter import charge, count_items, count_reading, count_text, count_values
from gateway.pure.cel.values import ESCAPES

_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
    "\u202f\u205f\u3000"
)
_SHORT: Final = 16
_TEXT_ITEMS: Final = 6
"""Items of a list that take as much memory as a short text."""
_QUOTED: Final = str.maketrans(ESCAPES)


def _traversal(text: str, times: int = 1) -> int:
    return math.ceil(len(text) * times * 0.1)


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    charge(1)
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _charge_search(text: str) -> None:
    count_reading(text, 2)
    charge((len(text) if text.isascii() else len(text.encode())) // 10)


def _index_of(text: str, part: str, offset: int = 0) -> int:
    _charge_search(text)
    if offset < 0:
        raise _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    return text.find(part, offset)


def _last_index_of(text: str, part: str) -> int:
    _charge_search(text)
    return _last(text, part)


def _last_index_of_before(text: str, part: str, offset: int) -> int:
    _charge_search(text)
    if offset < 0:
        raise _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    return -1 if offset >= len(text) else _last(text[: offset + len(part)], part)


def _last(text: str, part: str) -> int:
    count_reading(text, 4)
    # Python searches in linear time only from the left; from the right the lengths multiply.
    if len(part) > _SHORT:
        found = text[::-1].find(part[::-1])
        return -1 if found < 0 else len(text) - found - len(part)
    return text.rfind(part)


def _lower(text: str) -> str:
    charge(_traversal(text))
    count_text(len(text), text)
    return text.encode().lower().decode()


def _upper(text: str) -> str:
    charge(_traversal(text))
    count_text(len(text), text)
    return text.encode().upper().decode()


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    charge(_traversal(text, 2))
    count_reading(text, 2)
    growth = max(0, len(new) - len(old))
    count = text.count(old) if growth else 0
    count_text(len(text) + growth * (count if limit < 0 else min(limit, count)), text, new)
    return text.replace(old, new, min(limit, len(text) + 1))


def _split(text: str, separator: str, limit: int = -1) -> list[object]:
    charge(_traversal(text, 2))
    if limit == 0:
        return []
    count_text(len(text), text)
    parts = text.count(separator) if separator else len(text)
    count_items((parts if limit < 0 else min(parts, limit)) * _TEXT_ITEMS)
    if separator:
        return split(text, separator, limit - 1 if limit > 0 else -1)
    cut = len(text) if limit < 0 or limit >= len(text) else limit - 1
    letters: list[object] = [letter for some in text_chunks(text[:cut]) for letter in some]
    return [*letters, text[cut:]] if cut < len(text) else letters


def _substring(text: str, start: int) -> str:
    charge(_traversal(text))
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    count_text(len(text) - start, text)
    return text[start:]


def _substring_between(text: str, start: int, end: int) -> str:
    charge(_traversal(text))
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    count_text(end - start, text)
    return text[start:end]


def _trim(text: str) -> str:
    charge(_traversal(text))
    count_text(len(text), text)
    return stripped(text, _SPACE)


def _quote(text: str) -> str:
    charge(_traversal(text))
    count_text(2 * len(text), text)
    return "".join(['"', *(some.translate(_QUOTED) for some in text_chunks(text)), '"'])


def _join(values: list[object], separator: str = "") -> str:
    count_values(len(values))
    size = len(separator) * max(0, len(values) - 1)
    for value in values:
        if not isinstance(value, str):
            # The first element decides the overload.
            if not isinstance(values[0], str):
                raise EvaluationError(f"no such overload: join(list{', string' if separator else ''})")
            raise EvaluationError(f"join: invalid input: {literal(value)}")
        size += len(value)
    charge(math.ceil(size * 2 * 0.1))
    count_text(size, separator, *values)  # type: ignore[arg-type]
    return separator.join(values)  # type: ignore[arg-type]


FUNCTIONS: Final = (
    function("string_char_at_int", "string::charAt(int) -> string", _char_at),
    function("string_index_of_string", "string::indexOf(string) -> int", _index_of),
    function("string_index_of_string_int", "string::indexOf(string, int) -> int", _index_of),
    function("string_last_index_of_string", "string::lastIndexOf(string) -> int", _last_index_of),
    function(
        "string_last_index_of_string_int", "string::lastIndexOf(string, int) -> int", _last_index_of_before
    ),
    function("string_lower_ascii", "string::lowerAscii() -> string", _lower),
    function("string_upper_ascii", "string::upperAscii() -> string", _upper),
    function("string_replace_string_string", "string::replace(string, string) -> string", _replace),
    function("string_replace_string_string_int", "string::replace(string, string, int) -> string", _replace),
    function("string_split_string", "string::split(string) -> list(string)", _split),
    function("string_split_string_int", "string::split(string, int) -> list(string)", _split),
    function("string_substring_int", "string::substring(int) -> string", _substring),
    function("string_substring_int_int", "string::substring(int, int) -> string", _substring_between),
    function("string_trim", "string::trim() -> string", _trim),
    function("strings_quote", "strings.quote(string) -> string", _quote),
    function("list_join", "list(string)::join() -> string", _join),
    function("list_join_string", "list(string)::join(string) -> string", _join),
    function("string_format", "string::format(list(dyn)) -> string", format_string),
)
