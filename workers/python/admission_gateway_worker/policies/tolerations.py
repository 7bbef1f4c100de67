"""Tolerations as Kubernetes compares and merges them.

Source: kubernetes pkg/util/tolerations; pkg/apis/core/helper (AddOrUpdateTolerationInPod).
"""

from __future__ import annotations

import math
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Toleration = dict[str, Any]


Fields = tuple[str, str, str, str, int | None]
_Reach = tuple[str | None, str, str | None]
"""The key, the effect and the value that a toleration tolerates. None for any."""


def _fields(toleration: Toleration) -> Fields:
    found = toleration.get
    return (
        found("key") or "",
        found("operator") or "",
        found("value") or "",
        found("effect") or "",
        found("tolerationSeconds"),
    )


class _Tolerations:
    """Tolerations that tell in constant time whether one of them includes another toleration.

    A user writes the tolerations of a pod: pair by pair, some thousands would take seconds.
    """

    def __init__(self, tolerations: Iterable[Toleration] = ()) -> None:
        self._equal: set[Fields] = set()
        self._longest: dict[_Reach, tuple[tuple[float, Fields], ...]] = {}
        """By what they tolerate, the two with the most seconds: for a question about the first, the second
        is another one.
        """
        for each in tolerations:
            self.add(each)

    def add(self, toleration: Toleration) -> None:
        """Add *toleration*."""
        fields = key, operator, value, effect, seconds = _fields(toleration)
        self._equal.add(fields)
        reach: _Reach
        if operator == "Exists":
            reach = key or None, effect, None
        elif operator in ("", "Equal"):
            reach = key, effect, value
        else:
            return  # Lt and Gt include only what is equal
        # Other effects have no seconds.
        bound = math.inf if seconds is None or effect != "NoExecute" else seconds
        found = self._longest.get(reach, ())
        if all(fields != other for _, other in found):
            self._longest[reach] = tuple(sorted((*found, (bound, fields)), key=itemgetter(0))[-2:])

    def includes(self, toleration: Toleration) -> bool:
        """Whether one of them tolerates everything that *toleration* tolerates."""
        return _fields(toleration) in self._equal or self.includes_by_another(toleration)

    def includes_by_another(self, toleration: Toleration) -> bool:
        """Whether ``includes`` is true by one that differs from *toleration*."""
        fields = key, operator, value, effect, seconds = _fields(toleration)
        least = math.inf if seconds is None else seconds
        values = (None, value) if operator == "Equal" else (None,)
        return any(
            bound >= least and other != fields
            for reach in product((None, key), ("", effect), values)
            for bound, other in self._longest.get(reach, ())
        )


def merged(first: Sequence[Toleration], second: Sequence[Toleration]) -> list[Toleration]:
    """Return both without those that another one includes."""
    every = [*first, *second]
    later = _Tolerations()
    remaining = []
    for each in reversed(every):
        if not later.includes_by_another(each):
            remaining.append(each)
        later.add(each)
    kept = _Tolerations()
    found = []
    for each in reversed(remaining):
        if not kept.includes(each):
            found.append(each)
            kept.add(each)
    return found


def are_within(tolerations: Sequence[Toleration], allowed: Sequence[Toleration]) -> bool:
    """Whether *allowed* is empty or includes each of *tolerations*."""
    return not allowed or all(map(_Tolerations(allowed).includes, tolerations))


def added(tolerations: Iterable[Toleration], others: Sequence[Toleration]) -> list[Toleration]:
    """Return *tolerations* with *others* instead of those with their key, effect, operator and value."""
    new = {_fields(each)[:4]: each for each in others}
    found = [(_fields(each)[:4], each) for each in tolerations]
    missing = new.keys() - {fields for fields, _ in found}
    return [
        *(new.get(fields, each) for fields, each in found),
        *(each for fields, each in new.items() if fields in missing),
    ]
