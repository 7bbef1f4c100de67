"""The requests that a start needs, with the users that make them.

Source: k8s.io/kubernetes pkg/controller (the controllers' names), pkg/controlplane and pkg/registry/rbac/rest
(what an API server writes when it starts), pkg/kubelet (nodes); kubernetes.io "Using RBAC authorization"
(roles of the core components).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.pure.core.service_accounts import service_account
from gateway.pure.openapi.built_in_resources import RESOURCES
from gateway.tools.deadlocks.model import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.tools.deadlocks.model import Purpose

    Json = Mapping[str, Any]

ALL: Final = "system:authenticated"
_NO_LABELS: Final[Mapping[str, str]] = {}
_KINDS: Final = {
    "pods/binding": ("", "v1", "Binding"),
    "pods/eviction": ("policy", "v1", "Eviction"),
    "pods/exec": ("", "v1", "PodExecOptions"),
    "serviceaccounts/token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
"""The kinds of subresources with an object of their own."""

API_SERVER: Final = ("system:apiserver", (ALL, "system:masters"))
CONTROLLER_MANAGER: Final = ("system:kube-controller-manager", (ALL,))
SCHEDULER: Final = ("system:kube-scheduler", (ALL,))
ANYBODY: Final = ("", ())

_API_SERVER_STARTS: Final = """
    CREATE /namespaces kube-system
    UPDATE /endpoints default/kubernetes
    UPDATE discovery.k8s.io/endpointslices default/kubernetes
    CREATE /services default/kubernetes
    UPDATE /configmaps kube-system/extension-apiserver-authentication
    CREATE coordination.k8s.io/leases kube-system/apiserver
    UPDATE coordination.k8s.io/leases kube-system/apiserver
    CREATE rbac.authorization.k8s.io/clusterroles system:basic-user
    UPDATE rbac.authorization.k8s.io/clusterroles system:basic-user
    CREATE rbac.authorization.k8s.io/clusterrolebindings system:basic-user
    UPDATE rbac.authorization.k8s.io/clusterrolebindings system:basic-user
    CREATE rbac.authorization.k8s.io/roles kube-system/extension-apiserver-authentication-reader
    CREATE rbac.authorization.k8s.io/rolebindings kube-system/system:extension-apiserver-authentication-reader
    CREATE scheduling.k8s.io/priorityclasses system-node-critical
    CREATE apiregistration.k8s.io/apiservices v1.apps
    UPDATE flowcontrol.apiserver.k8s.io/flowschemas system-nodes
    UPDATE flowcontrol.apiserver.k8s.io/prioritylevelconfigurations system
"""
_CONTROLLERS_START: Final = """
    UPDATE coordination.k8s.io/leases kube-system/kube-controller-manager
    CREATE /serviceaccounts/token kube-system/replicaset-controller
    CREATE /serviceaccounts kube-system/replicaset-controller
"""
_SCHEDULER_STARTS: Final = """
    UPDATE coordination.k8s.io/leases kube-system/kube-scheduler
"""
_NODE_JOINS: Final = """
    CREATE /nodes node
    UPDATE /nodes node
    UPDATE /nodes/status node
    CREATE storage.k8s.io/csinodes node
    UPDATE storage.k8s.io/csinodes node
    CREATE coordination.k8s.io/leases kube-node-lease/node
    UPDATE coordination.k8s.io/leases kube-node-lease/node
    CREATE certificates.k8s.io/certificatesigningrequests csr
"""


def node_user(name: str = "node") -> tuple[str, tuple[str, ...]]:
    """Return user and groups of the kubelet on the node *name*."""
    return f"system:node:{name}", ("system:nodes", ALL)


def api_server_starts() -> tuple[Request, ...]:
    """Return what an API server itself writes when it starts."""
    return tuple(_written(_API_SERVER_STARTS, API_SERVER))


def controllers_start() -> tuple[Request, ...]:
    """Return what the controller manager and the scheduler need before they do anything."""
    found = _written(_CONTROLLERS_START, CONTROLLER_MANAGER)
    return (*found, *_written(_SCHEDULER_STARTS, SCHEDULER))


def node_joins(labels: Mapping[str, str] | None) -> tuple[Request, ...]:
    """Return what a node with *labels* needs to join and to stay Ready."""
    bootstrap = ("system:bootstrap:token", ("system:bootstrappers", ALL))
    csr = ("CREATE", "certificates.k8s.io", "certificatesigningrequests")
    signer = service_account("certificate-controller")
    found = [
        *_written(_NODE_JOINS, node_user(), labels),
        request(*csr, name="csr", user=bootstrap),
        request("UPDATE", csr[1], f"{csr[2]}/approval", name="csr", user=signer),
        request("UPDATE", csr[1], f"{csr[2]}/status", name="csr", user=signer),
        request("UPDATE", "", "nodes", name="node", user=service_account("node-controller"), labels=labels),
    ]
    return tuple(found)


def request(
    operation: str,
    group: str,
    resource: str,
    *,
    namespace: str = "",
    name: str = "",
    user: tuple[str, tuple[str, ...]],
    found: Json | None = None,
    labels: Mapping[str, str] | None = None,
    purpose: Purpose = "start",
) -> Request:
    """Return the request for *resource* of *group*, which is served as ``v1``."""
    main = resource.partition("/")[0]
    kind = _KINDS.get(resource) or (group, "v1", RESOURCES[group][main].kind)
    if resource in _KINDS:
        labels = _NO_LABELS
    return Request(
        operation, resource, group, kind, namespace, name, user[0], user[1], found, labels, purpose
    )


def _written(
    lines: str, user: tuple[str, tuple[str, ...]], labels: Mapping[str, str] | None = None
) -> Iterable[Request]:
    for line in lines.strip().splitlines():
        operation, path, place = line.split()
        group, _, resource = path.partition("/")
        is_namespaced = RESOURCES[group][resource.partition("/")[0]].is_namespaced
        namespace, _, name = place.partition("/") if is_namespaced else ("", "", place)
        if (group, resource) == ("", "namespaces"):
            namespace = name
        of_node = labels if resource.startswith("nodes") else None
        yield request(operation, group, resource, namespace=namespace, name=name, user=user, labels=of_node)
