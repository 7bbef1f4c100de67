"""Whether there are requests that two rules are for, versions left aside.

Source: kubernetes/apiserver plugin/webhook/predicates/rules/rules.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.core.webhook import Rule


def has(names: Iterable[str], name: str) -> bool:
    """Whether *names*, which may hold ``*``, stand for *name*."""
    return any(own in ("*", name) for own in names)


def overlap(one: Rule, other: Rule) -> bool:
    """Whether there is a request that both rules are for, their versions left aside."""
    return (
        _meet(one.operations, other.operations)
        and _meet((one.scope,), (other.scope,))
        and _meet(one.api_groups, other.api_groups)
        and _resources_meet(one.resources, other.resources)
    )


def meet(entry: str, other: str) -> bool:
    """Whether there is something that both entries of ``resources`` are for."""
    return _resources_meet((entry,), (other,))


def parts(entry: str) -> tuple[str, str]:
    """Return resource and subresource of an entry of ``resources``; none is the empty one."""
    resource, _, sub_resource = entry.partition("/")
    return resource, sub_resource


def covering(entry: tuple[str, str]) -> set[tuple[str, str]]:
    """Return all entries, as resource and subresource, that are for what *entry* is for."""
    resource, sub_resource = entry
    return {entry, ("*", sub_resource), (resource, "*"), ("*", "*")}


def _meet(names: Iterable[str], others: Sequence[str]) -> bool:
    return any(name == "*" or has(others, name) for name in names)


def _resources_meet(entries: Iterable[str], others: Iterable[str]) -> bool:
    """Whether an entry of each is for the same, in time proportional to their number, not its square."""
    found = set(map(parts, entries))
    if any(not covering(entry).isdisjoint(found) for entry in map(parts, others)):
        return True
    # What is left are wildcards of the others, and one of each kind: pods/* and */status.
    names, sub_names = {name for name, _ in found}, {sub_name for _, sub_name in found}
    return any(
        (sub_name == "*" and (name == "*" or not names.isdisjoint((name, "*"))))
        or (name == "*" and not sub_names.isdisjoint((sub_name, "*")))
        for name, sub_name in map(parts, others)
    )
