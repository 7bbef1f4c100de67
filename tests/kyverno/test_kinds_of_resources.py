"""``resource.toGVR`` of Kyverno's policies, and the functions that take its value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.config.merge.model import kinds_read
from gateway.pure.admission_policies.objects import ObjectReads
from gateway.pure.admission_policies.params import FixedParams
from gateway.pure.core.policy import ParamKind
from gateway.pure.openapi.built_in_resources import RESOURCES
from tests.kyverno.documents import validating
from tests.policies.documents import CLUSTER, decided, written

if TYPE_CHECKING:
    from pathlib import Path

    Json = dict[str, Any]

WIDGETS: Final = {"apiVersion": "example.com/v1", "kind": "Widget", "resource": "widgetry"}
CONFIG_MAPS: Final = {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"}
SETTINGS: Final = {
    **{key: value for key, value in CLUSTER.items() if key != "kubernetes"},
    "policies": {"resources": [WIDGETS, CONFIG_MAPS]},
}
OBJECTS: Final = [
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "data": {"a": "1"},
    }
    for namespace in ("a", "b")
    for name in ("one", "two")
]
GVR: Final = "resource.toGVR('v1', 'ConfigMap')"


def message(folder: Path, expression: str, **spec: Any) -> str:
    documents = [SETTINGS, *OBJECTS, validating(expression, **spec)]
    status = decided(folder, documents, {"namespace": "a"}).decision.status
    return "" if status is None else status.message


# What github.com/kyverno/sdk of August 2026 makes of them with cel-go 0.30.0.
@pytest.mark.parametrize(
    "expression",
    [
        f"dyn({GVR}).Group == '' && dyn({GVR}).Version == 'v1' && dyn({GVR}).Resource == 'configmaps'",
        "dyn(resource.ToGVR('apps/v1', 'Deployment')).Group == 'apps'",
        "dyn(resource.ToGVR('example.com/v1', 'Widget')).Resource == 'widgetry'",
        f"{GVR} == resource.toGVR('v1', 'ConfigMap') && {GVR} != resource.toGVR('v1', 'Pod')",
        f"type({GVR}) == type(resource.toGVR('v1', 'Pod')) && type(dyn({GVR})) != type(dyn(1))",
        f"resource.get({GVR}, 'b', 'two').metadata.namespace == 'b'",
        f"resource.List({GVR}, '').items.size() == 4",
        f"resource.list({GVR}, 'a', {{'app': 'one'}}).items.map(i, i.metadata.name) == ['one']",
        f"dyn(resource).list(dyn({GVR}), 'a', {{'app': 'one'}}).items.size() == 1",
        "dyn(resource).get('v1', 'configmaps', 'a', 'one').data.a == '1'",
    ],
)
def test_a_kind_names_its_resource(tmp_path: Path, expression: str) -> None:
    assert message(tmp_path, expression) == ""
    gvr = [{"name": "gvr", "expression": GVR}]
    assert message(tmp_path, expression.replace(GVR, "variables.gvr"), variables=gvr) == ""


def test_a_policy_of_one_namespace_reads_that_one(tmp_path: Path) -> None:
    for expression in (
        f"resource.Get({GVR}, 'one').metadata.namespace == 'a'",
        f"resource.list({GVR}).items.all(i, i.metadata.namespace == 'a')",
        f"resource.list({GVR}, {{'app': 'one'}}).items.size() == 1",
    ):
        assert message(tmp_path, expression, namespace="a") == ""


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (f"{GVR}.Group == ''", "does not support field selection"),
        (f"resource.get({GVR}, 'a').x == 1", "found no matching overload for 'get'"),
        ("resource.get(resource.toGVR('v1', 'Pod'), 'a', 'b') != {}", "reads pods of v1: to read it"),
        (
            "resource.get(resource.toGVR('a.b/v1', 'Cog'), 'a', 'b') != {}",
            "reads Cog of a.b/v1: .*kind: Cog, resource: cogs",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, expression: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        message(tmp_path, expression)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("resource.toGVR('v1', 'None')", 'no matches for kind "None" in version "v1"'),
        (
            "resource.toGVR('example.com/v2', 'Widget')",
            'no matches for kind "Widget" in version "example.com/v2"',
        ),
        ("resource.toGVR('a/b/c', 'd')", "unexpected GroupVersion string: a/b/c"),
    ],
)
def test_an_unknown_kind_is_an_error_of_the_expression(tmp_path: Path, expression: str, error: str) -> None:
    expected = f"Policy p error: error: failed to map kind to resource: {error}"
    assert message(tmp_path, f"{expression} != {GVR}") == expected


def test_only_what_is_read_of_the_kind_is_followed(tmp_path: Path) -> None:
    expression = f"resource.list({GVR}, '').items.all(i, i.data.a == '1')"
    written(tmp_path, [{**SETTINGS, "kubernetes": {}}, validating(expression)])
    assert kinds_read(load([tmp_path])) == {("v1", "ConfigMap"): frozenset({("data", "a")})}


BUILT_IN: Final = [one for of_group in RESOURCES.values() for one in of_group.values()]


@given(one=st.sampled_from(BUILT_IN), listed=st.booleans())
def test_every_kind_of_kubernetes_has_its_plural_name(one: Any, listed: bool) -> None:
    version = f"{one.group}/v1" if one.group else "v1"
    readable = {(version, "others"): ParamKind(version, one.kind)} if listed else {}
    found = ObjectReads({(version, one.kind): frozenset()}, FixedParams([], readable))
    assert found.plural_of(version, one.kind) == ("others" if listed else one.name)
    assert found.unlisted == (() if listed else ((version, one.name),))
