"""Whether some request matches two rules, regardless of versions.

Source: kubernetes/apiserver plugin/webhook/predicates/rules/rules.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.pure.core.webhook import Rule


def has(names: Iterable[str], name: str) -> bool:
    """Whether *names*, which may contain ``*``, match *name*."""
    return any(own in ("*", name) for own in names)


def overlap(one: Rule, other: Rule) -> bool:
    """Whether some request matches both rules, regardless of versions."""
    return (
        _meet(one.operations, other.operations)
        and _meet((one.scope,), (other.scope,))
        and _meet(one.api_groups, other.api_groups)
        and _resources_meet(one.resources, other.resources)
    )


def meet(entry: str, other: str) -> bool:
    """Whether some resource matches both entries of ``resources``."""
    return _resources_meet((entry,), (other,))


def parts(entry: str) -> tuple[str, str]:
    """Return resource and subresource of an entry of ``resources``; the subresource may be empty."""
    resource, _, sub_resource = entry.partition("/")
    return resource, sub_resource


def covering(entry: tuple[str, str]) -> set[tuple[str, str]]:
    """Return all entries, as resource and subresource, that match everything that *entry* matches."""
    resource, sub_resource = entry
    return {entry, ("*", sub_resource), (resource, "*"), ("*", "*")}


def _meet(names: Iterable[str], others: Sequence[str]) -> bool:
    return any(name == "*" or has(others, name) for name in names)


def _resources_meet(entries: Iterable[str], others: Iterable[str]) -> bool:
    """Whether an entry of each matches the same resource, in time linear in the number of entries."""
    found = set(map(parts, entries))
    if any(not covering(entry).isdisjoint(found) for entry in map(parts, others)):
        return True
    # Only wildcards of the others are left, and pairs such as pods/* with */status.
    names, sub_names = {name for name, _ in found}, {sub_name for _, sub_name in found}
    return any(
        (sub_name == "*" and (name == "*" or not names.isdisjoint((name, "*"))))
        or (name == "*" and not sub_names.isdisjoint((sub_name, "*")))
        for name, sub_name in map(parts, others)
    )
