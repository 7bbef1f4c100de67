"""Random requests, with what the policy answers in the form of the oracle."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker import Denied
from admission_gateway_worker.counters import Counters, families
from admission_gateway_worker.policies.pod_security import DEFINITIONS
from tests.library.pod_security.pods import mutated

if TYPE_CHECKING:
    import random

    from admission_gateway_worker import Review

Json = dict[str, Any]

(DEFINITION,) = DEFINITIONS

_PREFIX: Final = "pod-security.kubernetes.io/"
_LEVELS: Final = ("privileged", "baseline", "restricted", "restricted", "unknown", "")
_VERSIONS: Final = (
    "latest",
    "v1.0",
    "v1.24",
    "v1.37",
    "v1.38",
    "v1.01",
    "v2.1",
    "v1.9999999999999999999",
    "",
)
_NAMES: Final = ("test", "exempt")
_USERS: Final = ("alice", "exempt-user", "")
_TEMPLATE: Final = ("spec", "template")
_WORKLOADS: Final = (
    ("apps", "deployments", "Deployment", _TEMPLATE),
    ("apps", "daemonsets", "DaemonSet", _TEMPLATE),
    ("apps", "statefulsets", "StatefulSet", _TEMPLATE),
    ("apps", "replicasets", "ReplicaSet", _TEMPLATE),
    ("batch", "jobs", "Job", _TEMPLATE),
    ("batch", "cronjobs", "CronJob", ("spec", "jobTemplate", "spec", "template")),
    ("", "podtemplates", "PodTemplate", ("template",)),
    ("", "replicationcontrollers", "ReplicationController", _TEMPLATE),
)


def question(draw: random.Random, pods: list[Json]) -> Json:
    """Return a request with its namespace and the configuration, as the oracle reads them."""
    name = draw.choice(_NAMES)
    asked = draw.choice((_pod, _pod, _workload, _namespace))(draw, pods, name)
    user = {"username": draw.choice(_USERS)}
    operation = draw.choice(("CREATE", "UPDATE"))
    if operation == "CREATE":
        asked["oldObject"] = None
    configuration = {
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": _choices(draw, "", _LEVELS[:4], _VERSIONS[:5]) if draw.random() < 0.5 else {},
        "exemptions": draw.choice(
            (
                {},
                {"namespaces": ["exempt"], "usernames": ["exempt-user"], "runtimeClasses": ["exempt"]},
                {"runtimeClasses": ["exempt"]},
            )
        ),
    }
    return {
        "request": {"uid": "", "operation": operation, "userInfo": user, "namespace": name, **asked},
        "namespace": _labelled(draw, name) if draw.random() < 0.98 else None,
        "configuration": configuration,
        "pods": [],
    }


def decision(asked: Json) -> Json:
    """Return response and metrics of the policy, as the oracle prints them."""
    configuration = asked["configuration"]
    parameters = {field: configuration[field] for field in ("defaults", "exemptions")}
    review = DEFINITION.review(asked["request"], parameters, namespace_object=asked["namespace"])
    counters = Counters(())
    counters.attach_families()
    return {"response": {"uid": "", **_response(review)}, "counted": _counted(counters)}


def _response(review: Review) -> Json:
    response: Json = {"allowed": True}
    try:
        running = DEFINITION.function(review)
        if running is not None:
            running.close()  # type: ignore[attr-defined]
    except Denied as denied:
        response = {"allowed": False, "status": _status(denied)}
    if review.annotations:
        response["auditAnnotations"] = dict(sorted(review.annotations.items()))
    if review.warnings:
        response["warnings"] = review.warnings
    return response


def _status(denied: Denied) -> Json:
    details: Json = {"name": denied.name, "group": denied.group, "kind": denied.kind}
    if denied.causes:
        details["causes"] = [
            {key: value for key, value in asdict(cause).items() if value} for cause in denied.causes
        ]
    status: Json = {"metadata": {}, "status": "Failure", "message": denied.message, "reason": denied.reason}
    if details := {key: value for key, value in details.items() if value}:
        status["details"] = details
    return {**status, "code": denied.code}


def _counted(counters: Counters) -> dict[str, float]:
    found = {}
    for family in families():
        for values, count in zip(family.values, counters.values(family), strict=True):
            if count:
                labels = sorted(map("=".join, zip(family.labels, values, strict=True)))
                found[f"{family.name} {' '.join(labels)}"] = count
    return found


def _choices(draw: random.Random, prefix: str, levels: tuple[str, ...], versions: tuple[str, ...]) -> Json:
    found = {}
    for mode in ("enforce", "audit", "warn"):
        if draw.random() < 0.5:
            found[prefix + mode] = draw.choice(levels)
        if draw.random() < 0.3:
            found[f"{prefix}{mode}-version"] = draw.choice(versions)
    return found


def _labelled(draw: random.Random, name: str) -> Json:
    valid = draw.random() < 0.7
    labels = _choices(draw, _PREFIX, _LEVELS[:4] if valid else _LEVELS, _VERSIONS[:5] if valid else _VERSIONS)
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _namespace(draw: random.Random, _: list[Json], name: str) -> Json:
    return {
        "kind": {"group": "", "version": "v1", "kind": "Namespace"},
        "resource": {"group": "", "version": "v1", "resource": "namespaces"},
        "name": name,
        "object": _labelled(draw, name),
        "oldObject": _labelled(draw, name),
        **({"subResource": "status"} if draw.random() < 0.05 else {}),
    }


def _pod(draw: random.Random, pods: list[Json], _: str) -> Json:
    pod = mutated(draw, draw.choice(pods))
    old = mutated(draw, pod)
    if draw.random() < 0.5:
        for container in old["spec"].get("containers") or ():
            container["image"] = "registry.test/other:1"
    return {
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": draw.choice(("", "", "", "ephemeralcontainers", "resize", "status", "exec")),
        "name": draw.choice(("web", "")),
        "object": pod,
        "oldObject": old,
    }


def _workload(draw: random.Random, pods: list[Json], _: str) -> Json:
    group, resource, kind, path = draw.choice(_WORKLOADS)
    pod = mutated(draw, draw.choice(pods))
    document: Json = {"metadata": pod.get("metadata") or {}, "spec": pod["spec"]}
    for key in reversed(path):
        document = {key: document}
    document |= {"apiVersion": f"{group}/v1".lstrip("/"), "kind": kind, "metadata": {"name": "web"}}
    return {
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "subResource": "status" if draw.random() < 0.05 else "",
        "name": "web",
        "object": document,
        "oldObject": document,
    }
