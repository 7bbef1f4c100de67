"""DefaultStorageClass: a PersistentVolumeClaim without a class gets the default one.

Source: kubernetes plugin/pkg/admission/storage/storageclass/setdefault; pkg/volume/util storageclass.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.builtin import is_for, rule
from admission_gateway_worker.policies.cluster import connect
from admission_gateway_worker.policies.default_class import default_class
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_RULES: Final = (rule("persistentvolumeclaims", "CREATE"),)
_DEFAULTS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


async def set_storage_class(review: Review) -> None:
    """Set the class of a claim that has neither the field, which may be empty, nor the annotation."""
    if not is_for(review, _RULES) or class_of(review.object) is not None:
        return
    name = default_class(await connect().objects("storage.k8s.io/v1", "storageclasses"), *_DEFAULTS)
    if name is not None:
        review.object.setdefault("spec", {})["storageClassName"] = name


def class_of(claim: dict[str, Any]) -> str | None:
    """Return the class of a claim; None if it has none, which differs from an empty one."""
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    found: str | None = annotations.get(_BETA_CLASS)
    return (claim.get("spec") or {}).get("storageClassName") if found is None else found


DEFINITIONS = (
    Definition(
        "default-storage-class",
        "Sets the class of a PersistentVolumeClaim without one to the StorageClass that is marked as the "
        "default (DefaultStorageClass).",
        set_storage_class,
        rules=_RULES,
        users_see="the claim with storageClassName",
        topic="storage",
        replaces=(Replaced("Kubernetes", "DefaultStorageClass"),),
        mutating=True,
        needs_cluster=True,
        rights="list storageclasses.storage.k8s.io",
    ),
)
