"""Which webhooks can share an entry of the registration without changing the API version that they receive.

The problem. For each entry of a webhook configuration the API server chooses one API version of the object:
the version that the client used if a rule of the entry names it, otherwise the first equivalent version that
a rule names, rules in order. Two webhooks in one entry can therefore change that choice for each other.

The terms:

- *Cell*: a set of requests that the same rules match, apiVersions ignored (``Equivalent`` converts between
  them). All requests of a cell match the same webhooks.
- *Version preference*: the apiVersions that the rules of a webhook name for a cell, in their order.
- *Overlap*: two webhooks overlap if a request may match both.
- *Conflict*: two webhooks conflict if they overlap in a cell for which their version preferences differ.
  Two ``Exact`` webhooks never conflict, because the API server converts nothing for them.

The solution. Without a conflict all webhooks share one entry. With one, each webhook is divided into parts by
the apiVersions that its rules name (``gateway.pure.core.versions``), and the parts with the same key share an
entry. Mutating webhooks also have to keep their order: the parts of a key are divided into *rounds*, and the
entries are called round by round (``assign_rounds``).

Limit: the API server may treat resources of two groups as one, such as ``events`` of the core group and of
``events.k8s.io``. Only the cluster knows these, so that they are not considered here.

Source: kubernetes/apiserver plugin/webhook/generic/webhook.go (ShouldCallHook), pkg/runtime/mapper.go,
plugin/webhook/predicates/rules/rules.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pure.core.overlap import has, parts
from gateway.pure.core.review import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gateway.pure.core.webhook import Rule, Webhook

    Cell = tuple[int, ...]
    """Indices of the rules that match, ascending."""
    VersionPreference = tuple[frozenset[str], ...]
    """apiVersions in the order of preference; those of one step are equal."""


class Relations:
    """Overlaps and conflicts between webhooks, which are identified by their index in the given list."""

    def __init__(self, webhooks: Sequence[Webhook]) -> None:
        self.matched_together: set[frozenset[int]] = set()
        """One set of webhooks for each cell; each distinct set once."""
        # One bit for each webhook: a set of pairs would be too large with many cells.
        self._overlaps = [0] * len(webhooks)
        self._conflicts = [0] * len(webhooks)
        owned = [(index, rule) for index, webhook in enumerate(webhooks) for rule in webhook.rules]
        preferences: set[tuple[tuple[int, VersionPreference], ...]] = set()
        for cell in cells([rule for _, rule in owned]):
            rules: dict[int, list[Rule]] = {}
            for number in cell:
                index, rule = owned[number]
                rules.setdefault(index, []).append(rule)
            preferences.add(tuple((index, version_preference(own)) for index, own in rules.items()))
        exact = sum(1 << index for index, hook in enumerate(webhooks) if hook.match_policy == "Exact")
        for in_cell in preferences:
            self.matched_together.add(frozenset(index for index, _ in in_cell))
            same: dict[VersionPreference, int] = {}
            for index, preference in in_cell:
                same[preference] = same.get(preference, 0) | 1 << index
            all_in_cell = sum(same.values())
            for index, preference in in_cell:
                is_exact = webhooks[index].match_policy == "Exact"
                self._overlaps[index] |= all_in_cell
                self._conflicts[index] |= all_in_cell & ~same[preference] & ~(exact if is_exact else 0)

    def overlaps_of(self, index: int) -> int:
        """Return a bit mask of the webhooks that overlap with the webhook at *index*, itself included."""
        return self._overlaps[index]

    def has_conflict(self, indices: Collection[int]) -> bool:
        """Whether any two of the webhooks at *indices* conflict."""
        mask = sum(1 << index for index in indices)
        return any(self._conflicts[index] & mask for index in indices)

    def overlap(self, one: int, other: int) -> bool:
        """Whether a request may match both webhooks."""
        return bool(self._overlaps[one] >> other & 1)

    def conflict(self, one: int, other: int) -> bool:
        """Whether a webhook may receive another API version when both share an entry."""
        return bool(self._conflicts[one] >> other & 1)


def version_preference(rules: Iterable[Rule]) -> VersionPreference:
    """Return the apiVersions that *rules*, which match the same requests, prefer; ``*`` is all others."""
    steps: list[frozenset[str]] = []
    seen: set[str] = set()
    for rule in rules:
        new = frozenset(rule.api_versions) - seen
        if new and "*" not in seen:
            steps.append(new)
            seen |= new
    return tuple(steps)


def assign_rounds(keys: Sequence[str], relations: Relations) -> list[int]:
    """Return the round, from 1, of each part of a mutating webhook; *keys* are the keys of the parts.

    Entries are called by round, and within a round by key. The rounds are such that overlapping parts with
    different keys are called in their configured order. The rounds of one key ascend, so that each round is
    a contiguous section of the parts with that key.
    """
    rounds: list[int] = []
    last_round: dict[str, int] = {}
    members: dict[tuple[int, str], int] = {}
    for index, key in enumerate(keys):
        overlaps = relations.overlaps_of(index)
        found = last_round.get(key, 1)
        for (number, other), mask in members.items():
            if other != key and mask & overlaps:
                found = max(found, number if sort_key(other) < sort_key(key) else number + 1)
        last_round[key] = found
        members[found, key] = members.get((found, key), 0) | 1 << index
        rounds.append(found)
    return rounds


def sort_key(key: str) -> str:
    """Return the text by which *key* sorts in the name of an entry, where a dot follows it."""
    return f"{key}."


def cells(rules: Sequence[Rule]) -> set[Cell]:
    """Return the cells of *rules*: for every request that any rule matches, the indices of all that match.

    A name that no rule mentions matches only rules with a wildcard. ``*`` stands for all such names.
    """
    found = {tuple(range(len(rules)))}
    found = _divide(found, lambda _: OPERATIONS, lambda index, name: has(rules[index].operations, name))
    found = _divide(
        found, lambda _: ("Namespaced", "Cluster"), lambda index, name: has((rules[index].scope,), name)
    )
    found = _divide(
        found,
        lambda cell: {"*"}.union(*(rules[index].api_groups for index in cell)),
        lambda index, name: has(rules[index].api_groups, name),
    )
    return {part for cell in found for part in _divide_by_resource(rules, cell) if part}


def _divide(
    cells: set[Cell], names_in: Callable[[Cell], Iterable[str]], matches: Callable[[int, str], bool]
) -> set[Cell]:
    return {
        tuple(index for index in cell if matches(index, name)) for cell in cells for name in names_in(cell)
    }


def _divide_by_resource(rules: Sequence[Rule], cell: Cell) -> set[Cell]:
    entries = {index: [parts(entry) for entry in rules[index].resources] for index in cell}
    names = {"*"}.union(*([name for name, _ in of_rule] for of_rule in entries.values()))
    found = set()
    for name in names:
        sub_names = {
            index: {sub_name for own, sub_name in of_rule if own in ("*", name)}
            for index, of_rule in entries.items()
        }
        for sub_name in {"", "*"}.union(*sub_names.values()):
            found.add(tuple(index for index in cell if has(sub_names[index], sub_name)))
    return found
