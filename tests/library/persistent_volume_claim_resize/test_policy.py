"""Source of the cases: kubernetes plugin/pkg/admission/storage/persistentvolume/resize admission_test.go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.library.builtin import of, refusal

if TYPE_CHECKING:
    from tests.library.api_server import ApiServer

NOT_RESIZABLE = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
    "support resize"
)
NOT_BOUND = "Only bound persistent volume claims can be expanded"


def claim(size: str, name: str | None, phase: str = "Bound") -> dict[str, Any]:
    spec: dict[str, Any] = {"resources": {"requests": {"storage": size} if size else {}}}
    if name is not None:
        spec["storageClassName"] = name
    return {"metadata": {"name": "data"}, "spec": spec, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (claim("1Gi", "gold"), claim("2Gi", "gold"), ""),
        (claim("1Gi", None), claim("2Gi", None), NOT_RESIZABLE),
        (claim("1Gi", ""), claim("2Gi", ""), NOT_RESIZABLE),
        (claim("1Gi", "silver"), claim("2Gi", "silver"), NOT_RESIZABLE),
        (claim("1Gi", "bronze"), claim("2Gi", "bronze"), NOT_RESIZABLE),
        (claim("1Gi", "none"), claim("2Gi", "none"), NOT_RESIZABLE),
        (claim("1Gi", "silver"), claim("2Gi", "gold"), NOT_RESIZABLE),
        (claim("1Gi", "silver", "Pending"), claim("1Gi", "silver"), ""),
        (claim("1Gi", "silver", "Pending"), claim("2Gi", "silver", "Pending"), NOT_BOUND),
        (claim("1Gi", "gold", "Pending"), claim("2Gi", "gold"), NOT_BOUND),
        (claim("1Gi", "silver"), claim("1024Mi", "silver"), ""),
        (claim("2Gi", "silver"), claim("1Gi", "silver"), ""),
        (claim("", "silver"), claim("1Gi", "silver"), NOT_RESIZABLE),
    ],
)
def test_growth(api_server: ApiServer, old: Any, new: Any, expected: str) -> None:
    api_server.lists["/apis/storage.k8s.io/v1/storageclasses"] = [
        {"metadata": {"name": "gold"}, "allowVolumeExpansion": True},
        {"metadata": {"name": "silver"}, "allowVolumeExpansion": False},
        {"metadata": {"name": "bronze"}},
    ]
    found = refusal("persistent-volume-claim-resize", of("persistentvolumeclaims", "", new, old))
    assert found == (f'persistentvolumeclaims "data" is forbidden: {expected}' if expected else "")
    for plural in ("persistentvolumeclaims/status", "persistentvolumes"):
        assert refusal("persistent-volume-claim-resize", of(plural, "", new, old)) == ""
