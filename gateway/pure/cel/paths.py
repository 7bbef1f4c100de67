"""The parts of a value that expressions read, and values with only these parts.

A path is the keys from the value on: everything below it may be read. The path of what only has to be there,
as in ``has(params.data)``, ends with an empty key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Paths = frozenset[tuple[str, ...]]
"""None of them begins with another one."""
NOTHING: Final[Paths] = frozenset()
WHOLE: Final[Paths] = frozenset({()})


def joined(several: Iterable[Iterable[tuple[str, ...]]]) -> Paths:
    """Return the paths of all of *several*."""
    given = {path for paths in several for path in paths}
    if not given:
        # Of most expressions: they share it.
        return NOTHING
    return frozenset(path for path in given if not any(path[:end] in given for end in range(len(path))))


@lru_cache(maxsize=1024)
def covers(kept: Paths, read: Paths) -> bool:
    """Whether a value with the paths *kept* has all that *read* needs."""
    return all(any(path[:end] in kept for end in range(len(path) + 1)) for path in read)


class Pruner:
    """Makes values with some paths only."""

    def __init__(self, paths: Paths) -> None:
        self._keys: dict[str, Any] | None = {}
        """By key, the same of the value there; None for everything."""
        for path in paths:
            if not path:
                self._keys = None
                break
            *before, last = path
            keys = self._keys
            for key in before:
                keys = keys.setdefault(key, {})
            keys[last] = None

    def pruned(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return *value* with the paths only. It is not changed; the result shares parts with it."""
        return value if self._keys is None else _pruned(value, self._keys)


def _pruned(value: dict[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for key, below in keys.items():
        if key in value:
            part = value[key]
            found[key] = part if below is None or type(part) is not dict else _pruned(part, below)
    return found
