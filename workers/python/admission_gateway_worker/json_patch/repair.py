"""JSON that is not Unicode, made readable for orjson.

A field that is stored as the client wrote it, such as ``data`` of a ControllerRevision, may contain strings
that are not Unicode, where Go reads U+FFFD.

Source: Go encoding/json (decode.go, unquoteBytes); tests/e2e/test_raw_json.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

_REPAIRED_AT_ONCE_BYTES: Final = 32 * 1024
"""Takes about five milliseconds at most."""

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_PAIR: Final = re.compile(rb"\\(u[dD][89abAB][0-9a-fA-F]{2})\\(u[dD][c-fC-F][0-9a-fA-F]{2})")
_MARKS: Final = re.compile(rb"[\x01\x02]")
_ESCAPED_BYTE: Final = re.compile("[\udc80-\udcff]")
_WHOLE_ESCAPES: Final = re.compile(rb"(?:[^\\]++|\\u.{4}|\\[^u])*+", re.DOTALL)


def repaired(text: bytes) -> bytes:
    """Return the JSON *text* with U+FFFD in place of bytes and escapes that are not Unicode."""
    # The marks occur in no JSON.
    if _SURROGATE.search(text) and not _MARKS.search(text):
        marked = _PAIR.sub(b"\x02\\1\x02\\2", text.replace(b"\\\\", b"\x01"))
        text = _SURROGATE.sub(rb"\\ufffd", marked).replace(b"\x02", b"\\").replace(b"\x01", b"\\\\")
    return _ESCAPED_BYTE.sub("\ufffd", text.decode(errors="surrogateescape")).encode()


def repaired_in_steps(text: bytes) -> Generator[None, None, bytes]:
    """Do as ``repaired``; yields between steps."""
    pieces: list[bytes] = []
    offset = 0
    while offset < len(text):
        end = _repairable(text, offset, offset + _REPAIRED_AT_ONCE_BYTES)
        pieces.append(repaired(text[offset:end]))
        offset = end
        yield
    return b"".join(pieces)


def _repairable(text: bytes, offset: int, end: int) -> int:
    """Return the end of the piece of *text* from *offset* to about *end*, at the end of a character."""
    if end >= len(text):
        return len(text)
    match = _WHOLE_ESCAPES.match(text, offset, end)
    end = match.end() if match else end
    if _PAIR.match(text, end - 6, end + 6):
        return end + 6
    if text[end] & 0xC0 == 0x80:
        # Inside a character, if one begins at most three bytes before.
        return next((end - before for before in (1, 2, 3) if text[end - before] >= 0xC0), end)
    return end
