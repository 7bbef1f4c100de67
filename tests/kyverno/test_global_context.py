"""GlobalContextEntries of Kyverno, and the policies that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.config.merge.model import kinds_read
from gateway.pure.admission_policies.objects import ObjectReads
from gateway.pure.admission_policies.params import FixedParams, GlobalEntry
from gateway.pure.core.conditions import FoundParam, ParamLookup
from gateway.pure.core.policy import ParamKind
from tests.kyverno.documents import mutating, validating
from tests.policies.documents import CLUSTER, decided, written
from tests.policies.test_reading_objects import Cluster

if TYPE_CHECKING:
    from pathlib import Path

    Json = dict[str, Any]

CONFIG_MAPS: Final = {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"}
SETTINGS: Final = {
    **{key: value for key, value in CLUSTER.items() if key != "kubernetes"},
    "policies": {"resources": [CONFIG_MAPS]},
}
OBJECTS: Final = [
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": space},
        "data": {"a": name},
    }
    for space in ("b", "a")
    for name in ("two", "one")
]
NAMES: Final = ".map(c, c.metadata.namespace + '/' + c.metadata.name)"


def entry(name: str = "maps", version: str = "v2", **spec: Any) -> Json:
    metadata = {"name": name}
    return {
        "apiVersion": f"kyverno.io/{version}",
        "kind": "GlobalContextEntry",
        "metadata": metadata,
        "spec": spec,
    }


def of_maps(**members: Any) -> Json:
    return {"version": "v1", "resource": "configmaps", **members}


def message(folder: Path, documents: list[Json], *validations: str, **spec: Any) -> str:
    documents = [SETTINGS, *OBJECTS, *documents, validating(*validations, **spec)]
    status = decided(folder, documents, {"namespace": "a"}).decision.status
    return "" if status is None else status.message


@pytest.mark.parametrize("version", ["v2", "v2beta1", "v2alpha1"])
def test_an_entry_has_the_objects_of_a_kind(tmp_path: Path, version: str) -> None:
    documents = [
        entry("maps", version, kubernetesResource=of_maps()),
        entry("mine", version, kubernetesResource=of_maps(namespace="b")),
    ]
    expressions = [
        f"globalContext.get('maps'){NAMES} == ['a/one', 'a/two', 'b/one', 'b/two']",
        f"globalContext.Get('mine', ''){NAMES} == ['b/one', 'b/two']",
        "globalContext.get('maps').all(c, c.kind == 'ConfigMap' && c.data.a == c.metadata.name)",
        "dyn(globalContext).get('mine').size() == 2",
        "[globalContext].all(g, g.get('mine').size() == 2)",
    ]
    assert message(tmp_path, documents, *expressions) == ""


def test_an_unknown_entry_is_null(tmp_path: Path) -> None:
    documents = [entry(kubernetesResource=of_maps(resource="secrets"))]
    found = message(
        tmp_path,
        documents,
        "globalContext.get('none') == null",
        "globalContext.get(request.operation) == null",
    )
    assert found == ""


def test_a_mutation_uses_an_entry(tmp_path: Path) -> None:
    labels = "{'n': string(globalContext.get('maps').size())}"
    change = f"[JSONPatch{{op: 'add', path: '/metadata/labels', value: {labels}}}]"
    pod = {"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}}
    documents = [SETTINGS, *OBJECTS, entry(kubernetesResource=of_maps()), mutating(change)]
    patch = decided(tmp_path, documents, pod, phase="mutate").decision.patch
    assert patch == b'[{"op":"add","path":"/metadata/labels","value":{"n":"4"}}]'


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"apiCall": {"urlPath": "/x"}}, "spec.apiCall: found an API call, which the gateway does not make"),
        ({"kubernetesResource": of_maps(), "apiCall": {}}, "spec.apiCall: found an API call"),
        ({}, "spec.kubernetesResource: is required"),
        ({"kubernetesResource": {"version": "v1"}}, "spec.kubernetesResource.resource: is required"),
        ({"kubernetesResource": of_maps(version="v1beta1")}, "spec.kubernetesResource.group: is required"),
        ({"kubernetesResource": of_maps(resource="Pod")}, "spec.kubernetesResource.resource: found"),
        ({"kubernetesResource": of_maps(), "more": 1}, "spec.more"),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path: Path, spec: Json, problem: str) -> None:
    written(tmp_path, [entry(**spec)])
    with pytest.raises(ConfigError) as error:
        load([tmp_path])
    assert problem in str(error.value)


PROJECTED: Final = entry(
    kubernetesResource=of_maps(), projections=[{"name": "count", "jmesPath": "length(@)"}]
)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (
            "globalContext.get('maps', 'count') == 4",
            'reads the projection "count" of the GlobalContextEntry "maps"',
        ),
        ("globalContext.get('pods') == null", "reads pods of v1"),
    ],
)
def test_a_policy_that_cannot_read_an_entry_is_refused(tmp_path: Path, expression: str, problem: str) -> None:
    pods = entry("pods", kubernetesResource=of_maps(resource="pods"))
    with pytest.raises(ConfigError) as error:
        message(tmp_path, [PROJECTED, pods], expression)
    assert problem in str(error.value)


def test_projections_are_errors_of_the_expression(tmp_path: Path) -> None:
    for name, problem in (
        ("count", "is JMESPath, which the gateway does not evaluate"),
        ("other", "not found"),
    ):
        expression = f"globalContext.get('maps', '{name}' + '') == 4"
        found = message(tmp_path, [PROJECTED], expression)
        assert (
            found == f'Policy p error: error: failed to get global reference: projection "{name}" {problem}'
        )
    written(tmp_path, [SETTINGS, PROJECTED])
    assert ["are JMESPath" in each.message for each in load([tmp_path]).warnings] == [True]


def test_a_policy_of_one_namespace_reads_no_entry(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which is not allowed in policies of one namespace"):
        message(tmp_path, [], "globalContext.get('x') == null", namespace="a")


def test_a_policy_of_the_cluster_reads_no_entry() -> None:
    found = ObjectReads({("globalContext", "x"): frozenset()}, FixedParams([]))
    (problem,) = found.wrong_calls
    assert problem.startswith(
        "calls globalContext.get, and nothing checks that its author may read the objects"
    )


def test_a_review_waits_until_the_objects_of_the_cluster_have_been_read(tmp_path: Path) -> None:
    cluster = Cluster(FixedParams(OBJECTS), unread=True)

    def look_up(lookup: ParamLookup) -> FoundParam:
        assert lookup == ParamLookup("v1", "ConfigMap", "", "")
        cluster.unread = False
        return FoundParam()

    expression = "globalContext.get('maps').exists(c, c.data.a == 'one')"
    documents = [{**SETTINGS, "kubernetes": {}}, entry(kubernetesResource=of_maps()), validating(expression)]
    assert decided(tmp_path, documents, params=cluster, look_up=look_up).decision.status is None
    paths = frozenset({("data", "a")})
    assert set(cluster.asked) == {("ConfigMap", paths)}
    assert kinds_read(load([tmp_path])) == {("v1", "ConfigMap"): paths}


def test_a_kind_that_the_cluster_lacks_is_no_entry(tmp_path: Path) -> None:
    documents = [
        {**SETTINGS, "kubernetes": {}},
        entry(kubernetesResource=of_maps()),
        validating("globalContext.get('maps') == null"),
    ]
    assert decided(tmp_path, documents, params=Cluster(FixedParams([]))).decision.status is None


ENTRIES: Final = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.builds(
        GlobalEntry, st.just("v1"), st.sampled_from(["x", "y", "z"]), st.just(""), st.just(frozenset())
    ),
)


@given(entries=ENTRIES, name=st.sampled_from(["a", "b", "c", "d", ""]))
def test_an_entry_reads_its_kind_and_no_other(entries: dict[str, GlobalEntry], name: str) -> None:
    """Whatever the name, nothing that is not listed is read."""
    readable = {("v1", plural): ParamKind("v1", plural.upper()) for plural in ("x", "y")}
    found = ObjectReads(
        {("globalContext", name): frozenset({("data",)})}, FixedParams([], readable, entries=entries)
    )
    plurals = {one.plural for each, one in entries.items() if name in ("", each)}
    assert {kind for (_, kind), _ in found.with_params(None, frozenset())} == {
        plural.upper() for plural in plurals & {"x", "y"}
    }
    assert {plural for _, plural in found.unlisted} == (plurals & {"z"} if name else set())
