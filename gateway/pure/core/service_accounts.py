"""The users that ServiceAccounts are for the API server.

Source: k8s.io/apiserver pkg/authentication/serviceaccount/util.go (MakeUsername, MakeGroupNames);
k8s.io/kubernetes cmd/kube-controller-manager/names/controller_names.go.
"""

from __future__ import annotations

from typing import Final

CONTROLLERS: Final = "kube-system"
"""The namespace of the accounts of Kubernetes' own controllers."""


CREATORS: Final = {
    ("", "ReplicationController"): "replication-controller",
    ("apps", "DaemonSet"): "daemon-set-controller",
    ("apps", "Deployment"): "deployment-controller",
    ("apps", "ReplicaSet"): "replicaset-controller",
    ("apps", "StatefulSet"): "statefulset-controller",
    ("batch", "CronJob"): "cronjob-controller",
    ("batch", "Job"): "job-controller",
}
"""By group and kind of an owner, the account of the controller that creates what belongs to it."""


def service_account(name: str, namespace: str = CONTROLLERS) -> tuple[str, tuple[str, ...]]:
    """Return user and groups of the account *name*: by default that of the controller *name*."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return f"system:serviceaccount:{namespace}:{name}", groups
