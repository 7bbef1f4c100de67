"""StorageObjectInUseProtection: a finalizer keeps volumes and claims until nothing uses them.

Source: kubernetes plugin/pkg/admission/storage/storageobjectinuseprotection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.policies.builtin import is_for, rule
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_FINALIZERS: Final = {
    "persistentvolumes": "kubernetes.io/pv-protection",
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "volumeattributesclasses": "kubernetes.io/vac-protection",
}
_RULES: Final = (
    rule("persistentvolumes", "CREATE"),
    rule("persistentvolumeclaims", "CREATE"),
    rule("volumeattributesclasses", "CREATE", group="storage.k8s.io"),
)


def protect(review: Review) -> None:
    """Add the finalizer of the kind."""
    if not is_for(review, _RULES):
        return
    metadata = review.object.setdefault("metadata", {})
    finalizer = _FINALIZERS[review.resource["resource"]]
    if finalizer not in (finalizers := metadata.get("finalizers") or []):
        metadata["finalizers"] = [*finalizers, finalizer]


DEFINITIONS = (
    Definition(
        "storage-object-in-use-protection",
        "Adds the finalizer that keeps PersistentVolumes, PersistentVolumeClaims and VolumeAttributesClasses "
        "until nothing uses them (StorageObjectInUseProtection).",
        protect,
        rules=_RULES,
        users_see="the object with a finalizer such as kubernetes.io/pvc-protection",
        topic="storage",
        replaces=(Replaced("Kubernetes", "StorageObjectInUseProtection"),),
        mutating=True,
    ),
)
