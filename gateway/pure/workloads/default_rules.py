"""Defaults of the API server that depend on other fields.

Each function changes an object of its type, which nobody else has, before the parts of the object get their
own defaults.

Source: k8s.io/kubernetes pkg/apis/GROUP/VERSION/defaults.go and conversion.go,
k8s.io/apiextensions-apiserver pkg/apis/apiextensions/v1/defaults.go.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.workloads import pod_resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.pure.core.review import Json

_MAX_INT32: Final = 2**31 - 1
_RBAC: Final = "rbac.authorization.k8s.io"
_PERIOD_S: Final = 15
_MAX_IMAGE_CHARS: Final = 1000
"""More than a name, a tag and a digest can have."""
_IMAGE: Final = re.compile(
    r"(?P<name>[^@]{1,255}?)(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>[A-Za-z][\w+.-]*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST: Final = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?")
_PATH: Final = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")
_IDENTIFIER: Final = re.compile("[a-f0-9]{64}")
"""Of an image on a node, which is not a name."""
_IMAGE_VOLUMES, _UNAVAILABLE_PODS, _VOLUME_LIMITS = 35, 37, 37
"""The minor versions since which the API server knows them without being asked."""


def parts(found: Json, name: str) -> list[Json]:
    """Return the objects in the list *name* of *found*."""
    each = found.get(name)
    return [one for one in each if isinstance(one, dict)] if isinstance(each, list) else []


def part(found: Json, *names: str) -> Json:
    """Return the object at the path *names* of *found*, empty if there is none."""
    for name in names:
        each = found.get(name)
        if not isinstance(each, dict):
            return {}
        found = each
    return found


def tag_is_latest(image: object) -> bool:
    """Whether *image* has the tag ``latest``, or neither a tag nor a digest.

    Such an image is pulled always. What is not the name of an image has no tag.

    Source: github.com/distribution/reference normalize.go, regexp.go; k8s.io/kubernetes pkg/util/parsers.
    """
    if not isinstance(image, str) or len(image) > _MAX_IMAGE_CHARS or _IDENTIFIER.fullmatch(image):
        return False
    found = _IMAGE.fullmatch(image)
    if found is None:
        return False
    first, slash, rest = found["name"].partition("/")
    has_host = bool(slash) and (
        first == "localhost" or "." in first or ":" in first or first != first.lower()
    )
    path = rest if has_host else found["name"]
    if _PATH.fullmatch(path) is None or (has_host and _HOST.fullmatch(first) is None):
        return False
    return found["tag"] == "latest" if found["tag"] else not found["digest"]


def _container(found: Json, _: int) -> None:
    if not found.get("imagePullPolicy"):
        found["imagePullPolicy"] = "Always" if tag_is_latest(found.get("image", "")) else "IfNotPresent"


def _volume(found: Json, minor: int) -> None:
    if not any(isinstance(each, dict) for each in found.values()):
        found["emptyDir"] = {}
    image = part(found, "image")
    if image and minor >= _IMAGE_VOLUMES and not image.get("pullPolicy"):
        latest = tag_is_latest(image.get("reference", ""))
        image["pullPolicy"] = "Always" if latest else "IfNotPresent"


def _pod_spec(found: Json, _: int) -> None:
    account = found.get("serviceAccountName") or found.get("serviceAccount")
    if account:
        found["serviceAccountName"] = found["serviceAccount"] = account


def _pod(found: Json, minor: int) -> None:
    spec = part(found, "spec")
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("enableServiceLinks", True)
    for container in (*parts(spec, "containers"), *parts(spec, "initContainers")):
        resources = part(container, "resources")
        if limits := part(resources, "limits"):
            resources["requests"] = {**limits, **part(resources, "requests")}
        if spec.get("hostNetwork") is True:
            for port in parts(container, "ports"):
                if not port.get("hostPort") and port.get("containerPort"):
                    port["hostPort"] = port["containerPort"]
    if minor in pod_resources.VERSIONS and (resources := part(spec, "resources")):
        pod_resources.fill(resources, parts(spec, "containers"), parts(spec, "initContainers"))
    status = part(found, "status")
    address, addresses = status.get("podIP"), parts(status, "podIPs")
    if address and (not addresses or addresses[0].get("ip") != address):
        status["podIPs"] = [{"ip": address}]
    elif not address and addresses and (first := addresses[0].get("ip")):
        status["podIP"] = first


def _rolling_update(found: Json, unavailable: object, surge: object) -> None:
    is_rolling = found.get("type", "RollingUpdate") == "RollingUpdate"
    if is_rolling:
        found.setdefault("rollingUpdate", {})
    update = found.get("rollingUpdate")
    if isinstance(update, dict):
        update.setdefault("maxUnavailable", unavailable if is_rolling else 0)
        update.setdefault("maxSurge", surge if is_rolling else 0)


def _daemon_set_strategy(found: Json, _: int) -> None:
    _rolling_update(found, 1, 0)


def _deployment_strategy(found: Json, _: int) -> None:
    _rolling_update(found, "25%", "25%")


def _stateful_set(found: Json, minor: int) -> None:
    for claim in parts(found, "volumeClaimTemplates"):
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    strategy = part(found, "updateStrategy")
    found.setdefault("updateStrategy", strategy)
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    update = strategy.get("rollingUpdate")
    if isinstance(update, dict):
        update.setdefault("partition", 0)
        if minor >= _UNAVAILABLE_PODS and strategy["type"] == "RollingUpdate":
            update.setdefault("maxUnavailable", 1)


def _daemon_set(found: Json, _: int) -> None:
    metadata = found.setdefault("metadata", {})
    if isinstance(metadata, dict):
        generation = {"deprecated.daemonset.template.generation": "0"}
        metadata["annotations"] = {**generation, **part(metadata, "annotations")}


def _persistent_volume(found: Json, _: int) -> None:
    spec = part(found, "spec")
    spec.setdefault("volumeMode", "Filesystem")
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"


def _labels_of_template(found: Json) -> Json:
    """Give *found* the labels of its template if it has none. Returns these."""
    labels = part(found, "spec", "template", "metadata", "labels")
    metadata = found.setdefault("metadata", {})
    if labels and isinstance(metadata, dict) and not metadata.get("labels"):
        metadata["labels"] = dict(labels)
    return labels


def _replication_controller(found: Json, _: int) -> None:
    labels = _labels_of_template(found)
    spec = part(found, "spec")
    if labels and not spec.get("selector"):
        spec["selector"] = dict(labels)


def _job(found: Json, _: int) -> None:
    _labels_of_template(found)
    spec = part(found, "spec")
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", _MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    replaced = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", replaced)
    spec.setdefault("manualSelector", False)


def _service(found: Json, _: int) -> None:
    spec = part(found, "spec")
    affinity, kind = spec.get("sessionAffinity") or "None", spec.get("type") or "ClusterIP"
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        config = part(spec, "sessionAffinityConfig", "clientIP")
        if "timeoutSeconds" not in config:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    for port in parts(spec, "ports"):
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    is_external = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if is_external and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for each in parts(part(found, "status", "loadBalancer"), "ingress"):
            if each.get("ip"):
                each.setdefault("ipMode", "VIP")


def _namespace(found: Json, _: int) -> None:
    metadata = part(found, "metadata")
    if name := metadata.get("name"):
        metadata["labels"] = {**part(metadata, "labels"), "kubernetes.io/metadata.name": name}


def _secret(found: Json, _: int) -> None:
    texts = found.pop("stringData", None)
    if isinstance(texts, dict) and texts:
        coded = {
            name: base64.b64encode(text.encode()).decode() if isinstance(text, str) else text
            for name, text in texts.items()
        }
        found["data"] = {**part(found, "data"), **coded}


def _node_spec(found: Json, _: int) -> None:
    one, several = found.get("podCIDR"), found.get("podCIDRs")
    first = several[0] if isinstance(several, list) and several else None
    if one and first != one:
        found["podCIDRs"] = [one]
    elif first and not one:
        found["podCIDR"] = first


def _node_status(found: Json, _: int) -> None:
    if "allocatable" not in found and isinstance(found.get("capacity"), dict):
        found["allocatable"] = dict(found["capacity"])


def _limit_range_item(found: Json, _: int) -> None:
    if found.get("type") != "Container":
        return
    limits = {**part(found, "max"), **part(found, "default")}
    requests = {**part(found, "min"), **limits, **part(found, "defaultRequest")}
    found |= {name: value for name, value in (("default", limits), ("defaultRequest", requests)) if value}


def _autoscaler_v1(found: Json, _: int) -> None:
    annotations = part(found, "metadata", "annotations")
    if "autoscaling.alpha.kubernetes.io/metrics" not in annotations:
        part(found, "spec").setdefault("targetCPUUtilizationPercentage", 80)


def _autoscaler(found: Json, _: int) -> None:
    spec = part(found, "spec")
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if isinstance(behavior, dict):
        percent = {"type": "Percent", "value": 100, "periodSeconds": _PERIOD_S}
        count = {"type": "Pods", "value": 4, "periodSeconds": _PERIOD_S}
        common = {"selectPolicy": "Max"}
        up = {"stabilizationWindowSeconds": 0, **common, "policies": [count, percent]}
        behavior["scaleUp"] = {**up, **part(behavior, "scaleUp")}
        behavior["scaleDown"] = {**common, "policies": [percent], **part(behavior, "scaleDown")}


def _network_policy_spec(found: Json, _: int) -> None:
    if not found.get("policyTypes"):
        found["policyTypes"] = ["Ingress", "Egress"] if found.get("egress") else ["Ingress"]


def _subject(found: Json, _: int) -> None:
    if not found.get("apiGroup") and found.get("kind") in ("User", "Group"):
        found["apiGroup"] = _RBAC


def _csi_driver_spec(found: Json, minor: int) -> None:
    if minor >= _VOLUME_LIMITS:
        found.setdefault("preventPodSchedulingIfMissing", False)


def _device_request(found: Json, _: int) -> None:
    """A request for devices, which has a class; one that lists alternatives has no mode."""
    if found.get("deviceClassName"):
        _counted(found, _)


def _param_ref(found: Json, _: int) -> None:
    found.setdefault("parameterNotFoundAction", "Deny")


def _device(found: Json, _: int) -> None:
    found.setdefault("basic", {})


def _counted(found: Json, _: int) -> None:
    if not found.get("allocationMode"):
        found["allocationMode"] = "ExactCount"
    if found["allocationMode"] == "ExactCount" and not found.get("count"):
        found["count"] = 1


def _definition(found: Json, _: int) -> None:
    spec = part(found, "spec")
    names = part(spec, "names")
    kind = names.get("kind")
    if isinstance(kind, str) and kind:
        if not names.get("singular"):
            names["singular"] = kind.lower()
        if not names.get("listKind"):
            names["listKind"] = f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})
    status = found.setdefault("status", {})
    if isinstance(status, dict) and not status.get("storedVersions"):
        stored = [each.get("name", "") for each in parts(spec, "versions") if each.get("storage") is True]
        if stored:
            status["storedVersions"] = stored[:1]


RULES: Final[Mapping[str, Callable[[dict[str, Any], int], None]]] = {
    "apiextensions.v1.CustomResourceDefinition": _definition,
    "admissionregistration.v1alpha1.ParamRef": _param_ref,
    "apps.v1.DaemonSet": _daemon_set,
    "apps.v1.DaemonSetUpdateStrategy": _daemon_set_strategy,
    "apps.v1.DeploymentStrategy": _deployment_strategy,
    "apps.v1.StatefulSetSpec": _stateful_set,
    "autoscaling.v1.HorizontalPodAutoscaler": _autoscaler_v1,
    "autoscaling.v2.HorizontalPodAutoscaler": _autoscaler,
    "batch.v1.Job": _job,
    "core.v1.Container": _container,
    "core.v1.EphemeralContainer": _container,
    "core.v1.LimitRangeItem": _limit_range_item,
    "core.v1.Namespace": _namespace,
    "core.v1.NodeSpec": _node_spec,
    "core.v1.NodeStatus": _node_status,
    "core.v1.PersistentVolume": _persistent_volume,
    "core.v1.Pod": _pod,
    "core.v1.PodSpec": _pod_spec,
    "core.v1.ReplicationController": _replication_controller,
    "core.v1.Secret": _secret,
    "core.v1.Service": _service,
    "core.v1.Volume": _volume,
    "networking.v1.NetworkPolicySpec": _network_policy_spec,
    "rbac.v1.Subject": _subject,
    "resource.v1.DeviceSubRequest": _counted,
    "resource.v1.ExactDeviceRequest": _counted,
    "resource.v1beta1.Device": _device,
    "resource.v1beta1.DeviceRequest": _device_request,
    "resource.v1beta1.DeviceSubRequest": _counted,
    "resource.v1beta2.DeviceSubRequest": _counted,
    "resource.v1beta2.ExactDeviceRequest": _counted,
    "storage.v1.CSIDriverSpec": _csi_driver_spec,
}
"""By group, version and type."""
