"""Merges the rules of several webhooks into a short list that matches the same requests.

Covered rules are dropped, and rules that differ in one dimension are merged. The order of rules decides which
API version the API server sends, and is preserved: a rule moves forward only past rules with the same
versions or for other requests.

Source: kubernetes/apiserver plugin/webhook/generic/webhook.go (ShouldCallHook);
k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go (valid combinations with wildcards).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.pure.core.overlap import covering, has, overlap, parts
from gateway.pure.core.webhook import Rule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def union(rules: Iterable[Rule], *, is_exact: bool) -> list[Rule]:
    """Return a short list of rules with the same requests and version preference as *rules*.

    With *is_exact* all rules belong to webhooks with matchPolicy ``Exact``, for which order has no meaning.
    """
    kept: list[Rule] = []
    for rule in rules:
        kept.append(_normal(rule))
        index: int | None = len(kept) - 1
        while index is not None:
            index = _merge_at(kept, index, is_exact)
    return kept


def covers(one: Rule, other: Rule) -> bool:
    """Whether *one* matches every request that *other* matches, in every version."""
    return (
        all(has(one.operations, name) for name in other.operations)
        and all(has(one.api_groups, name) for name in other.api_groups)
        and all(has(one.api_versions, name) for name in other.api_versions)
        and one.scope in ("*", other.scope)
        and _cover(set(map(parts, one.resources)), other.resources)
    )


def _cover(entries: Collection[tuple[str, str]], wanted: Iterable[str]) -> bool:
    return all(not covering(entry).isdisjoint(entries) for entry in map(parts, wanted))


def _merge_at(kept: list[Rule], index: int, is_exact: bool) -> int | None:
    """Merge the rule at *index* with another of *kept*; return the index of the result, or None."""
    for other in range(len(kept)):
        first, second = min(index, other), max(index, other)
        united = None if first == second else _unite(kept[first], kept[second], is_exact)
        if united is not None and (
            is_exact or united == kept[first] or _can_move(kept[second], kept[first + 1 : second])
        ):
            kept[first] = united
            del kept[second]
            return first
    return None


def _unite(first: Rule, second: Rule, is_exact: bool) -> Rule | None:
    """Return one rule for both, *first* itself if it covers *second*; None if there is none."""
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
    """Whether both, without duplicates, have the same names."""
    return names == others or (len(names) == len(others) and set(names) == set(others))


def _can_move(rule: Rule, past: Iterable[Rule]) -> bool:
    return all(_are_same(rule.api_versions, other.api_versions) or not overlap(rule, other) for other in past)


def _normal(rule: Rule) -> Rule:
    """Return *rule* without duplicates."""
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
    """Return *entries* without those that another entry covers.

    The API server rejects an entry after a wildcard that covers it.
    """
    pairs = {entry: parts(entry) for entry in entries}
    found = set(pairs.values())
    return tuple(entry for entry, pair in pairs.items() if (covering(pair) - {pair}).isdisjoint(found))
