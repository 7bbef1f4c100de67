"""JSON that orjson refuses, and an API server sends all the same.

A custom resource may have 10,000 levels, where orjson reads 1,024. A field that is stored as the client wrote
it, such as ``data`` of a ControllerRevision, may also hold texts that are not Unicode, where Go reads U+FFFD.
API servers send no numbers beyond a double.

Source: Go encoding/json (scanner.go, maxNestingDepth; decode.go, unquoteBytes); tests/e2e/test_raw_json.py.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

MAX_LEVELS: Final = 10_500
"""Objects and arrays inside one another, checked where a band begins. Go reads 10,000 of an object, and a
review has its own around them."""

_BAND: Final = 500
"""Every so many levels it is decided what is read apart. Two bands are less than orjson reads."""

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_PAIR: Final = re.compile(rb"\\(u[dD][89abAB][0-9a-fA-F]{2})\\(u[dD][c-fC-F][0-9a-fA-F]{2})")
_MARKS: Final = re.compile(rb"[\x01\x02]")
_ESCAPED_BYTE: Final = re.compile("[\udc80-\udcff]")
_PLAIN: Final = rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+'
_BRACKET: Final = re.compile(
    # Containers with no others inside are passed over. Nothing is tried more than twice, so that the time is
    # linear whatever the text.
    rb"%b(?:(?:\[%b\]|\{%b\})%b)*+(?:([\[{])|([\]}])|.|\Z)" % (_PLAIN, _PLAIN, _PLAIN, _PLAIN),
    re.DOTALL,
)


def repaired(text: bytes) -> bytes:
    """Return the JSON *text* with U+FFFD in place of bytes and escapes in it that are not Unicode."""
    # The marks stand in no JSON.
    if _SURROGATE.search(text) and not _MARKS.search(text):
        marked = _PAIR.sub(b"\x02\\1\x02\\2", text.replace(b"\\\\", b"\x01"))
        text = _SURROGATE.sub(rb"\\ufffd", marked).replace(b"\x02", b"\\").replace(b"\x01", b"\\\\")
    return _ESCAPED_BYTE.sub("\ufffd", text.decode(errors="surrogateescape")).encode()


def read_deep(text: bytes) -> object:
    """Return what the JSON *text* says, with empty objects and arrays in place of what nests too deeply.

    At least the first 500 levels are complete. What is left out is checked all the same. The time is linear.

    Raises:
        orjson.JSONDecodeError: not JSON, or more than ``MAX_LEVELS`` levels.
    """
    return orjson.loads(_pruned(text))


class _Container:
    """An object or array that begins a band."""

    __slots__ = ("has_band", "number_before")

    def __init__(self, number_before: int) -> None:
        self.number_before = number_before
        """Pieces of text before it."""
        self.has_band = False
        """Whether another band begins inside."""


def _pruned(text: bytes) -> bytes:
    """Return *text* with those containers emptied that begin a band and hold the beginning of the next."""
    pieces: list[bytes] = []
    open_bands: list[_Container] = []
    level = done = 0
    for match in _BRACKET.finditer(text):
        if match[1]:
            level += 1
            if level % _BAND == 0:
                if level > MAX_LEVELS:
                    break
                if open_bands:
                    open_bands[-1].has_band = True
                pieces.append(text[done : match.end() - 1])
                done = match.end() - 1
                open_bands.append(_Container(len(pieces)))
        elif match[2]:
            if level % _BAND == 0 and open_bands:
                container = open_bands.pop()
                pieces.append(text[done : match.end()])
                done = match.end()
                if container.has_band:
                    content = b"".join(pieces[container.number_before :])
                    orjson.loads(content)
                    pieces[container.number_before :] = [content[:1] + content[-1:]]
            level -= 1
        else:
            break
    return b"".join([*pieces, text[done:]])
