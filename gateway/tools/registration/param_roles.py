"""The role by which a service account may follow the parameters of policies, all objects of listed kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.config.kinds.policy_settings import ListedParamKind

    Json = dict[str, object]

_RBAC = "rbac.authorization.k8s.io"
_NAME = "admission-gateway-policy-parameters"


def param_roles(kinds: Sequence[ListedParamKind], account: tuple[str, str]) -> list[Json]:
    """Return a ClusterRole and its binding for *account*, namespace and name; nothing without *kinds*."""
    if not kinds:
        return []
    head: Json = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": _NAME}}
    rules = [
        {"apiGroups": [kind.group], "resources": [kind.resource], "verbs": ["get", "list", "watch"]}
        for kind in kinds
    ]
    subject = {"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _NAME}
    return [
        {**head, "kind": "ClusterRole", "rules": rules},
        {**head, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    ]
