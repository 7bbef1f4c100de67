"""Objects of clusters for the tests of lock-outs."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

NAME_LABEL = "kubernetes.io/metadata.name"
GATEWAY = {"namespace": "policies", "name": "gateway"}


def rule(*resources: str, group: str = "*", operations: tuple[str, ...] = ("*",), **more: Any) -> Json:
    """A rule of a webhook; by default for all groups and operations."""
    return {
        "operations": list(operations),
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": list(resources),
        **more,
    }


def entry(*rules: Json, name: str = "fail.admission-gateway.io", **more: Any) -> Json:
    """An entry of the gateway with Fail."""
    return {
        "name": name,
        "clientConfig": {"service": {**GATEWAY, "path": "/validate"}},
        "rules": list(rules),
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


def registration(*entries: Json, name: str = "gateway") -> Json:
    """A validating registration."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(entries),
    }


def without(*namespaces: str) -> Json:
    """A namespaceSelector that leaves *namespaces* out."""
    return {"matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": list(namespaces)}]}


def namespace(name: str, **labels: str) -> Json:
    """A Namespace."""
    return {"metadata": {"name": name, "labels": {NAME_LABEL: name, **labels}}}


def service(name: str, namespace: str, **selector: str) -> Json:
    """A Service."""
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}


def pod(owner: str, namespace: str, labels: Json | None = None, number: int = 0, **spec: Any) -> Json:
    """A Pod of *owner*, ``KIND/NAME``; that of a Deployment is of a ReplicaSet, of a CronJob of a Job."""
    kind, _, name = owner.partition("/")
    labels = dict(labels or {"app": name})
    version = {"Node": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}.get(kind, "apps/v1")
    reference = {"apiVersion": version, "kind": kind, "name": name, "controller": True}
    if kind == "Deployment":
        labels["pod-template-hash"] = "abc"
        reference.update(kind="ReplicaSet", name=f"{name}-abc")
    elif kind == "CronJob":
        reference.update(kind="Job", name=f"{name}-29000000")
    metadata: Json = {"name": f"{name}-{number}", "namespace": namespace, "labels": labels}
    if kind != "Pod":
        metadata["ownerReferences"] = [reference]
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "none"}], **spec}}
