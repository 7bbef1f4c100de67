"""A small cluster with objects, and policies for tests of audits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml

from gateway.tools.audit import metrics
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kubernetes.server import ApiServer

Json = dict[str, Any]

_VERBS = ["create", "delete", "get", "list", "watch"]
_KINDS = {
    "/api/v1": {
        "pods": "Pod",
        "configmaps": "ConfigMap",
        "secrets": "Secret",
        "limitranges": "LimitRange",
        "serviceaccounts": "ServiceAccount",
    },
    "/apis/apps/v1": {"deployments": "Deployment", "replicasets": "ReplicaSet"},
    "/apis/node.k8s.io/v1": {"runtimeclasses": "RuntimeClass"},
    "/apis/scheduling.k8s.io/v1": {"priorityclasses": "PriorityClass"},
}
"""By the path of a group and version, its resources and their kinds."""
REPORTS = "/apis/openreports.io/v1alpha1"
NEXT = (
    "object.spec.?priority.orValue(0) < 5 && object.spec.containers.all(c,"
    " c.?resources.?limits[?'memory'].orValue('2Gi') == '1Gi')"
)
"""Denies next Pods by the default of a LimitRange, and by a PriorityClass."""
NAMED = "has(object.metadata.labels) && 'team' in object.metadata.labels"


class World:
    """An API server with Pods, ConfigMaps, Secrets and Deployments, and the command ``audit``."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.config = folder / "config"
        self.config.mkdir()
        self._uids = 0
        server.objects["/version"] = {"gitVersion": "v1.37.0"}
        server.objects["/apis"] = {
            "groups": [
                {"name": path.split("/")[2], "preferredVersion": {"groupVersion": path[len("/apis/") :]}}
                for path in _KINDS
                if path.startswith("/apis/")
            ]
        }
        server.resources = {
            path: [
                {"name": name, "kind": kind, "namespaced": not name.endswith("classes"), "verbs": _VERBS}
                for name, kind in of.items()
            ]
            for path, of in _KINDS.items()
        }
        server.put("shop")
        server.put("bank")

    def add(self, namespace: str, resource: str, name: str, **content: Any) -> None:
        """Create or replace an object; ``metadata`` is added to its own."""
        at = path_of(namespace, resource, name)
        before = self.server.objects.get(at, {"metadata": {}})["metadata"].get("uid")
        self._uids += before is None
        metadata = {"uid": before or f"uid-{self._uids}", **content.pop("metadata", {})}
        self.server.keep(at, metadata=metadata, **content)

    def set(self, resource: str, namespace: str, content: Json | None) -> None:
        """Create or replace the only object of *resource*, one that plug-ins read. None deletes it."""
        if content is not None:
            self.add(namespace, resource, "only", **content)
        elif path_of(namespace, resource, "only") in self.server.objects:
            self.remove(namespace, resource, "only")

    def define_reports(self) -> None:
        """Define the kinds of OpenReports."""
        self.server.resources[REPORTS] = [
            {"name": "reports", "kind": "Report", "namespaced": True, "verbs": _VERBS},
            {"name": "clusterreports", "kind": "ClusterReport", "namespaced": False, "verbs": _VERBS},
        ]

    def report(self, namespace: str) -> Json | None:
        """Return the report of *namespace*. None if there is none."""
        path = f"{REPORTS}/namespaces/{namespace}/reports/admission-gateway-audit"
        return self.server.objects.get(path)

    def remove(self, namespace: str, resource: str, name: str) -> None:
        """Delete an object."""
        self.server.drop(path_of(namespace, resource, name))

    def policy(self, name: str = "named", expression: str = NAMED, **spec: Any) -> None:
        """Write a policy for Pods and ConfigMaps, with its binding, or replace it."""
        self.write(name, *policy_documents(name, expression, **spec))

    def write(self, name: str, *documents: Json) -> None:
        """Write a file of the configuration."""
        (self.config / f"{name}.yaml").write_text(yaml.safe_dump_all(documents))

    def audit(self, *arguments: object, status: int = 0) -> Json:
        """Run the command, and return its report."""
        found = self.run(*arguments, "--json", status=status)
        report: Json = json.loads(found)
        return report

    def run(self, *arguments: object, status: int = 0) -> str:
        """Run the command, and return what it prints."""
        given = ("--config", self.config, "--kubeconfig", self.server.kubeconfig(self.folder))
        done = call_command("audit", *given, "--requests-per-second", 1000, *arguments)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        return done.stdout

    def findings(self, *arguments: object, status: int = 0) -> list[Json]:
        """Run the command, and return all findings."""
        return [json.loads(line) for line in self.run(*arguments, "--jsonl", "-", status=status).splitlines()]


def policy_documents(name: str, expression: str, **spec: Any) -> tuple[Json, Json]:
    """Return a policy and its binding; *spec* has members of its spec, ``resources`` and ``binding``."""
    resources = spec.pop("resources", ["pods", "configmaps"])
    binding = spec.pop("binding", {})
    rules = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": resources}]
    policy = {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": expression, "message": f"{name} says no"}],
        **spec,
    }
    bound = {"policyName": name, "validationActions": ["Deny"], **binding}
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    api_version, metadata = "admissionregistration.k8s.io/v1", {"name": name}
    first, second = (
        {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": content}
        for kind, content in zip(kinds, (policy, bound), strict=True)
    )
    return first, second


def path_of(namespace: str, resource: str, name: str) -> str:
    """Return the path of an object. An empty *namespace* stands for none."""
    (group,) = (path for path, kinds in _KINDS.items() if resource in kinds)
    return f"{group}{namespace and '/namespaces/'}{namespace}/{resource}/{name}"


def deployment(replicas: int = 1, **labels: str) -> Json:
    """The content of a Deployment whose Pods have *labels*."""
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "a"}]}}
    return {"spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}}


def pod(**metadata: Any) -> Json:
    """The content of a Pod, with members of its metadata."""
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "a"}]}}


def limit_range(**limit: Json) -> Json:
    """The content of a LimitRange with one *limit* of containers."""
    return {"spec": {"limits": [{"type": "Container", **limit}]}}


def owned(kind: str, name: str, uid: str, template: str) -> Json:
    """Metadata of a Pod of a controller."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True}
    return {"ownerReferences": [owner], "labels": {"pod-template-hash": template}}


PLUG_INS: Final[list[tuple[str, str, Json | None]]] = [
    *(("limitranges", space, limit_range(default={"memory": "1Gi"})) for space in ("shop", "bank")),
    ("limitranges", "shop", limit_range(default={"memory": "2Gi"})),
    ("limitranges", "shop", None),
    ("priorityclasses", "", {"value": 7, "globalDefault": True}),
    ("priorityclasses", "", None),
    ("serviceaccounts", "shop", {"imagePullSecrets": [{"name": "s"}]}),
]
"""Changes of what plug-ins read, for :meth:`World.set`. ``NEXT`` depends on most of them."""


def audit_exposition() -> str:
    """Return metrics of a continuous audit with a finding."""
    finding = dict(zip(metrics._LABELS, ("object", "denied", "named/named", "shop"), strict=True))
    numbers = dict.fromkeys(metrics._SINGLE, 1)
    return metrics.exposition({**numbers, "groups": [{**finding, "objects": 1}]}).decode()
