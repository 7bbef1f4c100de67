"""Policies that read other objects, with ``resource.get`` and ``resource.list``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.config.merge.model import kinds_read
from gateway.pure.admission_policies.objects import MAX_LISTED, ObjectReads
from gateway.pure.admission_policies.params import FixedParams, UnreadParamsError
from gateway.pure.cel.meter import BRIEF_LIMIT, METER
from gateway.pure.cel.paths import WHOLE
from gateway.pure.core.conditions import FoundParam, ParamLookup
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.policy import ParamKind
from tests.kyverno import documents as kyverno
from tests.policies.documents import CLUSTER, binding, decided, mutating, policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.policy import ParamObjects

    Json = dict[str, Any]

CONFIG_MAPS: Final = {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"}
SPACES: Final = {"apiVersion": "v1", "kind": "Namespace", "resource": "namespaces"}
LISTED: Final = {**CLUSTER, "policies": {"resources": [CONFIG_MAPS]}}
IN_FILES: Final = {key: value for key, value in LISTED.items() if key != "kubernetes"}
NOT_LISTED: Final = "policies.resources of the GatewayConfiguration does not list"
GET: Final = "resource.get('v1', 'configmaps', 'a', 'one')"


def names(*arguments: str) -> str:
    """The expression of the names of listed objects."""
    return f"resource.list('v1', 'configmaps', {', '.join(arguments)}).items.map(c, c.metadata.name)"


EVERYWHERE: Final = names("''")


def config_map(namespace: str, name: str, labels: Json | None = None, **data: str) -> Json:
    metadata: Json = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


OBJECTS: Final = [
    config_map("b", "two", {"app": "y"}),
    config_map("a", "two", {"app": "x"}),
    config_map("a", "one", {"app": "x", "tier": "t"}, limit="3"),
]


def bound(expression: str, **spec: Any) -> list[Json]:
    return [policy(validations=[expression], **spec), binding()]


@pytest.mark.parametrize(
    "expression",
    [
        f"{GET}.data.limit == '3'",
        f"{GET}.kind == 'ConfigMap' && {GET}.metadata.namespace == 'a'",
        "resource.get('v1', 'configmaps', 'a', 'none') == null",
        "resource.get('v1', 'configmaps', '', 'one') == null",
        names("'a'") + " == ['one', 'two']",
        f"{EVERYWHERE} == ['one', 'two', 'two']",
        names("'c'") + " == []",
        names("'a', {'tier': 't'}") + " == ['one']",
        names("'', {'app': 'x', 'tier': 'u'}") + " == []",
        "resource.list('v1', 'configmaps', '').kind == 'ConfigMapList'",
        "[resource].all(r, r.list('v1', 'configmaps', 'a').items.size() == 2)",
        "dyn(resource).list('v1', 'configmaps', 'a').items.size() == 2",
        "resource.get('v1', object.metadata.name != '' ? 'configmaps' : '', 'a', 'one').data.limit == '3'",
    ],
)
def test_expressions_read_objects_of_files(tmp_path: Path, expression: str) -> None:
    assert decided(tmp_path, [IN_FILES, *OBJECTS, *bound(expression)]).denials == []
    of_kyverno = kyverno.validating(re.sub(r"resource\.get(\(.*?\))", r"dyn(resource.Get\1)", expression))
    assert decided(tmp_path, [IN_FILES, *OBJECTS, of_kyverno]).denials == []
    denied = decided(tmp_path, [IN_FILES, *OBJECTS, *bound(f"!({expression})")]).denials
    assert len(denied) == 1
    assert "failed expression" in denied[0]


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("resource.get('v1', 'configmaps', 'a', '') == null", "failed to get resource: name is required"),
        (
            "resource.get('v1', object.metadata.name != '' ? 'secrets' : '', 'a', 'b') == null",
            f"failed to get resource: permission denied: {NOT_LISTED} secrets of v1",
        ),
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_expression(
    tmp_path: Path, expression: str, error: str
) -> None:
    assert decided(tmp_path, [IN_FILES, *OBJECTS, *bound(expression)]).denials == [
        f"expression '{expression}' resulted in error: {error}"
    ]
    status = decided(
        tmp_path, [IN_FILES, *OBJECTS, kyverno.validating(expression.replace("null", "{}"))]
    ).decision.status
    assert status is not None
    assert status.message == f"Policy p error: error: {error}"


@pytest.mark.parametrize(
    "documents",
    [
        bound("resource.get('v1', 'secrets', 'a', 'b') == null"),
        [
            kyverno.validating(
                "resource.Get('v1', 'secrets', 'a', 'b') != {}",
                matchConstraints={"resourceRules": [kyverno.PODS]},
            )
        ],
        mutating("p", "Object{metadata: resource.get('v1', 'secrets', 'a', 'b').metadata}"),
    ],
)
def test_a_policy_in_a_file_reads_only_listed_kinds(tmp_path: Path, documents: Sequence[Json]) -> None:
    with pytest.raises(ConfigError) as problem:
        decided(tmp_path, [IN_FILES, *documents])
    assert str(problem.value).count("reads secrets of v1: no policy may read Secrets") == 1


@pytest.mark.parametrize(
    "documents",
    [bound(f"{GET} != null"), [kyverno.validating("resource.Get('v1', 'configmaps', 'a', 'one') != {}")]],
)
def test_kinds_that_neither_files_nor_a_cluster_have_are_a_warning(
    tmp_path: Path, documents: Sequence[Json]
) -> None:
    def warnings(*others: Json) -> list[str]:
        (tmp_path / "config.yaml").write_text(
            "\n---\n".join(json.dumps(each) for each in [*documents, *others])
        )
        return [one.message for one in load([tmp_path / "config.yaml"]).warnings]

    found = "reads configmaps of v1, but no file has a ConfigMap, and no cluster is configured: it finds none"
    assert warnings(IN_FILES) == [found]
    assert warnings(IN_FILES, OBJECTS[0]) == []
    assert warnings(LISTED) == []


@pytest.mark.parametrize(
    ("plural", "version", "entry"),
    [
        ("ingresses", "networking.k8s.io/v1", "kind: Ingress, resource: ingresses"),
        ("widgets", "example.com/v1", "kind: KIND, resource: widgets"),
    ],
)
def test_a_problem_says_what_to_list(tmp_path: Path, plural: str, version: str, entry: str) -> None:
    with pytest.raises(ConfigError) as problem:
        decided(tmp_path, [*bound(f"resource.get('{version}', '{plural}', 'a', 'b') == null")])
    listing = f"add {{apiVersion: {version}, {entry}}} to policies.resources of the GatewayConfiguration"
    assert f"reads {plural} of {version}: to read it, {listing}" in str(problem.value)
    kind = "Ingress" if plural == "ingresses" else "Widget"
    found = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}}
    with pytest.raises(ConfigError) as problem:
        decided(tmp_path, [*bound("true"), found])
    listing = listing.replace("KIND", kind)
    assert f"a policy with their paramKind; for expressions to read it, {listing}" in str(problem.value)


def test_a_policy_of_one_namespace_reads_the_objects_of_that_one_only(tmp_path: Path) -> None:
    members = {"namespace": "a"}
    for expression in (
        "resource.Get('v1', 'configmaps', 'one').data.limit == '3'",
        "resource.List('v1', 'configmaps').items.size() == 2",
        "resource.list('v1', 'configmaps', {'tier': 't'}).items.size() == 1",
    ):
        found = decided(
            tmp_path, [IN_FILES, *OBJECTS, kyverno.validating(expression, namespace="a")], members
        )
        assert found.denials == []
    with pytest.raises(ConfigError, match="found no matching overload"):
        decided(tmp_path, [IN_FILES, kyverno.validating(f"{GET} != null", namespace="a")])


def test_mutations_use_what_they_read(tmp_path: Path) -> None:
    change = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'limit': %s.data.limit}}]"
    expected = b'[{"op":"add","path":"/metadata/annotations","value":{"limit":"3"}}]'
    for documents in (
        mutating("p", change % GET),
        [kyverno.mutating(change % "variables.found", variables=[{"name": "found", "expression": GET}])],
    ):
        pod = {"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}}
        found = decided(tmp_path, [IN_FILES, *OBJECTS, *documents], pod, phase="mutate")
        assert found.decision.patch == expected


@dataclass
class Cluster:
    """The objects of a cluster, a ``Params`` that is read first if ``unread``."""

    objects: FixedParams
    unread: bool = False
    asked: list[object] = field(default_factory=list)

    def of(self, kind: ParamKind, paths: object) -> ParamObjects | None:
        self.asked.append((kind.kind, paths))
        if self.unread:
            raise UnreadParamsError(ParamLookup(kind.api_version, kind.kind, "", ""))
        return self.objects.of(kind)


def test_only_the_parts_that_are_read_are_asked_for(tmp_path: Path) -> None:
    cluster = Cluster(FixedParams(OBJECTS))
    documents = [LISTED, *bound(f"{GET}.data.limit == '3' && {EVERYWHERE}.size() == 3")]
    assert decided(tmp_path, documents, params=cluster).denials == []
    paths = frozenset({("data", "limit"), ("metadata", "name")})
    assert set(cluster.asked) == {("ConfigMap", paths)}
    assert kinds_read(load([tmp_path])) == {("v1", "ConfigMap"): paths}


def test_objects_in_files_are_not_taken_from_the_cluster(tmp_path: Path) -> None:
    cluster = Cluster(FixedParams([]))
    assert decided(tmp_path, [LISTED, *OBJECTS, *bound(f"{GET} != null")], params=cluster).denials == []
    assert kinds_read(load([tmp_path])) == {}


def test_a_kind_that_the_cluster_lacks_has_no_objects_and_no_list(tmp_path: Path) -> None:
    cluster = Cluster(FixedParams([]))
    documents = [LISTED, *bound(f"{GET} == null")]
    assert decided(tmp_path, documents, params=cluster).denials == []
    (denial,) = decided(tmp_path, [LISTED, *bound(f"{EVERYWHERE} == []")], params=cluster).denials
    assert denial.endswith("failed to list resource: the server could not find the requested resource")


def test_a_listed_kind_that_is_none_is_not_proposed(tmp_path: Path) -> None:
    listed = {**CLUSTER, "policies": {"resources": [{**CONFIG_MAPS, "kind": "x\x1b" * 999}]}}
    other = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "Unknown", "metadata": {"name": "u"}}
    with pytest.raises(ConfigError) as caught:
        decided(tmp_path, [listed, other])
    about = [str(each) for each in caught.value.problems]
    assert any("the unknown kind" in each for each in about)
    assert all(len(each) < 1000 and each.isprintable() for each in about)


@pytest.mark.parametrize(
    "documents", [bound(f"{GET}.data.limit == '3'"), [kyverno.validating(f"{GET}.data.limit == '3'")]]
)
def test_a_review_waits_until_the_objects_have_been_read(tmp_path: Path, documents: Sequence[Json]) -> None:
    for problem in ("", "the API server gives no answer"):
        cluster = Cluster(FixedParams(OBJECTS), unread=True)

        def look_up(lookup: ParamLookup, cluster: Cluster = cluster, problem: str = problem) -> FoundParam:
            assert lookup == ParamLookup("v1", "ConfigMap", "", "")
            cluster.unread = bool(problem)
            return FoundParam(error=problem)

        status = decided(tmp_path, [LISTED, *documents], params=cluster, look_up=look_up).decision.status
        if problem:
            assert status is not None
            assert f"failed to get resource: {problem}" in status.message
        else:
            assert status is None


def test_a_review_waits_for_all_kinds_of_a_policy_at_once() -> None:
    readable = {("v1", kind["resource"]): ParamKind("v1", kind["kind"]) for kind in (CONFIG_MAPS, SPACES)}
    reads = ObjectReads(dict.fromkeys(readable, WHOLE), FixedParams([], readable))
    maps, spaces = (ParamLookup("v1", kind, "", "") for kind in ("ConfigMap", "Namespace"))
    for found, expected in (((), [maps, spaces]), ((spaces,), [maps])):
        results = dict.fromkeys(found, FoundParam(error="no answer"))
        cluster = Cluster(FixedParams([]), unread=True)
        review: Any = SimpleNamespace(params=cluster, found_params=results, answers={})
        with pytest.raises(UnreadParamsError) as caught:
            reads.within(review, {}).list("v1", "configmaps", "", {})
        assert [*caught.value.unresolved.lookups] == expected


class Many:
    """More objects than a list may have: a ``ParamObjects``."""

    is_namespaced = True

    def of(self, kind: object, paths: object) -> Many:
        return self

    def count(self, namespace: str) -> int:
        return MAX_LISTED + 1

    def select(self, namespace: str, selector: object) -> Sequence[Json]:
        raise AssertionError("they are too many to be parsed")

    seen = get = select


def test_a_list_of_too_many_objects_is_an_error(tmp_path: Path) -> None:
    (denial,) = decided(tmp_path, [LISTED, *bound(f"{EVERYWHERE} == []")], params=Many()).denials  # type: ignore[arg-type]
    assert denial.endswith(f"found {MAX_LISTED + 1} objects, expected at most {MAX_LISTED}")


@dataclass
class Large:
    """An object, alone or in a list, whose JSON has so many *bytes*: a ``ParamObjects``."""

    bytes: int
    is_namespaced: bool = True
    parsed_brief: list[bool] = field(default_factory=list)
    """For each time that it was asked for, whether that was on the event loop."""

    def of(self, kind: object, paths: object) -> Large:
        return self

    def count(self, namespace: str) -> int:
        return 1

    def bytes_of(self, namespace: str, name: str = "") -> int:
        return self.bytes

    def seen(self, namespace: str, name: str) -> Json:
        self.parsed_brief.append(METER.budget <= BRIEF_LIMIT)
        return OBJECTS[-1]

    def select(self, namespace: str, selector: object) -> Sequence[Json]:
        return [self.seen(namespace, "")]


@pytest.mark.parametrize("expression", [f"{GET}.data.limit == '3'", f"{EVERYWHERE} == ['one']"])
def test_large_objects_are_parsed_beside_the_event_loop_and_not_too_many(
    tmp_path: Path, expression: str
) -> None:
    for size, is_brief in ((1_000, True), (1_500_000, False)):
        objects = Large(size)
        found = decided(tmp_path, [LISTED, *bound(expression)], params=objects)  # type: ignore[arg-type]
        assert found.denials == []
        assert objects.parsed_brief == [is_brief]
    objects = Large(10**9)
    (denial,) = decided(tmp_path, [LISTED, *bound(expression)], params=objects).denials  # type: ignore[arg-type]
    assert "cost" in denial
    assert objects.parsed_brief == []


NAMES: Final = st.sampled_from(["a", "b", "a-b", "a.b"])


@given(keys=st.lists(st.tuples(NAMES, NAMES), unique=True), namespace=NAMES | st.just(""))
def test_a_list_has_the_order_of_the_api_server(keys: list[tuple[str, str]], namespace: str) -> None:
    """By the names of namespace and object, with a slash between them, as keys of etcd."""
    objects = FixedParams([config_map(*key) for key in keys]).of(ParamKind("v1", "ConfigMap"))
    found = [] if objects is None else objects.select(namespace, EVERYTHING)
    metadata = [each["metadata"] for each in found]
    expected = sorted(f"{of}/{name}" for of, name in keys if namespace in ("", of))
    assert [f"{each['namespace']}/{each['name']}" for each in metadata] == expected
    assert len(found) == (0 if objects is None else objects.count(namespace))


def test_the_example_of_the_documentation_decides_as_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
    example = page.partition("\n## Reading other objects\n")[2].split("```yaml\n")[1].split("```")[0]
    documents = list(yaml.safe_load_all(example))

    def ingress(namespace: str, host: str) -> Json:
        metadata = {"name": host, "namespace": namespace}
        head = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata}
        return {**head, "spec": {"rules": [{"host": host}]}}

    cluster = Cluster(FixedParams([ingress("a", "one"), ingress("b", "two")]))
    for namespace, host, expected in (
        ("a", "one", []),
        ("a", "three", []),
        ("a", "two", ["spec.rules: an Ingress of another namespace has this host: use another host"]),
    ):
        members = {
            "namespace": namespace,
            "object": ingress(namespace, host),
            "resource": {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"},
        }
        assert decided(tmp_path, documents, members, params=cluster).denials == expected
    assert cluster.asked[0] == (
        "Ingress",
        frozenset({("metadata", "namespace"), ("spec", "rules")}),
    )
