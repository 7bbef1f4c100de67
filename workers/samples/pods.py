"""Finding the pod in an object: a Pod itself, or the template in a workload.

One function, so that a policy written for containers holds for Deployments and CronJobs too, where its
message reaches the person who made them rather than a controller's event log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers import Review

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
"""Of the others, status does not carry the spec, and scale, exec and so on are other kinds of object."""


class PodSpec(NamedTuple):
    """A pod's spec, and where it stands in the object."""

    path: str
    """``spec`` or ``spec.template.spec``, say, to begin field paths with."""
    spec: dict[str, Any]
    """The part of the review's object itself: changing it changes that."""
    is_pod: bool
    """Whether it is a Pod's own: most of that is immutable once the Pod exists."""


class Container(NamedTuple):
    """One container, and where it stands: ``spec.initContainers[0]``."""

    path: str
    container: dict[str, Any]


def pod_spec(review: Review) -> PodSpec | None:
    """Return the pod spec that a request creates or updates; None if it does not.

    None too for an object that is on its way out: it still gets updates (its finalizers are taken off), and
    a policy that denied those would keep it from ever going.
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
    """Yield the containers in *fields*; in all three lists where none is named."""
    for field in fields or ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(pod.spec.get(field) or ()):
            yield Container(f"{pod.path}.{field}[{index}]", container)
