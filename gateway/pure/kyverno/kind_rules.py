"""The webhook rules for the kinds that a ClusterPolicy matches.

They may match more than the kinds do: those are compared again when a request is reviewed.

Source: github.com/kyverno/kyverno pkg/controllers/webhook/{controller,utils_webhook}.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.core.webhook import Rule
from gateway.pure.kyverno.wildcards import has_wildcards, name_pattern
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.pure.kyverno.resource_match import KindParts


_ONLY_V1: Final = frozenset(("", "apps", "batch"))
"""Groups that Kubernetes serves in v1 alone, which autogen names.

With ``*`` beside ``v1`` webhooks could not share an entry, and users see the denials of one entry only.
"""


def rules_for_kinds(wanted: Iterable[tuple[KindParts, frozenset[str]]]) -> tuple[Rule, ...]:
    """Return the rules for the kinds *wanted*, each with its operations.

    A kind of any group is one of the API server's own, if it has one of this name. Otherwise all resources
    of the group match.
    """
    operations: dict[tuple[str, str, str], frozenset[str]] = {}
    for parts, those in wanted:
        version = "*" if has_wildcards(parts.version) else parts.version
        for group, resource in _resources(parts):
            is_own = group in _ONLY_V1 and version == "*" and not resource.startswith("*")
            key = (group, "v1" if is_own else version, resource)
            operations[key] = operations.get(key, frozenset()) | those
    resources: dict[tuple[str, str, frozenset[str]], list[str]] = {}
    for (group, version, resource), those in sorted(operations.items(), key=lambda one: one[0]):
        resources.setdefault((group, version, those), []).append(resource)
    return tuple(
        Rule(tuple(sorted(those)), (group,), (version,), tuple(names))
        for (group, version, those), names in resources.items()
    )


def _resources(parts: KindParts) -> Iterator[tuple[str, str]]:
    """Yield group and resource of each resource that *parts* stand for."""
    sub = parts.sub_resource
    suffix = f"/{'*' if has_wildcards(sub) else sub}" if sub else ""
    group, kind = name_pattern(parts.group), name_pattern(parts.kind)
    is_found = False
    if parts.kind != "*":
        for found in (one for by_name in RESOURCES.values() for one in by_name.values()):
            if kind.fullmatch(found.kind) and group.fullmatch(found.group):
                is_found = True
                yield found.group, f"{found.name}{suffix}"
                if (found.group, found.name, sub) == ("", "pods", ""):
                    yield "", "pods/ephemeralcontainers"
    if not is_found or has_wildcards(parts.kind):
        yield "*" if has_wildcards(parts.group) else parts.group, f"*{suffix}"
        if not sub and group.fullmatch(""):
            yield "", "pods/ephemeralcontainers"
