"""Which webhooks can be registered as one entry, so that each of them is sent what it would be sent alone.

For each entry the API server chooses the version that it sends: the one that the client used if a rule names
it, otherwise the first that a rule names, rules in order, among those equivalent to it. Two webhooks that are
for the same request and name other versions, or the same ones in another order of preference, would change
that choice for each other. They conflict, unless both are ``Exact``: those are never sent another version.

Not seen here: that resources of two groups can be one and the same to the API server, as ``events`` are in
the core group and in ``events.k8s.io``. Only a cluster knows.

Source: kubernetes/apiserver plugin/webhook/generic/webhook.go (ShouldCallHook), pkg/runtime/mapper.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.registration.cells import cells

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gateway.core.webhook import Rule, Webhook

    Preference = tuple[frozenset[str], ...]
    """Versions in the order in which they are wanted; those of one step are wanted alike."""


class Relations:
    """How webhooks, by their places in a list, stand to each other."""

    def __init__(self, webhooks: Sequence[Webhook]) -> None:
        self.together: set[frozenset[int]] = set()
        """For every request that any of them is for: which of them are."""
        # A bit for each other place: pairs in each of many cells would be too many.
        self._meeting = [0] * len(webhooks)
        self._conflicting = [0] * len(webhooks)
        owned = [(place, rule) for place, webhook in enumerate(webhooks) for rule in webhook.rules]
        wanted: set[tuple[tuple[int, Preference], ...]] = set()
        for cell in cells([rule for _, rule in owned]):
            rules: dict[int, list[Rule]] = {}
            for number in cell:
                place, rule = owned[number]
                rules.setdefault(place, []).append(rule)
            wanted.add(tuple((place, preference(of_one)) for place, of_one in rules.items()))
        exact = sum(1 << place for place, hook in enumerate(webhooks) if hook.match_policy == "Exact")
        for in_cell in wanted:
            self.together.add(frozenset(place for place, _ in in_cell))
            likewise: dict[Preference, int] = {}
            for place, wants in in_cell:
                likewise[wants] = likewise.get(wants, 0) | 1 << place
            all_in = sum(likewise.values())
            for place, wants in in_cell:
                is_exact = webhooks[place].match_policy == "Exact"
                self._meeting[place] |= all_in
                self._conflicting[place] |= all_in & ~likewise[wants] & ~(exact if is_exact else 0)

    def meeting(self, place: int) -> int:
        """Return, as bits, the places with which there may be a request that both are for."""
        return self._meeting[place]

    def has_conflict(self, places: Collection[int]) -> bool:
        """Whether any two of *places* conflict."""
        mask = sum(1 << place for place in places)
        return any(self._conflicting[place] & mask for place in places)

    def meet(self, one: int, other: int) -> bool:
        """Whether there may be a request that both are for."""
        return bool(self._meeting[one] >> other & 1)

    def conflict(self, one: int, other: int) -> bool:
        """Whether one of them, in one entry with the other, might be sent another version than alone."""
        return bool(self._conflicting[one] >> other & 1)


def preference(rules: Iterable[Rule]) -> Preference:
    """Return which versions *rules*, all for the same request, want in which order; ``*`` is all others."""
    steps: list[frozenset[str]] = []
    seen: set[str] = set()
    for rule in rules:
        new = frozenset(rule.api_versions) - seen
        if new and "*" not in seen:
            steps.append(new)
            seen |= new
    return tuple(steps)


def in_rounds(keys: Sequence[str], relations: Relations) -> list[int]:
    """Return a round, from 1, for each place, whose key is that in *keys*.

    Called by round, and in a round by key, places that meet are called in their order unless they have the
    same key. The rounds of one key ascend, so that each is a section of the places with that key.
    """
    rounds: list[int] = []
    of_key: dict[str, int] = {}
    members: dict[tuple[int, str], int] = {}
    for place, key in enumerate(keys):
        meeting = relations.meeting(place)
        found = of_key.get(key, 1)
        for (number, other), mask in members.items():
            if other != key and mask & meeting:
                found = max(found, number if sorting(other) < sorting(key) else number + 1)
        of_key[key] = found
        members[found, key] = members.get((found, key), 0) | 1 << place
        rounds.append(found)
    return rounds


def sorting(key: str) -> str:
    """Return by what *key* is sorted, as the names of entries are in which a dot follows it."""
    return f"{key}."
