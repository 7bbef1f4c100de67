"""Source of the cases: kubernetes plugin/pkg/admission/network/defaultingressclass admission_test.go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.library.builtin import changed, of

if TYPE_CHECKING:
    from tests.library.api_server import ApiServer

CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
DEFAULT = "ingressclass.kubernetes.io/is-default-class"


def named(name: str, default: str | None = None, created: str = "") -> dict[str, Any]:
    annotations = {} if default is None else {DEFAULT: default}
    return {"metadata": {"name": name, "annotations": annotations, "creationTimestamp": created or None}}


OTHERS = [named("nondefault1", "false"), named("nondefault2"), named("nondefault3", "")]
ONE, TWO = named("default1", "true"), named("default2", "true")
NEW, OLD = (
    named("default2", "true", "2022-01-01T00:00:01Z"),
    named("default1", "true", "2022-01-01T00:00:00Z"),
)


@pytest.mark.parametrize(
    ("classes", "field", "annotation", "expected"),
    [
        ([], None, None, None),
        ([ONE], None, None, "default1"),
        ([ONE], "", None, ""),
        ([ONE], "foo", None, "foo"),
        ([ONE], None, "foo", None),
        ([TWO, ONE], None, None, "default1"),
        ([ONE, TWO], "", None, ""),
        ([OLD, NEW], None, None, "default2"),
        ([NEW, OLD], None, None, "default2"),
    ],
)
def test_classes(
    api_server: ApiServer, classes: Any, field: str | None, annotation: str | None, expected: str | None
) -> None:
    api_server.lists[CLASSES] = [*OTHERS, *classes]
    ingress = {
        "metadata": {
            "name": "web",
            "annotations": {} if annotation is None else {"kubernetes.io/ingress.class": annotation},
        },
        "spec": {} if field is None else {"ingressClassName": field},
    }
    asked = of("ingresses", "Ingress", ingress, group="networking.k8s.io")
    assert changed("default-ingress-class", asked)["spec"].get("ingressClassName") == expected


def test_what_is_left_alone(api_server: ApiServer) -> None:
    for plural, group in (("ingresses/status", "networking.k8s.io"), ("ingresses", "example.com")):
        asked = of(plural, "Ingress", {"spec": {}}, group=group)
        assert changed("default-ingress-class", asked) == {"spec": {}}
    assert api_server.requests == []
