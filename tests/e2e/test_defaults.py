"""Defaults of built-in kinds are those that this API server sets when it creates an object."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.pure.workloads.defaults import with_defaults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

_POD: Final[dict[str, Any]] = {
    "hostNetwork": True,
    "initContainers": [{"name": "init", "image": "busybox"}],
    "containers": [
        {
            "name": "shop",
            "image": "shop:1",
            "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}},
            "livenessProbe": {"grpc": {"port": 80}},
            "readinessProbe": {"httpGet": {"port": 80}},
            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        }
    ],
    "volumes": [{"name": "empty"}, {"name": "secret", "secret": {"secretName": "shop"}}],
}
_SELECTOR: Final = {"matchLabels": {"app": "shop"}}
_LABELS: Final = {"app": "shop"}
_TEMPLATE: Final = {"metadata": {"labels": _LABELS}, "spec": _POD}
_ONCE: Final = {"metadata": {"labels": _LABELS}, "spec": {**_POD, "restartPolicy": "Never"}}
_CLAIM: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
_ROLE: Final = {"kind": "Role", "name": "shop"}
_OBJECTS: Final[dict[tuple[str, str, str], dict[str, Any]]] = {
    ("v1", "Pod", "pods"): {"spec": _POD},
    ("v1", "Service", "services"): {"spec": {"ports": [{"port": 80}], "type": "LoadBalancer"}},
    ("v1", "Secret", "secrets"): {"stringData": {"a": "b"}},
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"): {"spec": _CLAIM},
    ("v1", "ReplicationController", "replicationcontrollers"): {"spec": {"template": _TEMPLATE}},
    ("v1", "LimitRange", "limitranges"): {
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "1000m"}}]},
    },
    ("apps/v1", "Deployment", "deployments"): {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    ("apps/v1", "ReplicaSet", "replicasets"): {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    ("apps/v1", "DaemonSet", "daemonsets"): {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    ("apps/v1", "StatefulSet", "statefulsets"): {
        "spec": {
            "selector": _SELECTOR,
            "template": _TEMPLATE,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": _CLAIM}],
        }
    },
    ("batch/v1", "Job", "jobs"): {"spec": {"template": _ONCE}},
    ("batch/v1", "CronJob", "cronjobs"): {
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": _ONCE}}}
    },
    ("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"): {
        "spec": {
            "maxReplicas": 3,
            "behavior": {},
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"},
        }
    },
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"): {
        "spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]},
    },
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"): {"spec": {"minAvailable": 1}},
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"): {
        "roleRef": _ROLE,
        "subjects": [{"kind": "User", "name": "alice"}],
    },
}
_LATER: Final = frozenset(
    {
        *("metadata.uid", "metadata.creationTimestamp", "metadata.generation", "metadata.managedFields"),
        *("spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"),
        *("spec.ports[0].nodePort", "spec.selector", "spec.template.metadata.labels"),
        *("spec.priority", "spec.preemptionPolicy", "spec.tolerations", "metadata.finalizers"),
        *("spec.serviceAccount", "spec.serviceAccountName", "metadata.resourceVersion"),
    }
)
"""What plug-ins and the REST layer set after defaults. Anything may be set in ``status``."""
_CHANGED: Final = frozenset({"deprecated.daemonset.template.generation"})


def _is_later(path: str) -> bool:
    return any(path == one or path.startswith(f"{one}.") for one in _LATER)


def _differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    match ours, theirs:
        case dict(), dict():
            for name in sorted(ours.keys() | theirs.keys()):
                at = f"{path}.{name}".lstrip(".")
                if name not in theirs:
                    yield f"{at}: only the gateway has {ours[name]!r}"
                elif name not in ours:
                    if theirs[name] is not None and not _is_later(at):
                        yield f"{at}: only the API server has {theirs[name]!r}"
                elif name not in _CHANGED:
                    yield from _differences(ours[name], theirs[name], at)
        case list(), list() if len(ours) == len(theirs):
            for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                yield from _differences(one, other, f"{path}[{index}]")
        case _ if ours != theirs and path not in _LATER:
            yield f"{path}: {ours!r} instead of {theirs!r}"


@pytest.mark.parametrize("named", _OBJECTS, ids=lambda named: named[1])
def test_defaults_are_those_of_the_api_server(cluster: Cluster, named: tuple[str, str, str]) -> None:
    api_version, kind, resource = named
    found = {"apiVersion": api_version, "kind": kind, **copy.deepcopy(_OBJECTS[named])}
    found["metadata"] = {"name": "defaults", "namespace": "default", "labels": _LABELS}
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    answer = cluster.api.create(f"{root}/namespaces/default/{resource}?dryRun=All", found)
    assert answer.status == 201, answer
    minor = int(cluster.binaries.version.split(".")[1])
    ours, theirs = with_defaults(found, minor), dict(answer.document)
    ours.pop("status", None)
    theirs.pop("status", None)
    assert not list(_differences(ours, theirs))
