"""The last decisions within bounds of number and bytes, of which a burst displaces only itself.

A place is a webhook and a namespace. In a full ring, the oldest decision goes for a new one. If the place of
the new one has more than ``SHARE`` of all, and more than the place of the oldest, its own oldest one goes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gateway.observe.decisions.recent import RecentDecision
    from gateway.observe.decisions.record import DecisionRecord

SHARE: Final = 1 / 8

Place = tuple[str, str, str]
"""Configuration and name of a webhook, and the namespace. The names are empty if all webhooks allowed it."""


def place_of(record: DecisionRecord) -> Place:
    """Return the place of *record*: that of its leading webhook."""
    one = record.leading
    return ("", "", record.namespace) if one is None else (one.configuration, one.webhook, record.namespace)


class Ring:
    """Decisions within bounds of number and bytes."""

    def __init__(self, max_number: int, max_bytes: int, displaced: Callable[[Place], None]) -> None:
        """*displaced* is called for each decision that goes for another one of its own place."""
        self._max_number = max_number
        self._max_bytes = max_bytes
        self._displaced = displaced
        self._bytes = 0
        self._number = 0
        self._decisions: OrderedDict[int, RecentDecision] = OrderedDict()
        self._places: dict[Place, deque[int]] = {}
        self._has_displaced = False

    def __iter__(self) -> Iterator[RecentDecision]:
        return iter(self._decisions.values())

    @property
    def since(self) -> float:
        """The time of the oldest decision if others were displaced, in seconds since 1970; otherwise 0."""
        oldest = next(iter(self._decisions.values()), None)
        return oldest.record.time if self._has_displaced and oldest is not None else 0.0

    def add(self, decision: RecentDecision) -> None:
        """Add *decision*, and remove others until the bounds are kept."""
        place = place_of(decision.record)
        own = self._places.setdefault(place, deque())
        self._number += 1
        own.append(self._number)
        self._decisions[self._number] = decision
        self._bytes += decision.size_bytes
        while len(self._decisions) > self._max_number or self._bytes > self._max_bytes:
            number, oldest = next(iter(self._decisions.items()))
            place_of_oldest = place_of(oldest.record)
            if len(own) > max(len(self._decisions) * SHARE, len(self._places[place_of_oldest])):
                self._remove(own[0], place)
                self._displaced(place)
            else:
                self._remove(number, place_of_oldest)
                self._has_displaced = True

    def _remove(self, number: int, place: Place) -> None:
        """Remove the decision *number*, the oldest one of *place*."""
        self._bytes -= self._decisions.pop(number).size_bytes
        own = self._places[place]
        own.popleft()
        if not own:
            del self._places[place]
