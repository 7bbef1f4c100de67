"""Documents and addresses of the objects that the end-to-end tests act on."""

from __future__ import annotations

from typing import Any, Final

GROUP: Final = "e2e.admission-gateway.test"
"""API group of the custom resource ``widgets``, which is served in the versions v1 and v2."""


def within(resource: str, group_version: str = "v1") -> str:
    """Return the path of *resource* (a name, a subresource and a query may follow) in ``{namespace}``."""
    root = "/api/v1" if group_version == "v1" else f"/apis/{group_version}"
    return f"{root}/namespaces/{{namespace}}/{resource}"


def deployments(name: str = "") -> str:
    return within(f"deployments{name and '/'}{name}", "apps/v1")


def metadata(name: str, labels: dict[str, str] | None = None, **members: Any) -> dict[str, Any]:
    """Return object metadata; a *name* that ends in ``-`` is a ``generateName``."""
    named = {"generateName" if name.endswith("-") else "name": name}
    return {**named, **({} if labels is None else {"labels": labels}), **members}


def pod(name: str = "web", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name, labels),
        "spec": {"containers": [{"name": "main", "image": "registry.test/main:1"}], **spec},
    }


def config_map(name: str = "settings", labels: dict[str, str] | None = None, **values: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(name, labels), "data": values}


def deployment(name: str = "shop", labels: dict[str, str] | None = None, replicas: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name, labels),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "registry.test/main:1"}]},
            },
        },
    }


def autoscaler(version: str, name: str = "shop") -> dict[str, Any]:
    """Return a HorizontalPodAutoscaler in autoscaling/*version*, v1 or v2, with the same content."""
    target: dict[str, Any] = {"targetCPUUtilizationPercentage": 50}
    if version == "v2":
        cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
        target = {"metrics": [{"type": "Resource", "resource": cpu}]}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(name),
        "spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": reference, **target},
    }


def widget(version: str = "v1", name: str = "gear", labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "Widget",
        "metadata": metadata(name, labels),
        "spec": {"size": 3, "ratio": 0.5, "free": {"nested": [1, "two", None]}},
    }


def widget_definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition of ``widgets``: two versions alike, with status and scale."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}}
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == "v1",
                    "schema": schema,
                    "subresources": {"status": {}, "scale": scale},
                }
                for version in ("v1", "v2")
            ],
        },
    }
