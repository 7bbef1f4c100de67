"""The order of mutating webhooks: by ``after``, and otherwise as it is without.

A webhook waits for those that it names, and the others keep their order. A circle cannot be fulfilled; the
webhooks in it keep their order among each other.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from gateway.base.text import did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gateway.pure.core.webhook import Webhook


def in_call_order(webhooks: Sequence[Webhook]) -> tuple[Webhook, ...]:
    """Return *webhooks*, of one phase, in the order of their calls.

    Names without a webhook have no effect.
    """
    if not any(webhook.after for webhook in webhooks):
        return tuple(webhooks)
    before = _before(webhooks)
    for circle in _circles(before):
        for index in circle:
            before[index] = []
    behind: dict[int, list[int]] = {}
    for index, indices in before.items():
        for one in indices:
            behind.setdefault(one, []).append(index)
    waits_for = {index: len(indices) for index, indices in before.items()}
    free = [index for index, number in waits_for.items() if not number]
    heapify(free)
    found = []
    while free:
        index = heappop(free)
        found.append(webhooks[index])
        for one in behind.get(index, ()):
            waits_for[one] -= 1
            if not waits_for[one]:
                heappush(free, one)
    return tuple(found)


def circles(webhooks: Sequence[Webhook]) -> list[tuple[Webhook, ...]]:
    """Return the circles of ``after``: each webhook waits for the next, and the last one for the first.

    No webhook is in two of them, so there may be others through the same webhooks.
    """
    if not any(webhook.after for webhook in webhooks):
        return []
    return [tuple(webhooks[index] for index in circle) for circle in _circles(_before(webhooks))]


def unknown_in_after(webhook: Webhook, known: Collection[str]) -> Iterator[str]:
    """Yield a text for each name in ``after`` of *webhook* that is not *known*."""
    for name in webhook.after:
        if name not in known:
            hint = did_you_mean(name, known)
            yield f"has no effect yet: there is no mutating webhook {shown(name)}{hint}"


def circle_text(circle: Sequence[Webhook]) -> str:
    """Return the names of a *circle* in one line."""
    return " after ".join([*(webhook.name for webhook in circle), circle[0].name])


def _before(webhooks: Sequence[Webhook]) -> dict[int, list[int]]:
    """Return for each of *webhooks* the indices of those that it waits for."""
    by_name: dict[str, list[int]] = {}
    for index, webhook in enumerate(webhooks):
        by_name.setdefault(webhook.name, []).append(index)
    return {
        index: [one for name in dict.fromkeys(webhook.after) for one in by_name.get(name, ())]
        for index, webhook in enumerate(webhooks)
    }


def _circles(before: dict[int, list[int]]) -> list[list[int]]:
    left, found = dict(before), []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            # The first is repeated at the end, and each comes before the next.
            circle = error.args[1][:0:-1]
            found.append(circle)
            left |= {index: [] for index in circle}
        else:
            return found
