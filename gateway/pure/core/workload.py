"""What an object says about the workload that it belongs to: its owners and its images.

Sources: k8s.io/apimachinery pkg/apis/meta/v1/types.go (OwnerReference), kubernetes pkg/controller/deployment
(names of ReplicaSets) and pkg/controller/cronjob (getJobName); github.com/argoproj/argo-rollouts
rollout/sync.go (createDesiredReplicaSet); github.com/distribution/reference for images.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.pure.core.review import Json

_MAX_IMAGE_CHARS: Final = 4096
_MAX_IMAGES: Final = 256
"""Of one object. More are not read: it takes microseconds for each, and a Pod of many megabytes may come."""
_MAX_REFERENCES: Final = 100
_DOCKER: Final = "docker.io"
_HOST: Final = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")
_PATH: Final = re.compile(r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:[0-9A-Fa-f]{32,}")
_SCHEDULED_JOB: Final = re.compile(r"(.+)-[0-9]{8}")
"""A CronJob's name and the minutes since 1970 for which the Job is."""
_BY_HASH: Final = {
    "pod-template-hash": ("apps", "Deployment"),
    "rollouts-pod-template-hash": ("argoproj.io", "Rollout"),
}
"""Labels of Pods whose value ends the name of their ReplicaSet, and what that belongs to."""
TEMPLATE: Final = ("spec", "template")
"""The path of the template of Pods in a workload, but for a CronJob."""
TEMPLATES: Final = {
    ("", "ReplicationController"): TEMPLATE,
    ("apps", "DaemonSet"): TEMPLATE,
    ("apps", "Deployment"): TEMPLATE,
    ("apps", "ReplicaSet"): TEMPLATE,
    ("apps", "StatefulSet"): TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", *TEMPLATE),
    ("batch", "Job"): TEMPLATE,
}
"""By group and kind of Kubernetes' own workloads."""
_POD_SPECS: Final = {
    ("", "Pod"): ("spec",),
    ("", "PodTemplate"): ("template", "spec"),
    **{kind: (*path, "spec") for kind, path in TEMPLATES.items()},
}
"""Where objects of Kubernetes' own kinds have the spec of a Pod."""


class Owner(NamedTuple):
    """An object that another belongs to."""

    group: str
    kind: str
    name: str

    def __str__(self) -> str:
        """``KIND.GROUP/NAME``, as in ``match.owners`` of an exception."""
        return f"{self.kind}.{self.group}/{self.name}" if self.group else f"{self.kind}/{self.name}"


def owners_of(found: Json | None) -> tuple[Owner, ...]:
    """Return the owners of the object *found* as far as it says so, the top one last.

    That is the ownerReference with ``controller: true``, the Deployment or Argo's Rollout of a Pod whose
    ReplicaSet is named after a label of the Pod, and the CronJob of a Pod whose Job is named after its time.
    """
    one = controller_of(found)
    if found is None or one is None:
        return ()
    version, kind, name = one.get("apiVersion"), one.get("kind"), one.get("name")
    if not (isinstance(version, str) and isinstance(kind, str) and isinstance(name, str) and name):
        return ()
    owner = Owner(version.rpartition("/")[0], kind, name)
    above = _above(owner, found["metadata"].get("labels"))
    return (owner,) if above is None else (owner, above)


def controller_of(found: object) -> Json | None:
    """Return the ownerReference of the object *found* with ``controller: true``; None if it has none."""
    metadata = found.get("metadata") if isinstance(found, dict) else None
    references = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    for one in references[:_MAX_REFERENCES] if isinstance(references, list) else ():
        if isinstance(one, dict) and one.get("controller") is True:
            return one
    return None


def _above(owner: Owner, labels: object) -> Owner | None:
    """Return what *owner* of a Pod with *labels* belongs to, by its name; None if that does not say so."""
    if owner[:2] == ("apps", "ReplicaSet") and isinstance(labels, dict):
        for label, (group, kind) in _BY_HASH.items():
            digest = labels.get(label)
            if isinstance(digest, str) and digest and owner.name.endswith(f"-{digest}"):
                name = owner.name[: -len(digest) - 1]
                return Owner(group, kind, name) if name else None
    if owner[:2] == ("batch", "Job") and (named := _SCHEDULED_JOB.fullmatch(owner.name)):
        return Owner("batch", "CronJob", named[1])
    return None


def images_of(group: str, kind: str, found: Json | None) -> frozenset[str] | None:
    """Return the repositories of all images of the Pod, or the template of Pods, in *found*.

    Init and ephemeral containers and volumes count. None if *found* has no containers, an image is absent or
    cannot be read, or there are too many.
    """
    spec: Any = found
    for name in _POD_SPECS.get((group, kind), ("",)):
        spec = spec.get(name) if isinstance(spec, dict) else None
    if not isinstance(spec, dict):
        return None
    repositories = set()
    for number, image in enumerate(_images(spec)):
        repository = repository_of(image)
        if repository is None or number >= _MAX_IMAGES:
            return None
        repositories.add(repository)
    return frozenset(repositories) or None


def _images(spec: dict[str, Any]) -> Iterator[object]:
    for field in ("containers", "initContainers", "ephemeralContainers"):
        entries = spec.get(field)
        for one in entries if isinstance(entries, list) else () if entries is None else (None,):
            yield one.get("image") if isinstance(one, dict) else None
    volumes = spec.get("volumes")
    for one in volumes if isinstance(volumes, list) else ():
        if isinstance(one, dict) and one.get("image") is not None:
            yield one["image"].get("reference") if isinstance(one["image"], dict) else None


def repository_of(image: object) -> str | None:
    """Return ``REGISTRY/PATH`` of the reference *image*, without tag and digest; None if it is none.

    ``nginx:1`` is ``docker.io/library/nginx``, as container runtimes read it.
    """
    if not isinstance(image, str) or len(image) > _MAX_IMAGE_CHARS:
        return None
    rest, at, digest = image.partition("@")
    head, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    if (at and not _DIGEST.fullmatch(digest)) or (colon and not _TAG.fullmatch(tag)):
        return None
    registry, path = _DOCKER, f"{head}{slash}{last}"
    first, slash, others = path.partition("/")
    if slash and _is_registry(first):
        registry, path = first, others
    if registry == f"index.{_DOCKER}":
        registry = _DOCKER
    if registry == _DOCKER and "/" not in path:
        path = f"library/{path}"
    return f"{registry}/{path}" if _HOST.fullmatch(registry) and _PATH.fullmatch(path) else None


def _is_registry(text: str) -> bool:
    """Whether the first part of a reference is a registry, and not the first part of a path."""
    return "." in text or ":" in text or text == "localhost" or text != text.lower()
