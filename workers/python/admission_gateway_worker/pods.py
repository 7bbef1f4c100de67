"""Finds the pod spec in an object: in a Pod, or in the template of a workload.

With it a policy for containers also applies to Deployments and CronJobs, whose author then sees the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from admission_gateway_worker import Review

_TEMPLATE: Final = ("spec", "template", "spec")

_SPECS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "Pod"): ("spec",),
    ("", "PodTemplate"): ("template", "spec"),
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


class ImageField(NamedTuple):
    """A name of an image, and its path, such as ``spec.containers[0].image``."""

    path: str
    name: str


class Container(NamedTuple):
    """One container, and its path, such as ``spec.initContainers[0]``."""

    path: str
    container: dict[str, Any]


def pod_template(kind: Mapping[str, str], found: object) -> dict[str, Any] | None:
    """Return the Pod, or the template of Pods, in the object *found* of *kind*: ``metadata`` and ``spec``.

    None if the object has no template.

    Raises:
        ValueError: objects of this kind have none.
    """
    keys = _SPECS.get((kind.get("group", ""), kind.get("kind", "")))
    if keys is None:
        names = [kind.get(field, "") for field in ("group", "version", "kind")]
        raise ValueError("unexpected object type: {}/{}, Kind={}".format(*names))
    return _at(found, keys[:-1])


def pod_spec(review: Review) -> PodSpec | None:
    """Return the pod spec that a request creates or updates; None if there is none.

    Also None for an object with a deletionTimestamp: a denial of its updates, which remove finalizers, would
    prevent its deletion.
    """
    found = review.object
    if review.operation not in ("CREATE", "UPDATE") or not isinstance(found, dict):
        return None
    if review.sub_resource not in _SUB_RESOURCES or (found.get("metadata") or {}).get("deletionTimestamp"):
        return None
    return pod_spec_of(review.kind, found)


def pod_spec_of(kind: Mapping[str, str], found: object) -> PodSpec | None:
    """Return the pod spec in the object *found* of *kind*; None if there is none."""
    keys = _SPECS.get((kind.get("group", ""), kind.get("kind", "")))
    spec = None if keys is None else _at(found, keys)
    return None if keys is None or spec is None else PodSpec(".".join(keys), spec, is_pod=keys == ("spec",))


def containers(pod: PodSpec, *fields: str) -> Iterator[Container]:
    """Yield the containers in *fields*, by default all three lists."""
    for field in fields or ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(pod.spec.get(field) or ()):
            yield Container(f"{pod.path}.{field}[{index}]", container)


def images(pod: PodSpec) -> Iterator[ImageField]:
    """Yield the images of all containers, and those of volumes."""
    for path, container in containers(pod):
        if name := container.get("image"):
            yield ImageField(f"{path}.image", name)
    for index, volume in enumerate(pod.spec.get("volumes") or ()):
        if name := (volume.get("image") or {}).get("reference"):
            yield ImageField(f"{pod.path}.volumes[{index}].image.reference", name)


def _at(found: Any, keys: Iterable[str]) -> dict[str, Any] | None:  # noqa: ANN401
    """Return the dict at *keys* in *found*; None if there is none."""
    for key in keys:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return found if isinstance(found, dict) else None
