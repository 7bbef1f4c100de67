"""What the policies of a test of Kyverno read: the objects of ``context`` or of ``clusterResources``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.policy import ParamKind
from gateway.tools.policy_tests.discovery import read_tests
from gateway.tools.policy_tests.kyverno_objects import KyvernoObjects
from tests.offline.test_kyverno_tests import config_map, policy, rows, said, write

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]

TRIGGER = config_map("trigger")
SHARED = [
    {**config_map("limits", "default", owner="ann"), "metadata": {"name": "limits", "namespace": "default"}},
    config_map("limits", "other", owner="bob"),
    config_map("free"),
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"tier": "prod"}}},
    {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i", "namespace": "n"}},
]
WIDGETS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "storage": True}],
    },
}
NONE_THERE = "error: failed to list resource: pods resource not found"


def found(tmp_path: Path, expression: str, *, is_cluster: bool, expected: str = "pass") -> str:
    """Run a test whose policy has *expression*, and return what it says."""
    kind = "ClusterResource" if is_cluster else "Context"
    spec: Json = {"resources": SHARED}
    if is_cluster:
        (tmp_path / "widgets.yaml").write_text(yaml.safe_dump(WIDGETS))
        spec["crds"] = ["widgets.yaml"]
    document = {"apiVersion": "cli.kyverno.io/v1alpha1", "kind": kind, "spec": spec}
    (tmp_path / "read.yaml").write_text(yaml.safe_dump(document))
    named: Json = {"clusterResources": ["read.yaml"]} if is_cluster else {"context": "read.yaml"}
    test = named | rows({"policy": "p", "resources": ["trigger"], "result": expected})
    (one,) = said(write(tmp_path, test, policies=[policy("p", expression)], resources=[TRIGGER])).values()
    return one


def names(*arguments: str) -> str:
    return f"resource.List('v1', 'configmaps', {', '.join(arguments)}).items.map(c, c.metadata.name)"


@pytest.mark.parametrize("is_cluster", [False, True])
@pytest.mark.parametrize(
    "expression",
    [
        "resource.Get('v1', 'configmaps', 'default', 'limits').data.owner == 'ann'",
        "resource.get('v1', 'configmaps', object.metadata.namespace, 'limits').data.owner == 'ann'",
        "resource.Get('v1', 'namespaces', '', 'default').metadata.labels.tier == 'prod'",
        "resource.Get('networking.k8s.io/v1', 'ingresses', 'n', 'i').kind == 'Ingress'",
        "resource.Get('v1', 'configmaps', '', 'free').metadata.name == 'free'",
        "dyn(resource.Get('v1', 'configmaps', '', 'limits')) == null",
        "dyn(resource.Get('v1', 'configmap', 'default', 'limits')) == null",
        "dyn(resource.Get('v2', 'configmaps', 'default', 'limits')) == null",
        "dyn(resource.Get('example.com/v1', 'widgets', 'default', 'w')) == null",
        "dyn(resource.Get('v1', 'pods', 'default', 'p')) == null",
        names("'other'") + " == ['limits']",
        "resource.Get('v1', object.kind == '' ? '' : 'configmaps', 'other', 'limits').data.owner == 'bob'",
    ],
)
def test_policies_read_objects_of_context_and_cluster(
    tmp_path: Path, expression: str, is_cluster: bool
) -> None:
    assert found(tmp_path, expression, is_cluster=is_cluster) == "passed"


@pytest.mark.parametrize(
    ("expression", "of_context", "of_cluster"),
    [
        (names("''") + ".size() == 1", "passed", "wrong"),
        (names("''") + ".size() == 4", "wrong", "passed"),
        (names("'other', {'app': 'x'}") + " == ['limits']", "passed", "wrong"),
        ("resource.Get('v1', 'configmaps', 'default', 'trigger').kind == 'ConfigMap'", "no such", "passed"),
        ("resource.Get('v1', 'namespaces/status', '', 'default').kind == 'Namespace'", "no such", "passed"),
        (
            "resource.List('example.com/v1', 'widgets', '').items.size() == 0",
            "failed to list resource: widgets.example.com resource not found",
            "passed",
        ),
        (
            "resource.List('v1', 'pods', 'default').items == []",
            "failed to list resource: pods resource not found",
            "failed to list resource: pods resource not found",
        ),
    ],
)
def test_context_is_less_than_a_cluster(
    tmp_path: Path, expression: str, of_context: str, of_cluster: str
) -> None:
    assert of_context in found(tmp_path, expression, is_cluster=False)
    assert of_cluster in found(tmp_path, expression, is_cluster=True)


POST = "resource.Post('authorization.k8s.io/v1', 'subjectaccessreviews', {'spec': dyn({'user': 'a'})})"
OF_POD = "resource.Get(resource.ToGVR('v1', 'ConfigMap'), 'default', 'limits').data.owner == 'ann'"


def test_what_is_created_comes_back_and_kinds_have_names_in_a_cluster_alone(tmp_path: Path) -> None:
    posted = f"{POST}.spec.user == 'a' && !has({POST}.status)"
    widgets = "resource.List(resource.ToGVR('example.com/v1', 'Widget'), '').items.size() == 0"
    for expression in (posted, OF_POD, widgets):
        assert found(tmp_path, expression, is_cluster=True) == "passed"
        assert found(tmp_path, expression, is_cluster=False, expected="error") == "passed"
    assert "internal error: not implemented" in found(tmp_path, posted, is_cluster=False)


ENTRIES: list[Json] = [
    {"name": "all", "data": {"a": {"b": [1, 2]}, "c": "x"}},
    {"name": "part", "data": {"a": {"b": [1, 2]}}, "fieldPath": "a.b"},
    {
        "name": "projected",
        "data": {"a": {"b": [1, 2]}},
        "fieldPath": "a",
        "projections": [{"name": "two", "path": "b"}, {"name": "none", "path": "b.c"}],
    },
    {"name": "objects", "resources": SHARED},
    {"name": "files", "resourceFiles": ["resources.yaml"]},
]


@pytest.mark.parametrize(
    "expression",
    [
        "globalContext.Get('all').c == 'x' && globalContext.Get('all', '').a.b.size() == 2",
        "globalContext.Get('all', 'c') == 'x'",
        "globalContext.Get('part') == [1, 2]",
        "globalContext.Get('projected') == {'two': dyn([1, 2]), 'none': dyn(null)}",
        "globalContext.Get('projected', 'two').size() == 2",
        "globalContext.Get('objects').exists(o, o.metadata.name == 'limits')",
        "globalContext.Get('files').map(o, o.metadata.name) == ['trigger']",
        "globalContext.Get('unknown') == null && globalContext.Get('unknown', 'x') == null",
    ],
)
def test_entries_have_the_data_of_the_test(tmp_path: Path, expression: str) -> None:
    test = {"globalContextEntries": ENTRIES} | rows(
        {"policy": "p", "resources": ["trigger"], "result": "pass"}
    )
    files: Json = {"policies": [policy("p", expression)], "resources": [TRIGGER]}
    assert said(write(tmp_path, test, **files)) == {"p on trigger: pass": "passed"}


ANSWERS: list[Json] = [
    {"url": "https://a.example/x", "method": "get", "response": {"body": {"ok": True}}},
    {"url": "https://a.example/x", "response": {"body": {"ok": False}, "statusCode": 500}},
    {"url": "https://b.example/trigger?q=1", "response": {"body": {"list": [1]}, "statusCode": 404}},
    {"url": "https://b.example/posted", "method": "POST", "response": {"body": {}}},
    {"url": "http://plain.example", "response": {"body": {}}},
    {"urlPath": "/api/v1/namespaces", "response": {"body": {}}},
]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("http.Get('https://a.example/x').body.ok == true", "passed"),
        ("http.get('https://a.example/x', {'X-Note': 'b'}).statusCode == 200", "passed"),
        ("http.Get('https://b.example/' + object.metadata.name + '?q=1').body.list == [1]", "passed"),
        ("http.Get('https://b.example/trigger?q=1').statusCode == 404", "passed"),
        ("http.Get('https://b.example/' + object.metadata.name).statusCode == 404", "is not permitted"),
        ("http.Get('https://b.example/posted').statusCode == 200", "is not permitted"),
        ("http.Get('https://unknown.example/').statusCode == 200", "is not permitted"),
        ("http.Get('http://plain.example').statusCode == 200", "is not an https URL"),
    ],
)
def test_servers_answer_what_the_test_says(tmp_path: Path, expression: str, expected: str) -> None:
    test = {"apiCallResponses": ANSWERS} | rows({"policy": "p", "resources": ["trigger"], "result": "pass"})
    files: Json = {"policies": [policy("p", expression)], "resources": [TRIGGER]}
    (one,) = said(write(tmp_path, test, **files)).values()
    assert expected in one


def test_unusable_entries_fail_the_rows(tmp_path: Path) -> None:
    def of(entry: Json, expression: str = "true") -> str:
        test = {"globalContextEntries": [{"name": "e", **entry}]}
        test |= rows({"policy": "p", "resources": ["trigger"], "result": "pass"})
        file = write(tmp_path, test, policies=[policy("p", expression)], resources=[TRIGGER])
        (one,) = said(file).values()
        return one

    assert 'e: found the path "length(@)", expected names' in of({"data": {}, "fieldPath": "length(@)"})
    assert "gone.yaml: cannot be read" in of({"resourceFiles": ["gone.yaml"]})
    missing = of({"data": {"a": 1}}, "globalContext.Get('e', 'b') == 1")
    assert 'projection "b" not found in global context entry "e"' in missing
    with pytest.raises(ConfigError, match=r"globalContextEntries\[0\]: expected one of data, resources"):
        of({"data": {}, "resources": []})


def test_without_a_file_there_is_no_object(tmp_path: Path) -> None:
    expression = "dyn(resource.Get('v1', 'configmaps', 'default', 'trigger')) == null"
    test = rows({"policy": "p", "resources": ["trigger"], "result": "pass"})
    file = write(tmp_path, test, policies=[policy("p", expression)], resources=[TRIGGER])
    assert said(file) == {"p on trigger: pass": "passed"}


def test_mutations_and_exceptions_read_them_too(tmp_path: Path) -> None:
    mutating: Json = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "MutatingPolicy",
        "metadata": {"name": "m"},
        "spec": {
            "matchConstraints": policy("x")["spec"]["matchConstraints"],
            "variables": [
                {"name": "cm", "expression": "resource.Get('v1', 'configmaps', 'other', 'limits')"},
            ],
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {
                        "expression": "Object{metadata: Object.metadata{labels: "
                        "Object.metadata.labels{owner: variables.cm.data.owner}}}"
                    },
                }
            ],
        },
    }
    exception: Json = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "x"},
        "spec": {
            "policyRefs": [{"name": "p", "kind": "ValidatingPolicy"}],
            "matchConditions": [
                {
                    "name": "c",
                    "expression": "resource.Get('v1', 'configmaps', 'default', 'limits').data.owner == 'ann'",
                }
            ],
        },
    }
    context = {"apiVersion": "cli.kyverno.io/v1alpha1", "kind": "Context", "spec": {"resources": SHARED}}
    test = {"context": "context.yaml"} | rows(
        {"policy": "m", "resources": ["trigger"], "result": "pass", "patchedResources": "patched.yaml"},
        {"policy": "p", "resources": ["trigger"], "result": "skip"},
    )
    patched = {**TRIGGER, "metadata": {"name": "trigger", "namespace": "default", "labels": {"owner": "bob"}}}
    file = write(
        tmp_path,
        test,
        policies=[policy("p", "false"), mutating],
        resources=[TRIGGER],
        exceptions=[exception],
        context=[context],
        patched=[patched],
    )
    assert said(file) == {"m on trigger: pass": "passed", "p on trigger: skip": "passed"}


def test_secrets_are_not_read(tmp_path: Path) -> None:
    said_of_it = found(tmp_path, "resource.Get('v1', 'secrets', 'a', 'b').kind == ''", is_cluster=False)
    assert said_of_it.startswith("spec: reads secrets of v1")


@pytest.mark.parametrize(
    ("named", "content", "problem"),
    [
        ("context", None, "context: {0}/read.yaml: cannot be read: no such file or folder"),
        ("context", {"kind": "Context"}, "spec: found none, expected that of a Context"),
        ("context", {"spec": {"resources": [1]}}, "spec.resources[0]: found no object with apiVersion"),
        ("clusterResources", {"spec": {"crds": ["gone.yaml"]}}, "gone.yaml: cannot be read"),
        ("clusterResources", {"spec": {"crds": ["read.yaml"]}}, "found no CustomResourceDefinition"),
    ],
)
def test_files_that_cannot_be_used_fail_the_rows(
    tmp_path: Path, named: str, content: Json | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "read.yaml").write_text(yaml.safe_dump(content))
    value = "read.yaml" if named == "context" else ["read.yaml"]
    test = {named: value} | rows({"policy": "p", "resources": ["trigger"], "result": "pass"})
    file = write(tmp_path, test, policies=[policy("p", "true")], resources=[TRIGGER])
    (one,) = said(file).values()
    assert one.startswith(f"{named}: ")
    assert problem.format(tmp_path) in one


def test_a_change_of_the_files_runs_the_test_again(tmp_path: Path) -> None:
    test = {"context": "a.yaml", "clusterResources": ["b.yaml"]} | rows({"policy": "p", "result": "pass"})
    file = write(tmp_path, test, policies=[policy("p", "true")], resources=[TRIGGER])
    named = {path.name for path in read_tests([file], []).named_files()}
    assert {"a.yaml", "b.yaml"} <= named


_NAMES = st.sampled_from(["", "a", "b"])
_OBJECTS = st.lists(st.tuples(_NAMES, st.sampled_from(["x", "y"])), max_size=6, unique=True)


@given(_OBJECTS, _NAMES, st.booleans())
def test_lists_have_what_get_finds(objects: list[tuple[str, str]], namespace: str, is_cluster: bool) -> None:
    held = [config_map(name, within or None) for within, name in objects]
    kind = ParamKind("v1", "configmaps")
    read = KyvernoObjects(held, is_cluster=is_cluster).read(kind)
    expected = [name for within, name in objects if within == namespace or (is_cluster and not namespace)]
    if not objects:
        with pytest.raises(EvaluationError):
            read.count(namespace)
        return
    assert read.count(namespace) == len(expected)
    listed = read.select(namespace, EVERYTHING)
    assert sorted(each["metadata"]["name"] for each in listed) == sorted(expected)
    for each in listed:
        metadata = each["metadata"]
        assert read.seen(metadata.get("namespace", ""), metadata["name"]) is each
