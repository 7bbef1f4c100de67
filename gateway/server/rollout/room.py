"""The bound of what a store of rollout plans keeps."""

from __future__ import annotations


class Room:
    """Room for *number* objects of *size* bytes in all."""

    def __init__(self, number: int, size: int) -> None:
        self._number = number
        self._size = size
        self._sizes: dict[str, int] = {}
        self._used = 0

    def __str__(self) -> str:
        """``256, or of 64 MiB``."""
        return f"{self._number:,}, or of {self._size / 2**20:g} MiB"

    def take(self, name: str, size: int) -> bool:
        """Return whether the object *name* of *size* bytes fits, in place of what it took before."""
        self.free(name)
        if len(self._sizes) >= self._number or self._used + size > self._size:
            return False
        self._sizes[name] = size
        self._used += size
        return True

    def free(self, name: str) -> None:
        """Note that the object *name* is not kept any more."""
        self._used -= self._sizes.pop(name, 0)
