"""Texts that count their comparisons, for tests that work grows with the size of an object only."""

from __future__ import annotations

from typing import ClassVar


class Counted(str):
    """A text whose comparisons with other texts are counted."""

    __slots__ = ()
    comparisons: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__ne__(self, other)

    __hash__ = str.__hash__
