"""What an audit is about: one stored object, or the Pods that a workload would get at its next restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from gateway.pure.core.workload import controller_of, owners_of
from gateway.tools.audit.keys import short_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.tools.replay.cluster import ListedKind

Json = dict[str, Any]

Part = Literal["object", "restart"]
"""The object as it is stored, or the Pod that its controller creates next."""

MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of the Pod that shows a static one of a kubelet, which no admission refuses."""
TERMINATING: Final = "being deleted"
MIRRORS: Final = "mirror Pods of kubelets"
COLLAPSED: Final = "further Pods of a controller, like the one that was evaluated"
SECRETS: Final = "Secrets are not read (see --include-secrets)"
_TEMPLATES: Final = ("pod-template-hash", "controller-revision-hash", "pod-template-generation")
"""Labels that controllers give all Pods of one template."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What one verdict is about."""

    uid: str
    part: Part
    api_version: str
    kind: str
    resource: str
    """``RESOURCE`` or ``RESOURCE.GROUP``."""
    namespace: str
    name: str
    owner: str
    """``KIND.GROUP/NAME`` of the workload that it belongs to. Empty if it belongs to none."""
    owner_label: str
    """The value of the label that names the people whose it is. Empty if there is none."""
    version: str
    """Its resourceVersion."""


def metadata_of(item: Mapping[str, Any]) -> Json:
    """Return the metadata of *item*; empty if it has none."""
    found = item.get("metadata")
    return found if isinstance(found, dict) else {}


def left_out(item: Mapping[str, Any]) -> str:
    """Return why the object *item* is not evaluated. Empty if it is."""
    metadata = metadata_of(item)
    if metadata.get("deletionTimestamp"):
        return TERMINATING
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict) and MIRROR in annotations:
        return MIRRORS
    return ""


def same_pods(kind: ListedKind, item: Mapping[str, Any]) -> bytes:
    """Return what Pods of one controller and template share. Empty if *item* is not such a Pod."""
    owner = controller_of(item) if kind.named == "pods" else None
    if owner is None:
        return b""
    labels = _labels(metadata_of(item))
    return short_digest([owner.get("uid"), [labels.get(name) for name in _TEMPLATES]])


def uid_of(kind: ListedKind, item: Mapping[str, Any]) -> str:
    """Return what *item*, of *kind*, is known by."""
    metadata = metadata_of(item)
    namespace, name = (str(metadata.get(member) or "") for member in ("namespace", "name"))
    return str(metadata.get("uid") or f"{kind.named}/{namespace}/{name}")


def subject_of(
    kind: ListedKind,
    item: Json,
    part: Part,
    label: str,
    namespace_labels: Mapping[str, str],
) -> Subject:
    """Return what *item*, of *kind*, is. *label* is the key that names the people whose it is."""
    metadata = metadata_of(item)
    owners = owners_of(item)
    labels = _labels(metadata)
    namespace, name = (str(metadata.get(member) or "") for member in ("namespace", "name"))
    return Subject(
        uid_of(kind, item),
        part,
        kind.api_version,
        kind.kind,
        kind.named,
        namespace,
        name,
        str(owners[-1]) if owners else "",
        str(labels.get(label) or namespace_labels.get(label) or ""),
        str(metadata.get("resourceVersion") or ""),
    )


def _labels(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    found = metadata.get("labels")
    return found if isinstance(found, dict) else {}
