"""The users that ServiceAccounts are for the API server.

Source: k8s.io/apiserver pkg/authentication/serviceaccount/util.go (MakeUsername, MakeGroupNames).
"""

from __future__ import annotations

from typing import Final

CONTROLLERS: Final = "kube-system"
"""The namespace of the accounts of Kubernetes' own controllers."""


def service_account(name: str, namespace: str = CONTROLLERS) -> tuple[str, tuple[str, ...]]:
    """Return user and groups of the account *name*: by default that of the controller *name*."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return f"system:serviceaccount:{namespace}:{name}", groups
