"""PersistentVolumeClaimResize: claims grow only if their StorageClass allows it.

Source: kubernetes plugin/pkg/admission/storage/persistentvolume/resize.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.amounts import ZERO, amounts
from admission_gateway_worker.policies.builtin import forbidden, is_for, rule
from admission_gateway_worker.policies.cluster import connect, found_or_now
from admission_gateway_worker.policies.default_storage_class import class_of
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review
    from admission_gateway_worker.policies.amounts import Amount

_RULES: Final = (rule("persistentvolumeclaims", "UPDATE"),)
_NOT_BOUND: Final = "Only bound persistent volume claims can be expanded"
_NOT_RESIZABLE: Final = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
    "support resize"
)


async def check_resize(review: Review) -> None:
    """Deny greater requests of claims that are not bound or whose class has no ``allowVolumeExpansion``."""
    if not is_for(review, _RULES):
        return
    old: dict[str, Any] = review.old_object or {}
    if not _size(review.object).is_more_than(_size(old)):
        return
    if (old.get("status") or {}).get("phase") != "Bound":
        raise forbidden(review, _NOT_BOUND)
    name = class_of(review.object)
    if name and name == class_of(old):

        async def may_grow(max_age_s: float) -> bool:
            found = await connect().get("storage.k8s.io/v1", "storageclasses", name, max_age_s=max_age_s)
            return found is not None and found.get("allowVolumeExpansion") is True

        if await found_or_now(may_grow):
            return
    raise forbidden(review, _NOT_RESIZABLE)


def _size(claim: dict[str, Any]) -> Amount:
    resources = (claim.get("spec") or {}).get("resources") or {}
    return amounts(resources.get("requests")).get("storage", ZERO)


DEFINITIONS = (
    Definition(
        "persistent-volume-claim-resize",
        "Denies growth of PersistentVolumeClaims whose StorageClass does not allow it "
        "(PersistentVolumeClaimResize).",
        check_resize,
        rules=_RULES,
        users_see=f'persistentvolumeclaims "data" is forbidden: {_NOT_RESIZABLE}',
        topic="storage",
        replaces=(Replaced("Kubernetes", "PersistentVolumeClaimResize"),),
        needs_cluster=True,
        rights="get storageclasses.storage.k8s.io",
    ),
)
