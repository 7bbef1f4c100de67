"""Long lists and texts in chunks.

A call of C code holds the interpreter lock to its end, also in the thread of long evaluations, and the event
loop waits for it. What takes more than some nanoseconds for an item or character sees a chunk at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ITEMS: Final = 10_000
CHARACTERS: Final = 100_000


def chunks(items: Sequence[object]) -> Iterator[Sequence[object]]:
    """Yield *items* in sequences of at most ``ITEMS``."""
    if len(items) <= ITEMS:
        yield items
    else:
        for start in range(0, len(items), ITEMS):
            yield items[start : start + ITEMS]


def text_chunks(text: str) -> Iterator[str]:
    """Yield *text* in texts of at most ``CHARACTERS``."""
    for start in range(0, len(text), CHARACTERS):
        yield text[start : start + CHARACTERS]


def joined(*lists: Sequence[object]) -> list[object]:
    """Return the items of all *lists*."""
    result: list[object] = []
    for each in lists:
        for some in chunks(each):
            result += some
    return result


def split(text: str, separator: str, most: int = -1) -> list[object]:
    """Return ``text.split(separator, most)``."""
    result: list[object] = []
    while most < 0 or len(result) < most:
        some = text.split(separator, ITEMS if most < 0 else min(ITEMS, most - len(result)))
        text = some.pop()
        result += some
        if len(some) < ITEMS:
            break
    result.append(text)
    return result


def stripped(text: str, characters: str) -> str:
    """Return ``text.strip(characters)``."""
    start, end = 0, len(text)
    while start < end and not (some := text[start : min(start + CHARACTERS, end)].lstrip(characters)):
        start += CHARACTERS
    if start >= end:
        return ""
    start += min(CHARACTERS, end - start) - len(some)
    while not (some := text[max(start, end - CHARACTERS) : end].rstrip(characters)):
        end -= CHARACTERS
    return text[start : max(start, end - CHARACTERS) + len(some)]
