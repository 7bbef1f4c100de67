"""Sample policies that allow or deny."""

from __future__ import annotations

from typing import Any, Final

from admission_gateway_worker import Cause, Denied, Review
from admission_gateway_worker.pods import containers, pod_spec

REQUIRED_LABELS: Final = ("team",)

BUSY_ANNOTATION: Final = "samples.example/busy"
RETRY_AFTER_S: Final = 10

REPLICAS_SCHEMA: Final = {
    "type": "object",
    "properties": {"max": {"type": "integer", "minimum": 0}},
    "additionalProperties": False,
}
DEFAULT_MAX: Final = 10

_HOST_NAMESPACES: Final = ("hostNetwork", "hostPID", "hostIPC")


def require_labels(review: Review) -> None:
    """Every object names its team in a label."""
    found = review.object
    if review.operation not in ("CREATE", "UPDATE") or review.sub_resource or not isinstance(found, dict):
        return
    metadata = found.get("metadata") or {}
    if metadata.get("deletionTimestamp"):
        return  # such updates only remove finalizers
    labels = metadata.get("labels") or {}
    causes = [
        Cause(f'label "{label}" is missing: add it', f"metadata.labels[{label}]", "FieldValueRequired")
        for label in REQUIRED_LABELS
        if not labels.get(label)
    ]
    _deny(causes)


def deny_latest_tag(review: Review) -> None:
    """Images are named by a digest or by a tag other than latest."""
    pod = pod_spec(review)
    if pod is None:
        return
    causes = [
        Cause(f'image "{image}" {problem}: name a version', f"{path}.image")
        for path, container in containers(pod)
        if (image := container.get("image") or "") and (problem := _tag_problem(image))
    ]
    _deny(causes)


def _tag_problem(image: str) -> str:
    """Return the problem of the tag; empty if there is none."""
    name, _, digest = image.partition("@")
    if digest:
        return ""
    # A colon before the last slash is the registry's port.
    _, _, tag = name.rpartition("/")[2].partition(":")
    if not tag:
        return "has no tag, which means latest"
    return "has the tag latest" if tag == "latest" else ""


def deny_privileged(review: Review) -> None:
    """Pods do not run privileged and do not share the node's namespaces."""
    pod = pod_spec(review)
    if pod is None:
        return
    causes = [
        Cause(f"{field} shares a namespace of the node: set it to false", f"{pod.path}.{field}")
        for field in _HOST_NAMESPACES
        if pod.spec.get(field)
    ]
    causes += [
        Cause(
            f'container "{container.get("name") or ""}" is privileged: set it to false',
            f"{path}.securityContext.privileged",
        )
        for path, container in containers(pod)
        if (container.get("securityContext") or {}).get("privileged")
    ]
    _deny(causes)


def protect_busy(review: Review) -> None:
    """Objects with the annotation samples.example/busy are not deleted; the client may try again later."""
    found = review.old_object
    if review.operation != "DELETE" or review.sub_resource or not isinstance(found, dict):
        return
    metadata = found.get("metadata") or {}
    work = (metadata.get("annotations") or {}).get(BUSY_ANNOTATION)
    if work:
        raise Denied(
            f"metadata.annotations[{BUSY_ANNOTATION}]: busy with {work}: try again when it is done",
            code=429,
            reason="TooManyRequests",
            retry_after_seconds=RETRY_AFTER_S,
            name=metadata.get("name") or "",
            group=review.kind.get("group", ""),
            kind=review.kind.get("kind", ""),
            uid=metadata.get("uid") or "",
        )


def warn_no_memory_limit(review: Review) -> None:
    """Containers without a memory limit are let through with a warning."""
    pod = pod_spec(review)
    if pod is None:
        return
    unlimited = [
        container.get("name") or ""
        for _, container in containers(pod)
        if not ((container.get("resources") or {}).get("limits") or {}).get("memory")
    ]
    for name in unlimited:
        review.warn(f'container "{name}" has no memory limit')
    if unlimited:
        review.annotate("no-memory-limit", ",".join(unlimited))


def max_replicas(parameters: dict[str, Any]) -> int:
    """Prepare the parameters of ``limit_replicas``."""
    found = parameters.get("max", DEFAULT_MAX)
    if type(found) is not int or found < 0:
        raise RuntimeError("max is to be a whole number of at least 0")
    return found


def limit_replicas(review: Review) -> None:
    """Objects have at most max replicas."""
    replicas = ((review.object or {}).get("spec") or {}).get("replicas")
    if type(replicas) is int and replicas > review.parameters:
        _deny(
            [Cause(f"{replicas} is more than the maximum of {review.parameters}: lower it", "spec.replicas")]
        )


def _deny(causes: list[Cause]) -> None:
    """Deny the request with *causes*, if there are any: field, problem and what to do of each."""
    if causes:
        raise Denied("; ".join(f"{cause.field}: {cause.message}" for cause in causes), causes=causes)
