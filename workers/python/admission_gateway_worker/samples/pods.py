"""Finds the pod spec in an object: in a Pod, or in the template of a workload.

With it a policy for containers also applies to Deployments and CronJobs, whose author then sees the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission_gateway_worker import Review

_TEMPLATE: Final = ("spec", "template", "spec")

_SPECS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "Pod"): ("spec",),
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("batch", "Job"): _TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template", "spec"),
}

_SUB_RESOURCES: Final = ("", "ephemeralcontainers", "resize")
"""Other subresources have no spec (status) or other kinds of object (scale, exec)."""


class PodSpec(NamedTuple):
    """A pod spec, and its position in the object."""

    path: str
    """Prefix of field paths, such as ``spec`` or ``spec.template.spec``."""
    spec: dict[str, Any]
    """A part of the review's object: a change of it changes the object."""
    is_pod: bool
    """Whether the object is a Pod, whose spec is mostly immutable."""


class Container(NamedTuple):
    """One container, and its path, such as ``spec.initContainers[0]``."""

    path: str
    container: dict[str, Any]


def pod_spec(review: Review) -> PodSpec | None:
    """Return the pod spec that a request creates or updates; None if there is none.

    Also None for an object with a deletionTimestamp: a denial of its updates, which remove finalizers, would
    prevent its deletion.
    """
    found = review.object
    if review.operation not in ("CREATE", "UPDATE") or not isinstance(found, dict):
        return None
    keys = _SPECS.get((review.kind.get("group", ""), review.kind.get("kind", "")))
    if keys is None or review.sub_resource not in _SUB_RESOURCES:
        return None
    if (found.get("metadata") or {}).get("deletionTimestamp"):
        return None
    spec: Any = found
    for key in keys:
        spec = spec.get(key)
        if not isinstance(spec, dict):
            return None
    return PodSpec(".".join(keys), spec, is_pod=keys == ("spec",))


def containers(pod: PodSpec, *fields: str) -> Iterator[Container]:
    """Yield the containers in *fields*; default: all three lists."""
    for field in fields or ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(pod.spec.get(field) or ()):
            yield Container(f"{pod.path}.{field}[{index}]", container)
