"""What kube-apiserver does with registered entries, written down from its documentation, not from ours.

Whether an entry's rules are for a request, and in which version it is then sent: the one asked for if a rule
names it; with matchPolicy Equivalent otherwise the first that a rule names, rules in order, of those served,
in the order in which they were registered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Asked:
    """A request as a client sends it."""

    operation: str
    group: str
    version: str
    resource: str
    sub_resource: str
    namespace: str
    served: tuple[str, ...]
    """The versions of this resource, including the requested one."""


def version_sent(rules: Sequence[Mapping[str, Any]], match_policy: str, asked: Asked) -> str | None:
    """The version in which an entry with these rules (as JSON) is sent the request; None: not at all."""
    if any(rule_is_for(rule, asked, asked.version) for rule in rules):
        return asked.version
    if match_policy == "Exact":
        return None
    for rule in rules:
        for version in asked.served:
            if version != asked.version and rule_is_for(rule, asked, version):
                return version
    return None


def rule_is_for(rule: Mapping[str, Any], asked: Asked, version: str) -> bool:
    """Whether one rule is for the request in one version."""
    is_namespaces = asked.group == "" and asked.resource == "namespaces"
    is_cluster_scoped = is_namespaces or not asked.namespace
    in_scope = {"*": True, "Cluster": is_cluster_scoped, "Namespaced": not is_cluster_scoped}[rule["scope"]]
    return (
        in_scope
        and ("*" in rule["operations"] or asked.operation in rule["operations"])
        and ("*" in rule["apiGroups"] or asked.group in rule["apiGroups"])
        and ("*" in rule["apiVersions"] or version in rule["apiVersions"])
        and any(resource_is_for(entry, asked) for entry in rule["resources"])
    )


def resource_is_for(entry: str, asked: Asked) -> bool:
    if "/" in entry:
        resource, sub_resource = entry.split("/", 1)
    else:
        resource, sub_resource = entry, ""
    return resource in ("*", asked.resource) and sub_resource in ("*", asked.sub_resource)
