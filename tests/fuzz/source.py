"""The bytes of one input as decisions: which of these, how many, yes or no, and texts taken as they are.

Every input means something, the empty one too: where bytes run out, each decision is the first choice. So an
engine that only knows bytes, and changes, joins and cuts them, still steers what a target builds from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


class Source:
    """Reads an input from its start."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        """Whether all decisions from here on are first choices."""
        return self._at >= len(self._data)

    def byte(self) -> int:
        """Return the next byte, 0 past the end."""
        at = self._at
        self._at = at + 1
        return self._data[at] if at < len(self._data) else 0

    def below(self, limit: int) -> int:
        """Return a number from 0 to *limit* - 1, of two bytes where one is not enough."""
        number = self.byte() if limit <= 256 else self.byte() << 8 | self.byte()
        return number % limit

    def one_of(self, choices: Sequence[T]) -> T:
        """Return one of *choices*."""
        return choices[self.below(len(choices))]

    def chance(self, of: int) -> bool:
        """Return True for one byte in *of*, and never past the end."""
        return self.byte() % of == of - 1

    def take(self, length: int) -> bytes:
        """Return the next *length* bytes, fewer at the end."""
        at = self._at
        self._at = at + length
        return self._data[at : at + length]

    def rest(self) -> bytes:
        """Return all that is left."""
        return self.take(len(self._data))

    def pieces(self, whole: bytes) -> list[bytes]:
        """Return *whole* cut at up to 7 places, without empty pieces."""
        cuts = sorted(self.below(len(whole)) for _ in range(self.byte() % 8)) if whole else []
        return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]
