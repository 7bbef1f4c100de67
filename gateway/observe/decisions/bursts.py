"""The first and the last denial of each webhook and namespace, when more come than are kept.

A burst is of one webhook and one namespace, and ends with ``ENDS_AFTER_S`` without a denial. Its last denial
is held as the answer itself, so that one that is displaced at once costs nothing; its record is made when
somebody reads it, in the thread of the reader.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from gateway.pure.core.verdict import Allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gateway.observe.decisions.ring import Place
    from gateway.pure.core.answer import Answer

T = TypeVar("T")

MAX_BURSTS: Final = 100
"""The one without a denial for the longest time goes first."""
MAX_HELD_BYTES: Final = 16 * 1024
"""The largest request of a last denial. Parsed it takes some ten times as much memory."""
ENDS_AFTER_S: Final = 60.0


def key_of(answer: Answer) -> Place:
    """Return the burst of *answer*: of its first webhook that did not allow the request."""
    evaluation = answer.evaluation
    for outcome in evaluation.outcomes:
        if type(outcome.verdict) is not Allowed:
            webhook = outcome.invocation.webhook
            return webhook.configuration, webhook.name, evaluation.request.namespace
    return "", "", evaluation.request.namespace


class _Once(Generic[T]):
    """Makes a denial when it is called first, by one thread at a time."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._made: T

    def __call__(self) -> T:
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made


@dataclass(slots=True)
class _Burst(Generic[T]):
    first: T
    at: float
    """When its last denial came, in monotonic seconds."""
    last: Callable[[], T] | None = None


class Bursts(Generic[T]):
    """The bursts of one process, within bounds of number and size."""

    def __init__(self) -> None:
        self._bursts: OrderedDict[Place, _Burst[T]] = OrderedDict()

    def is_under_way(self, key: Place, now: float) -> bool:
        """Whether the burst *key* has a first denial at *now*, in monotonic seconds."""
        burst = self._bursts.get(key)
        return burst is not None and now - burst.at <= ENDS_AFTER_S

    def begin(self, key: Place, first: T, now: float) -> None:
        """Keep *first*, with which the burst *key* begins at *now*."""
        self._bursts.pop(key, None)
        self._bursts[key] = _Burst(first, now)
        if len(self._bursts) > MAX_BURSTS:
            self._bursts.popitem(last=False)

    def end_with(self, key: Place, last: Callable[[], T], size_bytes: int, now: float) -> bool:
        """Hold *last*, which makes the last denial of the burst *key*, whose request has *size_bytes*.

        Return whether a denial was lost: that before, or this one, which is too large.
        """
        burst = self._bursts[key]
        burst.at = now
        self._bursts.move_to_end(key)
        if size_bytes > MAX_HELD_BYTES:
            return True
        had_last, burst.last = burst.last is not None, last
        return had_last

    def __iter__(self) -> Iterator[T | Callable[[], T]]:
        """Yield the first denial of each burst, and what makes the last one."""
        for burst in self._bursts.values():
            yield burst.first
            if burst.last is not None:
                if not isinstance(burst.last, _Once):
                    burst.last = _Once(burst.last)
                yield burst.last
