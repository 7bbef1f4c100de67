"""Source of the cases: kubernetes plugin/pkg/admission/storage/storageobjectinuseprotection tests."""

from __future__ import annotations

import pytest

from tests.library.builtin import changed, of

NAME = "storage-object-in-use-protection"


@pytest.mark.parametrize(
    ("plural", "group", "finalizer"),
    [
        ("persistentvolumeclaims", "", "kubernetes.io/pvc-protection"),
        ("persistentvolumes", "", "kubernetes.io/pv-protection"),
        ("volumeattributesclasses", "storage.k8s.io", "kubernetes.io/vac-protection"),
    ],
)
def test_finalizers(plural: str, group: str, finalizer: str) -> None:
    for given in (None, [], ["a"], [finalizer, "a"]):
        metadata = {} if given is None else {"finalizers": given}
        found = changed(NAME, of(plural, "", {"metadata": metadata}, group=group))
        expected = given if given and finalizer in given else [*(given or ()), finalizer]
        assert found["metadata"]["finalizers"] == expected
    for other in (f"{plural}/status", "pods"):
        assert changed(NAME, of(other, "", {"metadata": {}}, group=group)) == {"metadata": {}}
    assert changed(NAME, of(plural, "", {"metadata": {}}, {}, group=group)) == {"metadata": {}}
