"""JSON values from an input's bytes, and changes within valid documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from tests.kit import REVIEWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fuzz.source import Source

RECORDED: Final = [file.read_bytes() for file in sorted(REVIEWS.glob("*.json"))]
"""AdmissionReviews as API servers sent them."""

SCALARS: Final[Sequence[Any]] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63 - 1,
    2**64 - 1,
    -(2**63),
    0.0,
    -0.0,
    1.5,
    1e308,
    5e-324,
    "",
    "a",
    "/",
    "~",
    "~1",
    "a/b",
    "-",
    "\0",
    "\u2028",
    "\u00e9",
    "\U0001f600",
    "x" * 70,
    "y" * 300,
    "z" * 70_000,
]
SPLICES: Final[Sequence[bytes]] = [
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"-0",
    b"01",
    b"9" * 400,
    b"\xff",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\\u0000",
    b"\0",
    b"\xef\xbb\xbf",
    b'"a":1,"a":2,',
    b"[" * 300,
    b"]" * 3,
    b"{",
    b"}",
    b",",
    b'"',
    b"\r\n",
    b"//",
    b"null",
    b'{"a":' * 300,
]
"""Invalid, unusual and oversized JSON."""

_MAX_DEPTH: Final = 5


def value(source: Source, words: Sequence[str], depth: int = 0) -> Any:
    """Return a JSON value, with *words* for texts and keys."""
    kind = source.byte() % 16
    if kind < 4 or (kind > 9 and depth >= _MAX_DEPTH):
        return source.one_of(SCALARS)
    if kind < 7:
        return source.one_of(words)
    if kind == 7:
        return source.take(source.byte() % 40).decode("latin-1")
    if kind == 8:
        return int.from_bytes(source.take(source.byte() % 9), "big", signed=True)
    if kind == 9:
        return nested(source.one_of((3, 60, 120, 240, 250, 252, 254, 300)), in_lists=source.chance(2))
    count = source.byte() % 5
    if kind < 13:
        return [value(source, words, depth + 1) for _ in range(count)]
    return {key(source, words): value(source, words, depth + 1) for _ in range(count)}


def key(source: Source, words: Sequence[str]) -> str:
    """Return a key, mostly one of *words*."""
    return source.take(source.byte() % 20).decode("latin-1") if source.chance(8) else source.one_of(words)


def nested(levels: int, *, in_lists: bool) -> Any:
    """Return a value that is nested in so many *levels*."""
    held: Any = 1
    for _ in range(levels):
        held = [held] if in_lists else {"a": held}
    return held


def edited(source: Source, document: Any, words: Sequence[str]) -> Any:
    """Return *document*, which may be changed, after up to 7 changes."""
    holder = [document]
    for _ in range(source.byte() % 8):
        _edit(source, holder, words)
    return holder[0]


def _edit(source: Source, holder: list[Any], words: Sequence[str]) -> None:
    place: Any = holder
    at: Any = 0
    while isinstance(place[at], dict | list) and place[at] and not source.chance(5):
        place = place[at]
        at = source.one_of(list(place)) if isinstance(place, dict) else source.below(len(place))
    action = source.byte() % 8
    held = place[at]
    if action == 0 and place is not holder:
        del place[at]
    elif action < 3 and isinstance(held, dict):
        held[key(source, words)] = value(source, words)
    elif action < 3 and isinstance(held, list):
        held.insert(source.below(len(held) + 1), value(source, words))
    elif action == 3:
        place[at] = [held]
    elif action == 4 and isinstance(held, list):
        place[at] = held * (1 + source.byte() % 8)
    elif action == 5 and isinstance(held, str):
        place[at] = held + source.one_of(words)
    else:
        place[at] = value(source, words)


def dumped(held: Any) -> bytes:
    """Return the JSON of a value that may nest deeper than orjson writes, as a test needs."""
    try:
        return orjson.dumps(held)
    except TypeError:
        return _dumped_deep(held)


def _dumped_deep(held: Any) -> bytes:
    if isinstance(held, dict):
        return b"{" + b",".join(orjson.dumps(k) + b":" + _dumped_deep(v) for k, v in held.items()) + b"}"
    if isinstance(held, list):
        return b"[" + b",".join(map(_dumped_deep, held)) + b"]"
    if isinstance(held, int) and not -(2**63) <= held < 2**64:
        return str(held).encode()
    return orjson.dumps(held)


def spliced(source: Source, text: bytes) -> bytes:
    """Return *text*, mostly as it is, else with something foreign in up to 3 places."""
    if not source.chance(4):
        return text
    for _ in range(1 + source.byte() % 3):
        at = source.below(len(text) + 1)
        piece = source.one_of(SPLICES) if source.chance(2) else source.take(source.byte() % 16)
        text = text[:at] + piece + text[at + source.byte() % 4 :]
    return text


def words_of(*documents: Any) -> list[str]:
    """Return the keys and short texts in *documents*, each once."""
    found: dict[str, None] = {}
    pending = list(documents)
    while pending:
        held = pending.pop()
        if isinstance(held, dict):
            found |= dict.fromkeys(held)
            pending += held.values()
        elif isinstance(held, list):
            pending += held
        elif isinstance(held, str) and len(held) <= 60 and not re.fullmatch(r"[0-9a-f-]{36}", held):
            found[held] = None
    return sorted(found)
