"""One control, and the objects under it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tests.e2e.compare import Operation
from tests.e2e.objects import metadata, within
from tests.e2e.policy_comparison import LABEL, Scenario, binding, bound, policy
from tests.e2e.setups import rule

Json = dict[str, Any]

PODS: Final = (rule("pods", "CREATE", "UPDATE"),)
WORKLOADS: Final = (
    *PODS,
    rule("deployments statefulsets daemonsets replicasets", "CREATE", "UPDATE", group="apps"),
    rule("jobs cronjobs", "CREATE", "UPDATE", group="batch"),
)
POD_SPEC: Final = {
    "name": "spec",
    "expression": "object.kind == 'Pod' ? object.spec : object.kind == 'CronJob' "
    "? object.spec.jobTemplate.spec.template.spec : object.spec.template.spec",
}
CONTAINERS: Final = {
    "name": "containers",
    "expression": "variables.spec.containers + variables.spec.?initContainers.orValue([]) "
    "+ variables.spec.?ephemeralContainers.orValue([])",
}
_COLLECTIONS: Final = {
    "Pod": within("pods"),
    "ConfigMap": within("configmaps"),
    "Secret": within("secrets"),
    "Service": within("services"),
    "ServiceAccount": within("serviceaccounts"),
    "PersistentVolumeClaim": within("persistentvolumeclaims"),
    "Namespace": "/api/v1/namespaces",
    "Deployment": within("deployments", "apps/v1"),
    "StatefulSet": within("statefulsets", "apps/v1"),
    "DaemonSet": within("daemonsets", "apps/v1"),
    "Job": within("jobs", "batch/v1"),
    "CronJob": within("cronjobs", "batch/v1"),
    "Ingress": within("ingresses", "networking.k8s.io/v1"),
    "NetworkPolicy": within("networkpolicies", "networking.k8s.io/v1"),
    "Role": within("roles", "rbac.authorization.k8s.io/v1"),
    "RoleBinding": within("rolebindings", "rbac.authorization.k8s.io/v1"),
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "PodDisruptionBudget": within("poddisruptionbudgets", "policy/v1"),
    "HorizontalPodAutoscaler": within("horizontalpodautoscalers", "autoscaling/v2"),
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}


@dataclass(frozen=True)
class Control:
    """A policy, and objects of which it is known whether it allows them."""

    name: str
    rules: tuple[Json, ...]
    validations: tuple[Json, ...]
    good: tuple[Json, ...]
    bad: tuple[Json, ...]
    spec: Json = field(default_factory=dict)
    """Further fields of the policy."""
    binding: Json = field(default_factory=bound)

    def scenario(self) -> Scenario:
        """Return the policy, and the creation of each object."""
        match = {
            "resourceRules": list(self.rules),
            "objectSelector": {"matchLabels": {LABEL: self.name}},
        }
        spec = {"matchConstraints": match, "validations": list(self.validations), **self.spec}
        documents = (policy(self.name, spec), binding(self.name, self.name, self.binding))
        made = tuple(self._creation(number, each) for number, each in enumerate((*self.good, *self.bad)))
        return Scenario(self.name, documents, made)

    def _creation(self, number: int, document: Json) -> Operation:
        given = document.get("metadata", {})
        labels = {**given.get("labels", {}), LABEL: self.name}
        named = {**given, **metadata(given.get("name") or f"{self.name}-{number}", labels)}
        path = f"{_COLLECTIONS[document['kind']]}?dryRun=All"
        return Operation("POST", path, {**document, "metadata": named})


def checked(*validations: str | tuple[str, str], reason: str = "") -> tuple[Json, ...]:
    """Return validations: expressions, some with the CEL of their message."""
    found = []
    for each in validations:
        expression, message = (each, "") if isinstance(each, str) else each
        document = {"expression": expression}
        if message:
            document["messageExpression"] = message
        if reason:
            document["reason"] = reason
        found.append(document)
    return tuple(found)


def of_containers(name: str, condition: str, good: tuple[Json, ...], bad: tuple[Json, ...]) -> Control:
    """Return a control that wants *condition* of each container ``c`` of Pods and workloads.

    *good* and *bad* are members of a container; each is tried in a Pod, and the first ones in all workloads.
    """
    message = (
        "object.kind + '/' + object.metadata.name + ': ' + "
        f"variables.containers.filter(c, !({condition})).map(c, c.name).join(', ')"
    )
    return Control(
        name,
        WORKLOADS,
        checked((f"variables.containers.all(c, {condition})", message)),
        _everywhere(good),
        _everywhere(bad),
        {"variables": [POD_SPEC, CONTAINERS]},
    )


def of_pods(name: str, condition: str, good: tuple[Json, ...], bad: tuple[Json, ...]) -> Control:
    """Return a control that wants *condition* of ``variables.spec``; *good* and *bad* are members of it."""
    return Control(
        name,
        WORKLOADS,
        checked(condition),
        (*(pod(**each) for each in good), *(workload("Deployment", **each) for each in good[:1])),
        (*(pod(**each) for each in bad), *(workload("Deployment", **each) for each in bad[:1])),
        {"variables": [POD_SPEC, CONTAINERS]},
    )


def _everywhere(members: tuple[Json, ...]) -> tuple[Json, ...]:
    first, *_ = members
    return (
        *(pod(containers=[container(**each)]) for each in members),
        *(
            workload(kind, containers=[container(**first)])
            for kind in ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
        ),
        pod(containers=[container(**first)], initContainers=[container(**{**first, "name": "first"})])
        if not {"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} & first.keys()
        else pod(containers=[container(**first), container(**{**first, "name": "second"})]),
    )


def container(**members: Any) -> Json:
    """Return a container."""
    return {"name": "main", "image": "registry.test/team/main:1.0", **members}


def pod(**spec: Any) -> Json:
    """Return a Pod without metadata."""
    return {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container()], **spec}}


def workload(kind: str, members: Json | None = None, **spec: Any) -> Json:
    """Return a controller of Pods: *members* are those of its own spec, *spec* those of its Pods."""
    labels = {"app": "shop"}
    of_pods = {"containers": [container()], **spec}
    template: Json = {"metadata": {"labels": labels}, "spec": of_pods}
    if kind in ("Job", "CronJob"):
        of_pods.setdefault("restartPolicy", "Never")
        job: Json = {"template": {"spec": of_pods}}
        if kind == "Job":
            return {"apiVersion": "batch/v1", "kind": kind, "spec": {**job, **(members or {})}}
        scheduled = {"schedule": "17 3 * * *", "jobTemplate": {"spec": job}, **(members or {})}
        return {"apiVersion": "batch/v1", "kind": kind, "spec": scheduled}
    own: Json = {"selector": {"matchLabels": labels}, "template": template, **(members or {})}
    if kind == "StatefulSet":
        own["serviceName"] = "shop"
    return {"apiVersion": "apps/v1", "kind": kind, "spec": own}
