"""kube-apiserver's matching of entries, written from its documentation and independent of the gateway.

Whether an entry's rules match a request, and the version in which the request is sent: the client's version
if a rule names it; otherwise, with matchPolicy Equivalent, the first served version that a rule names, in the
order of the rules and then of the registered versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class ClientRequest:
    """A request as a client sends it."""

    operation: str
    group: str
    version: str
    resource: str
    sub_resource: str
    namespace: str
    served: tuple[str, ...]
    """The versions of this resource, including the requested one."""


def version_sent(
    rules: Sequence[Mapping[str, Any]], match_policy: str, client_request: ClientRequest
) -> str | None:
    """The version in which an entry with these rules (as JSON) gets the request; None if no rule matches."""
    if any(rule_is_for(rule, client_request, client_request.version) for rule in rules):
        return client_request.version
    if match_policy == "Exact":
        return None
    for rule in rules:
        for version in client_request.served:
            if version != client_request.version and rule_is_for(rule, client_request, version):
                return version
    return None


def rule_is_for(rule: Mapping[str, Any], client_request: ClientRequest, version: str) -> bool:
    """Whether one rule is for the request in one version."""
    is_namespaces = client_request.group == "" and client_request.resource == "namespaces"
    is_cluster_scoped = is_namespaces or not client_request.namespace
    in_scope = {"*": True, "Cluster": is_cluster_scoped, "Namespaced": not is_cluster_scoped}[rule["scope"]]
    return (
        in_scope
        and ("*" in rule["operations"] or client_request.operation in rule["operations"])
        and ("*" in rule["apiGroups"] or client_request.group in rule["apiGroups"])
        and ("*" in rule["apiVersions"] or version in rule["apiVersions"])
        and any(resource_is_for(entry, client_request) for entry in rule["resources"])
    )


def resource_is_for(entry: str, client_request: ClientRequest) -> bool:
    if "/" in entry:
        resource, sub_resource = entry.split("/", 1)
    else:
        resource, sub_resource = entry, ""
    return resource in ("*", client_request.resource) and sub_resource in ("*", client_request.sub_resource)
