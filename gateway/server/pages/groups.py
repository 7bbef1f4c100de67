"""Recent decisions in groups, so that a burst of one webhook in one namespace is one line of a list.

A group has the decisions of one webhook, namespace, outcome and message. Where messages differ from one
decision to the next, the first ``MESSAGES`` have groups, and the others are one group together.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.base.text import rfc3339
from gateway.observe.decisions.ring import place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.observe.decisions.recent import RecentDecision
    from gateway.observe.decisions.ring import Place
    from gateway.server.pages.state import Json

MESSAGES: Final = 3


class Group(NamedTuple):
    """Decisions that are alike. Times are in seconds since 1970."""

    place: Sequence[str]
    """That of the ring, phase and outcome."""
    message: str | None
    """None if it stands for several messages."""
    number: int
    first: float
    last: float
    latest: Any
    """The last decision."""


def groups_of(found: Iterable[RecentDecision]) -> list[Group]:
    """Return the groups of *found*, the latest first."""
    return together(map(_single, found))


def _single(decision: RecentDecision) -> Group:
    record = decision.record
    message = record.message or ("" if record.leading is None else record.leading.message)
    place = (*place_of(record), record.phase, record.outcome)
    return Group(place, message, 1, record.time, record.time, decision)


def together(groups: Iterable[Group]) -> list[Group]:
    """Return *groups* with those that are alike as one, the latest first."""
    found: dict[tuple[object, ...], Group] = {}
    messages: Counter[tuple[str, ...]] = Counter()
    for one in sorted(groups, key=lambda one: one.last, reverse=True):
        place, message = tuple(one.place), one.message
        if message is not None and (place, message) not in found:
            messages[place] += 1
            message = message if messages[place] <= MESSAGES else None
        known = found.get((place, message))
        found[place, message] = (
            one._replace(message=message)
            if known is None
            else known._replace(number=known.number + one.number, first=min(known.first, one.first))
        )
    return list(found.values())


def merge(parts: Sequence[Json]) -> list[Json]:
    """Return the JSON of the groups of all *parts*, the latest first.

    The first group of a webhook and namespace has the number of its decisions that were not kept.
    """
    lost: Counter[Place] = Counter()
    for part in parts:
        for *place, number in part["lost"]:
            lost[tuple(place)] += number
    return [_document(one, lost) for one in together(Group(*one) for part in parts for one in part["groups"])]


def _document(group: Group, lost: dict[Place, int]) -> Json:
    configuration, webhook, namespace, phase, outcome = group.place
    return {
        "phase": phase,
        "configuration": configuration,
        "webhook": webhook,
        "namespace": namespace,
        "outcome": outcome,
        "message": group.message or "",
        "hasSeveralMessages": group.message is None,
        "count": group.number,
        "first": rfc3339(group.first, 3),
        "last": rfc3339(group.last, 3),
        "leftOut": lost.pop((configuration, webhook, namespace), 0) if webhook else 0,
        "latest": group.latest,
    }
