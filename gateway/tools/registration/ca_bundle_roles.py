"""The roles by which a service account may follow what ``caBundleFrom`` names: these objects and no others.

Source: kubernetes.io/docs/reference/access-authn-authz/rbac, "Referring to resources": ``list`` and ``watch``
of single names are allowed with the field selector ``metadata.name``, which the gateway sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.pure.core.webhook import CaBundleSource

    Json = dict[str, object]

_RBAC = "rbac.authorization.k8s.io"
_NAME = "admission-gateway-ca-bundles"


def roles(sources: Iterable[CaBundleSource], account: tuple[str, str]) -> list[Json]:
    """Return Roles, a ClusterRole and their bindings for *account*, namespace and name; sorted."""
    names: dict[str, dict[tuple[str, str], set[str]]] = {}
    for source in sources:
        group = "" if source.namespace else "admissionregistration.k8s.io"
        resource = group, f"{source.kind.lower()}s"
        names.setdefault(source.namespace, {}).setdefault(resource, set()).add(source.name)
    documents: list[Json] = []
    for namespace, resources in sorted(names.items()):
        prefix = "" if namespace else "Cluster"
        metadata = {"name": _NAME, **({"namespace": namespace} if namespace else {})}
        subject = {"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}
        rules = [
            {
                "apiGroups": [group],
                "resources": [resource],
                "resourceNames": sorted(of_resource),
                "verbs": ["get", "list", "watch"],
            }
            for (group, resource), of_resource in sorted(resources.items())
        ]
        head = {"apiVersion": f"{_RBAC}/v1", "metadata": metadata}
        role = {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": _NAME}
        documents.append({**head, "kind": f"{prefix}Role", "rules": rules})
        documents.append({**head, "kind": f"{prefix}RoleBinding", "roleRef": role, "subjects": [subject]})
    return documents
