"""The roles by which a service account may follow what the configuration reads from the cluster.

Source: kubernetes.io/docs/reference/access-authn-authz/rbac, "Referring to resources": ``list`` and ``watch``
of single names are allowed with the field selector ``metadata.name``, which the gateway sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.config.merge.model import kinds_read
from gateway.config.yaml.documents import plural_of
from gateway.pure.core.role_bindings import BINDINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.config.kinds.policy_settings import ListedKind
    from gateway.config.merge.model import Config
    from gateway.config.yaml.documents import FollowedKinds
    from gateway.pure.core.webhook import CaBundleSource

    Json = dict[str, object]

_RBAC = "rbac.authorization.k8s.io"
_VERBS = ["get", "list", "watch"]


def ca_bundle_roles(sources: Iterable[CaBundleSource], account: tuple[str, str]) -> list[Json]:
    """Return Roles, a ClusterRole and their bindings for *account*, namespace and name; sorted.

    They allow the objects that ``caBundleFrom`` names, and no others.
    """
    names: dict[str, dict[tuple[str, str], set[str]]] = {}
    for source in sources:
        group = "" if source.namespace else "admissionregistration.k8s.io"
        resource = group, f"{source.kind.lower()}s"
        names.setdefault(source.namespace, {}).setdefault(resource, set()).add(source.name)
    documents: list[Json] = []
    for namespace, resources in sorted(names.items()):
        rules: list[Json] = [
            {
                "apiGroups": [group],
                "resources": [resource],
                "resourceNames": sorted(of_resource),
                "verbs": _VERBS,
            }
            for (group, resource), of_resource in sorted(resources.items())
        ]
        documents += _role("admission-gateway-ca-bundles", namespace, rules, account)
    return documents


def read_roles(kinds: Sequence[ListedKind], account: tuple[str, str]) -> list[Json]:
    """Return a ClusterRole and its binding for *account*, namespace and name; nothing without *kinds*.

    They allow all objects of the *kinds*, which policies may read: as parameters, or in expressions.
    """
    rules: list[Json] = [
        {"apiGroups": [kind.group], "resources": [kind.resource], "verbs": _VERBS} for kind in kinds
    ]
    return _role("admission-gateway-policy-parameters", "", rules, account) if rules else []


def engine_roles(engines: FollowedKinds, account: tuple[str, str]) -> list[Json]:
    """Return a ClusterRole and its binding for *account*, namespace and name; nothing without *engines*.

    They allow to read the custom resources of other *engines* that are part of the configuration.
    """
    resources: dict[str, list[str]] = {}
    for kind in (kind for kinds in engines.values() for kind in kinds):
        resources.setdefault(kind.group, []).append(kind.resource)
    rules: list[Json] = [
        {"apiGroups": [group], "resources": names, "verbs": _VERBS} for group, names in resources.items()
    ]
    return _role("admission-gateway-other-engines", "", rules, account) if rules else []


def binding_roles(config: Config, account: tuple[str, str]) -> list[Json]:
    """Return a ClusterRole and its binding for *account*, namespace and name; nothing if no roles count.

    They allow RoleBindings and ClusterRoleBindings, if a policy of *config* compares the roles of users, or
    one of Kyverno in the cluster may come to do so.
    """
    if kinds_read(config).keys().isdisjoint(BINDINGS) and "Kyverno" not in (
        config.gateway.policies.custom_resources_of
    ):
        return []
    names = [plural_of(kind) for _, kind in BINDINGS]
    rules: list[Json] = [{"apiGroups": [_RBAC], "resources": names, "verbs": ["list", "watch"]}]
    return _role("admission-gateway-roles-of-users", "", rules, account)


def placement_roles(installation: str | None, account: tuple[str, str]) -> list[Json]:
    """Return roles and their bindings for *account* to move policies; nothing without an *installation*."""
    if installation is None:
        return []
    namespace, _, name = installation.partition("/")
    group = "admissionregistration.k8s.io"
    kinds = [
        f"{one}admissionpolic{end}" for one in ("validating", "mutating") for end in ("ies", "ybindings")
    ]
    registrations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    verbs = ["get", "list", "create", "update", "patch", "delete"]
    lease: Json = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    of_cluster: list[Json] = [
        {"apiGroups": [group], "resources": kinds, "verbs": verbs},
        {"apiGroups": [group], "resources": registrations, "verbs": ["list"]},
    ]
    of_lease: list[Json] = [
        {**lease, "verbs": ["create"]},
        {**lease, "resourceNames": [f"{name}-placement"], "verbs": ["get", "update", "patch"]},
    ]
    title = "admission-gateway-placement"
    return [*_role(title, "", of_cluster, account), *_role(title, namespace, of_lease, account)]


def _role(name: str, namespace: str, rules: list[Json], account: tuple[str, str]) -> list[Json]:
    """Return a role with *rules* and its binding, of the cluster if *namespace* is empty."""
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    head: Json = {"apiVersion": f"{_RBAC}/v1", "metadata": metadata}
    subject = {"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}
    role = {"apiGroup": _RBAC, "kind": kind, "name": name}
    return [
        {**head, "kind": kind, "rules": rules},
        {**head, "kind": f"{kind}Binding", "roleRef": role, "subjects": [subject]},
    ]
