"""Counters of policies, for ``metrics``.

They are numbers in memory that another process can read: with ``--processes`` the parent serves the sum of
its children, and a child that is restarted goes on counting where the one before it ended.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.answer import ALLOWED
from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from admission_gateway_worker.answer import Outcome

BOUNDS_S: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
)
"""Upper bounds of the duration histogram in seconds, the same in the SDKs of all languages."""

OUTCOMES: Final = ("allowed", "denied", "error")

_IN_FLIGHT: Final = len(OUTCOMES)
_SUM: Final = _IN_FLIGHT + 1
_BUCKETS: Final = _SUM + 1
_CELLS: Final = _BUCKETS + len(BOUNDS_S) + 1
"""The numbers of a policy, each a double."""


_families: Final[list[CounterFamily]] = []


class CounterFamily:
    """A counter of a policy's own, with labels whose values are known beforehand.

    It is made when the module of the policy is imported, and served with the metrics of the worker. It counts
    only in a process whose metrics are served.
    """

    def __init__(
        self, name: str, text: str, labels: Sequence[str], values: Iterable[tuple[str, ...]]
    ) -> None:
        """*name* ends in ``_total``; *text* is its help; *values* has all combinations of *labels*."""
        self.name = name
        self.text = text
        self.labels = tuple(labels)
        self.values = tuple(values)
        self._at = {each: index for index, each in enumerate(self.values)}
        self._cells: memoryview[float] | None = None
        _families.append(self)

    def count(self, *values: str) -> None:
        """Count one for the values of the labels; nothing for a combination that is not known."""
        if self._cells is not None and (at := self._at.get(values)) is not None:
            self._cells[at] += 1

    def use(self, cells: memoryview[float]) -> None:
        """Count in *cells* from now on."""
        self._cells = cells


def families() -> tuple[CounterFamily, ...]:
    """Return the counters that the imported policies have beside those of every policy."""
    return tuple(_families)


class Counters:
    """The counters of all policies of one process."""

    def __init__(self, policies: Iterable[str], descriptor: int = -1) -> None:
        """*descriptor* is that of a file from ``shared``; without it the memory is that of this process."""
        names = list(policies)
        self._memory = mmap.mmap(descriptor, size(len(names)))
        self._cells = memoryview(self._memory).cast("d")
        self._at = {name: index * _CELLS for index, name in enumerate(names)}
        self._families: dict[CounterFamily, memoryview[float]] = {}
        begin = max(1, len(names)) * _CELLS
        for family in _families:
            end = begin + len(family.values)
            self._families[family] = self._cells[begin:end]
            begin = end

    def attach_families(self) -> None:
        """Have the counters of ``families`` count here."""
        for family, cells in self._families.items():
            family.use(cells)

    def values(self, family: CounterFamily) -> list[float]:
        """Return the counts of *family*, in the order of its values."""
        return list(self._families[family])

    def enter(self, policy: str) -> None:
        """Count a call in flight."""
        self._cells[self._at[policy] + _IN_FLIGHT] += 1

    def leave(self, policy: str) -> None:
        """Count a call as no longer in flight."""
        self._cells[self._at[policy] + _IN_FLIGHT] -= 1

    def end(self, policy: str, outcome: Outcome, took_s: float | None) -> None:
        """Count the outcome of a call; *took_s* is None if its policy has not begun."""
        cells, at = self._cells, self._at[policy]
        if outcome is ALLOWED:
            cells[at] += 1
        elif isinstance(outcome, pb.ReviewResponse):
            cells[at + (not outcome.allowed)] += 1
        elif outcome.code != StatusCode.CANCELLED:
            cells[at + 2] += 1
        else:
            return
        if took_s is not None:
            cells[at + _SUM] += took_s
            cells[at + _BUCKETS + bisect_left(BOUNDS_S, took_s)] += 1

    def forget_calls(self) -> None:
        """Set the calls in flight to 0, which were those of an earlier process."""
        for at in self._at.values():
            self._cells[at + _IN_FLIGHT] = 0

    def outcomes(self, policy: str) -> list[float]:
        """Return the number of reviews with each of ``OUTCOMES``."""
        at = self._at[policy]
        return list(self._cells[at : at + len(OUTCOMES)])

    def in_flight(self, policy: str) -> float:
        """Return the number of calls in flight."""
        return self._cells[self._at[policy] + _IN_FLIGHT]

    def durations(self, policy: str) -> tuple[list[float], float]:
        """Return the durations by bucket (up to each bound, and above all), and their sum in seconds."""
        at = self._at[policy]
        return list(self._cells[at + _BUCKETS : at + _CELLS]), self._cells[at + _SUM]


def size(policies: int) -> int:
    """Return the bytes of the counters of so many policies."""
    return (max(1, policies) * _CELLS + sum(len(family.values) for family in _families)) * 8


def shared(policies: int) -> int:
    """Return the descriptor of a file for the counters of so many policies; it has no name."""
    with tempfile.TemporaryFile() as file:
        file.truncate(size(policies))
        return os.dup(file.fileno())
