"""The rules of several webhooks as the rules of one: for the same requests, and no longer than need be.

Rules that are for nothing new are dropped, and rules that differ in one dimension are made one. What the API
server reads from their order, which version it sends, stays as it is: a rule is moved forward only past rules
that want the same versions or are for other requests.

Source: kubernetes/apiserver plugin/webhook/generic/webhook.go (ShouldCallHook);
k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go (what may stand beside a wildcard).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.core.overlap import covering, has, overlap, parts
from gateway.core.webhook import Rule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def union(rules: Iterable[Rule], *, is_exact: bool) -> list[Rule]:
    """Return few rules that are for the same requests as *rules* are, and want the same versions.

    With *is_exact* all of them belong to webhooks with matchPolicy ``Exact``, for whom order means nothing.
    """
    kept: list[Rule] = []
    for rule in rules:
        kept.append(_normal(rule))
        place: int | None = len(kept) - 1
        while place is not None:
            place = _fold(kept, place, is_exact)
    return kept


def covers(one: Rule, other: Rule) -> bool:
    """Whether *one* is for every request that *other* is for, in every version."""
    return (
        all(has(one.operations, name) for name in other.operations)
        and all(has(one.api_groups, name) for name in other.api_groups)
        and all(has(one.api_versions, name) for name in other.api_versions)
        and one.scope in ("*", other.scope)
        and _cover(set(map(parts, one.resources)), other.resources)
    )


def _cover(entries: Collection[tuple[str, str]], wanted: Iterable[str]) -> bool:
    return all(not covering(entry).isdisjoint(entries) for entry in map(parts, wanted))


def _fold(kept: list[Rule], place: int, is_exact: bool) -> int | None:
    """Make the rule at *place* and another one of *kept* one; return where that is, None if none fits."""
    for other in range(len(kept)):
        first, second = min(place, other), max(place, other)
        united = None if first == second else _unite(kept[first], kept[second], is_exact)
        if united is not None and (
            is_exact or united == kept[first] or _can_move(kept[second], kept[first + 1 : second])
        ):
            kept[first] = united
            del kept[second]
            return first
    return None


def _unite(first: Rule, second: Rule, is_exact: bool) -> Rule | None:
    """Return the one rule that does for both; None if there is none. *first* itself if that covers both."""
    if covers(first, second):
        return first
    if not is_exact and not _are_same(first.api_versions, second.api_versions):
        return None
    if covers(second, first):
        return second
    differing = (
        not _are_same(first.operations, second.operations),
        not _are_same(first.api_groups, second.api_groups),
        not _are_same(first.api_versions, second.api_versions),
        not _are_same(first.resources, second.resources),
        first.scope != second.scope,
    )
    if sum(differing) != 1:
        return None
    return Rule(
        operations=_merged(first.operations, second.operations),
        api_groups=_merged(first.api_groups, second.api_groups),
        api_versions=_merged(first.api_versions, second.api_versions),
        resources=_without_covered((*first.resources, *second.resources)),
        scope=first.scope if first.scope == second.scope else "*",
    )


def _are_same(names: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether both, in which nothing is twice, hold the same."""
    return names == others or (len(names) == len(others) and set(names) == set(others))


def _can_move(rule: Rule, past: Iterable[Rule]) -> bool:
    return all(_are_same(rule.api_versions, other.api_versions) or not overlap(rule, other) for other in past)


def _normal(rule: Rule) -> Rule:
    """Return *rule* with nothing in it twice."""
    return replace(
        rule,
        operations=_merged(rule.operations, ()),
        api_groups=_merged(rule.api_groups, ()),
        api_versions=_merged(rule.api_versions, ()),
        resources=_without_covered(rule.resources),
    )


def _merged(names: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    both = tuple(dict.fromkeys((*names, *others)))
    return ("*",) if "*" in both else both


def _without_covered(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Return *entries* less those that another one covers, in an order that the API server takes.

    It refuses an entry after a wildcard that covers it, and lists of which nothing covers anything pass.
    """
    pairs = {entry: parts(entry) for entry in entries}
    found = set(pairs.values())
    return tuple(entry for entry, pair in pairs.items() if (covering(pair) - {pair}).isdisjoint(found))
