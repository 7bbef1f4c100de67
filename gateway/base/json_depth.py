"""JSON that nests deeper than orjson reads, which is 1,024 levels; API servers take 10,000."""

from __future__ import annotations

import re
from typing import Final

MAX_LEVELS: Final = 300
"""More than orjson writes, so that an object of which a part is left out is recognised as too deep."""
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_QUOTE: Final = ord('"')


def without_depth(text: bytes) -> bytes:
    """Return *text*, JSON, with null in place of each list and mapping below ``MAX_LEVELS`` levels.

    Never raises, whatever *text* is.
    """
    pieces: list[bytes] = []
    levels = begin = 0
    for token in _TOKEN.finditer(text):
        character = text[token.start()]
        if character == _QUOTE:
            continue
        if character in b"[{":
            levels += 1
            if levels == MAX_LEVELS + 1:
                pieces.append(text[begin : token.start()])
        else:
            levels -= 1
            if levels == MAX_LEVELS:
                pieces.append(b"null")
                begin = token.end()
    return b"".join([*pieces, text[begin:]]) if levels <= MAX_LEVELS else text
