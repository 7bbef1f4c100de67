"""Objects that an API server refuses by itself, and objects that it takes, with the fields that are wrong."""

from __future__ import annotations

from typing import Any, Final

LABELS: Final = {"app": "a"}


def workload(kind: str = "Deployment", labels: dict[str, str] = LABELS, **container: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "a", "image": "b", **container}]},
    }
    spec = {"selector": {"matchLabels": LABELS}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec}


def without_containers() -> dict[str, Any]:
    found = workload()
    found["spec"]["template"]["spec"]["containers"] = []
    return found


def pod(**container: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "a", "image": "b", **container}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}


def core(kind: str, name: str = "web", metadata: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **(metadata or {})}, **more}


def service(port: Any, name: str = "web") -> dict[str, Any]:
    return core("Service", name, spec={"selector": LABELS, "ports": [{"port": port}]})


MOUNTS: Final = [{"name": "data", "mountPath": "/data"}]


def with_claim() -> dict[str, Any]:
    found = workload("StatefulSet", volumeMounts=MOUNTS)
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    found["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": spec}]
    return found


CONTAINER: Final = "spec.containers[0]"
OF_TEMPLATE: Final = f"spec.template.{CONTAINER}"
REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a field that is not known": ({**workload(), "speck": {}}, "speck"),
    "a field of a container that is not known": (
        workload(imagePolicy="Always"),
        f"{OF_TEMPLATE}.imagePolicy",
    ),
    "a text for a number": (
        workload(ports=[{"containerPort": "80"}]),
        f"{OF_TEMPLATE}.ports[0].containerPort",
    ),
    "a number for a text": (core("ConfigMap", data={"a": 1}), "data.a"),
    "true for a text": (pod(env=[{"name": "A", "value": True}]), f"{CONTAINER}.env[0].value"),
    "a text for a list": (pod(command="sh"), f"{CONTAINER}.command"),
    "a list for a mapping": (core("ConfigMap", data=["a"]), "data"),
    "a text for true": (pod(stdin="yes"), f"{CONTAINER}.stdin"),
    "a part of a number": (core("Service", spec={"ports": [{"port": 1.5}]}), "spec.ports[0].port"),
    "a large number": (service(1 << 31), "spec.ports[0].port"),
    "no quantity": (pod(resources={"limits": {"memory": "1GB"}}), f"{CONTAINER}.resources.limits.memory"),
    "no base64": (core("Secret", data={"a": "hello!"}), "data.a"),
    "a mapping for a number or a text": (
        pod(livenessProbe={"httpGet": {"port": {}}}),
        f"{CONTAINER}.livenessProbe.httpGet.port",
    ),
    "a name": (core("ConfigMap", "Web_1"), "metadata.name"),
    "the name of a service": (service(80, "web.a"), "metadata.name"),
    "the name of a namespace": (core("Namespace", "a.b"), "metadata.name"),
    "the value of a label": (core("ConfigMap", metadata={"labels": {"a": "b c"}}), "metadata.labels.a"),
    "the key of an annotation": (
        core("ConfigMap", metadata={"annotations": {"a b": "c"}}),
        'metadata.annotations["a b"]',
    ),
    "a label of a template": (workload(labels={"app": "a", "b": "-"}), "spec.template.metadata.labels.b"),
    "a selector of other labels": (workload(labels={"app": "b"}), "spec.template.metadata.labels"),
    "no selector": (
        {**workload(), "spec": {"template": workload()["spec"]["template"]}},
        "spec.selector",
    ),
    "no container": (without_containers(), "spec.template.spec.containers"),
    "no image": (workload(image=""), f"{OF_TEMPLATE}.image"),
    "the name of a container": (workload(name="A"), f"{OF_TEMPLATE}.name"),
    "a volume that is not there": (workload(volumeMounts=MOUNTS), f"{OF_TEMPLATE}.volumeMounts[0].name"),
    "a claim of a StatefulSet that is not there": (
        workload("StatefulSet", volumeMounts=MOUNTS),
        f"{OF_TEMPLATE}.volumeMounts[0].name",
    ),
    "the name of a role": (
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a/b"}},
        "metadata.name",
    ),
}
"""By what is wrong: the object, and the field. The API server's message names the last part of it."""
NOT_SERVED: Final[dict[str, tuple[str, str, str]]] = {
    "a version that was removed": ("extensions/v1beta1", "Ingress", "; use networking.k8s.io/v1"),
    "another group": ("v1", "Deployment", "; use apps/v1"),
    "a kind with a mistake": ("apps/v1", "Deploymnet", '; did you mean "Deployment"?'),
}
TAKEN: Final[dict[str, dict[str, Any]]] = {
    "a Deployment": workload(resources={"limits": {"cpu": 1, "memory": "1Gi"}}),
    "a StatefulSet with the volume of a claim": with_claim(),
    "a Pod with volumes": {
        **pod(volumeMounts=MOUNTS),
        "spec": {**pod(volumeMounts=MOUNTS)["spec"], "volumes": [{"name": "data"}]},
    },
    "base64 of several lines": core("Secret", data={"a": "aGVs\nbG8=\n"}),
    "nulls": core("ConfigMap", data=None, metadata={"labels": None, "annotations": {}}),
    "a Service whose name begins with a digit": service(80, "1web"),
    "a Role": {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "system:a_B"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
}
