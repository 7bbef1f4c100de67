"""Source of the cases: kubernetes plugin/pkg/admission/storage/storageclass/setdefault admission_test.go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.library.builtin import changed, of

if TYPE_CHECKING:
    from tests.library.api_server import ApiServer

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEFAULT = "storageclass.kubernetes.io/is-default-class"
BETA = "storageclass.beta.kubernetes.io/is-default-class"


def named(
    name: str, value: str | None = None, created: str = "", annotation: str = DEFAULT
) -> dict[str, Any]:
    annotations = {} if value is None else {annotation: value}
    return {"metadata": {"name": name, "annotations": annotations, "creationTimestamp": created or None}}


OTHERS = [named("nondefault1", "false"), named("nondefault2"), named("nondefault3", "")]
ONE, TWO = named("default1", "true"), named("default2", "true")
NEW, OLD = (
    named("default2", "true", "2022-01-01T00:00:01Z"),
    named("default1", "true", "2022-01-01T00:00:00Z"),
)


@pytest.mark.parametrize(
    ("classes", "field", "expected"),
    [
        ([], None, None),
        ([ONE], None, "default1"),
        ([ONE], "", ""),
        ([ONE], "foo", "foo"),
        ([ONE, TWO], "", ""),
        ([ONE, TWO], "foo", "foo"),
        ([TWO, ONE], None, "default1"),
        ([OLD, NEW], None, "default2"),
        ([named("beta", "true", annotation=BETA)], None, "beta"),
    ],
)
def test_classes(api_server: ApiServer, classes: Any, field: str | None, expected: str | None) -> None:
    api_server.lists[CLASSES] = [*OTHERS, *classes]
    claim = {"metadata": {"name": "data"}, "spec": {} if field is None else {"storageClassName": field}}
    asked = of("persistentvolumeclaims", "PersistentVolumeClaim", claim)
    assert changed("default-storage-class", asked)["spec"].get("storageClassName") == expected


def test_what_is_left_alone(api_server: ApiServer) -> None:
    annotated = {"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": ""}}, "spec": {}}
    for plural, claim in (("persistentvolumeclaims", annotated), ("persistentvolumeclaims/status", {})):
        asked = of(plural, "PersistentVolumeClaim", claim)
        assert changed("default-storage-class", asked) == claim
    assert api_server.requests == []
