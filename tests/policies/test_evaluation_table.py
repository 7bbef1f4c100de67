"""Expressions of policies: what they see, what they cost, and what does not compile.

Source of the tables: k8s.io/apiserver pkg/admission/plugin/cel/condition_test.go, composition_test.go,
compile_test.go.
"""

# ruff: noqa: E501 - tables

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.pure.admission_policies.evaluation import Allowance, OutOfBudgetError, evaluate_all
from gateway.pure.admission_policies.shared_values import Prepared
from gateway.pure.cel.compile import compile_expression
from gateway.pure.cel.environment import policy_environment
from gateway.pure.core.conditions import AccessDecision
from gateway.pure.core.namespace import Namespace
from tests.core import build
from tests.policies.documents import CLUSTER, binding, decided, policy, written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Json = dict[str, Any]

ENDPOINTS: Json = {
    "apiVersion": "v1",
    "kind": "Endpoints",
    "metadata": {"name": "endpoints1"},
    "subsets": [{"addresses": [{"ip": "127.0.0.0"}]}],
}
POD: Json = {"metadata": {"name": "foo"}, "spec": {"nodeName": "testnode"}}
CREATED: Json = {
    "object": ENDPOINTS,
    "name": "endpoints1",
    "kind": {"group": "", "version": "v1", "kind": "Endpoints"},
    "resource": build.resource("/v1/endpoints"),
}
DELETED: Json = {"object": None, "oldObject": ENDPOINTS, "operation": "DELETE"}
OF_POD: Json = {"object": POD}
STATUS: Json = {**CREATED, "operation": "UPDATE", "oldObject": ENDPOINTS, "subResource": "status"}
CONFIG_MAP: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "foo", "namespace": "default"}, "data": {"fakeString": "fake"}}  # fmt: skip
CUSTOM: Json = {"apiVersion": "example.com/v1", "kind": "Size", "metadata": {"name": "foo"}, "spec": {"testSize": 10}}  # fmt: skip
SPACE: Json = {
    "metadata": {
        "name": "test",
        "labels": {"env": "test", "foo": "demo"},
        "annotations": {"annotation1": "testAnnotation1"},
        "finalizers": ["f1"],
    },
    "spec": {"finalizers": ["kubernetes"]},
    "status": {"phase": "Active"},
}
CHECK = "authorizer.group('').resource('endpoints').check('create')"
ALL_FIELDS = "authorizer.group('apps').resource('deployments'){}.subresource('status').namespace('test').name('backend').check('create').allowed()"
BACKEND = {"group": "apps", "resource": "deployments", "subresource": "status", "namespace": "test", "name": "backend", "verb": "create", "version": "*"}  # fmt: skip
ENDPOINT = {"resource": "endpoints", "namespace": "default", "name": "endpoints1", "verb": "custom-verb", "version": "*"}  # fmt: skip


def allows(user: str = "", **attributes: Any) -> Callable[[Json], AccessDecision]:
    """An authorizer that allows exactly this access."""
    key = "nonResourceAttributes" if "path" in attributes else "resourceAttributes"
    return lambda spec: AccessDecision(allowed=spec.get(key) == attributes and spec.get("user", "") == user)


def denies(_: Json) -> AccessDecision:
    return AccessDecision(reason="fake reason")


def breaks(_: Json) -> AccessDecision:
    return AccessDecision(error="fake authz error")


# Request, parameter, authorizer, expressions with their results: an error is the text of one.
EXPRESSIONS: dict[str, tuple[Json, Json | None, Any, dict[str, bool | str]]] = {
    "deletion": (DELETED, CONFIG_MAP, None, {"oldObject != null": True, "object == null": True}),
    "error": (DELETED, CONFIG_MAP, None, {"oldObject.x == 100": "no such key: x"}),
    "allowed": (OF_POD, None, allows(resource="endpoints", verb="create", version="*"), {f"{CHECK}.allowed()": True, f"{CHECK}.errored()": False}),
    "all fields": (
        OF_POD,
        None,
        allows(**BACKEND, fieldSelector={"requirements": [{"key": "foo", "operator": "In", "values": ["bar"]}]}, labelSelector={"requirements": [{"key": "apple", "operator": "In", "values": ["banana"]}]}),
        {ALL_FIELDS.format(".fieldSelector('foo=bar').labelSelector('apple=banana')"): True},
    ),
    "selectors that are wrong": (OF_POD, None, allows(**BACKEND), {ALL_FIELDS.format(".fieldSelector('foo badoperator bar').labelSelector('apple badoperator banana')"): True}),
    "another resource": (OF_POD, None, allows(**{**BACKEND, "resource": "deployments-xxxx"}), {ALL_FIELDS.format(""): False}),
    "reason": (OF_POD, None, denies, {f"{CHECK}.reason() == 'fake reason'": True}),
    "authorizer's error": (OF_POD, None, breaks, {f"{CHECK}.errored()": True, f"{CHECK}.error() == 'fake authz error'": True, f"{CHECK}.allowed()": False}),
    "path": (OF_POD, None, allows(path="/healthz", verb="get"), {"authorizer.path('/healthz').check('get').allowed()": True}),
    "path denied": (OF_POD, None, denies, {"authorizer.path('/healthz').check('get').allowed() == false": True}),
    "requested resource": (CREATED, None, allows(**ENDPOINT), {"authorizer.requestResource.check('custom-verb').allowed()": True}),
    "requested subresource": (STATUS, None, allows(**ENDPOINT, subresource="status"), {"authorizer.requestResource.check('custom-verb').allowed()": True}),
    "service account": (
        CREATED,
        None,
        allows("system:serviceaccount:default:test-serviceaccount", **ENDPOINT),
        {"authorizer.serviceAccount('default', 'test-serviceaccount').group('').resource('endpoints').namespace('default').name('endpoints1').check('custom-verb').allowed()": True},
    ),
    "namespaceObject": (
        OF_POD,
        None,
        None,
        {
            "namespaceObject.metadata.name == 'test'": True,
            "'env' in namespaceObject.metadata.labels && namespaceObject.metadata.labels.env == 'test'": True,
            "('fake' in namespaceObject.metadata.labels) && namespaceObject.metadata.labels.fake == 'test'": False,
            "namespaceObject.spec.finalizers[0] == 'kubernetes'": True,
            "namespaceObject.status.phase == 'Active'": True,
            "'env' in namespaceObject.metadata.annotations": False,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EXPRESSIONS)
def test_values_and_results(tmp_path: Path, case: str) -> None:
    members, param, authorize, expressions = EXPRESSIONS[case]
    documents: list[Json] = []
    spec: Json = {}
    bound: Json = {}
    if param is not None:
        found = param or CONFIG_MAP
        spec["paramKind"] = {"apiVersion": found["apiVersion"], "kind": found["kind"]}
    if param:
        bound["paramRef"] = {"name": "foo", "parameterNotFoundAction": "Deny"}
        documents.append(param)
    validations = [{"expression": each, "message": each} for each in expressions]
    documents += [policy(validations=validations, **spec), binding(**bound)]
    space = Namespace("default", {}, orjson.dumps(SPACE))
    answer = decided(tmp_path, documents, members, authorize=authorize, space=space)
    expected = [
        each if result is False else f"expression '{each}' resulted in error: {result}"
        for each, result in expressions.items()
        if result is not True
    ]
    assert answer.denials == expected


SUBSETS, OLD, DENIED = "object.subsets.size() > 2", "oldObject != null", f"!{CHECK}.allowed()"
HAS = "has(object.subsets) && object.subsets.size() < 2"


# Expressions, budget, what is left, None if it is exceeded.
@pytest.mark.parametrize(
    ("expressions", "budget", "left"),
    [
        ([HAS, "has(object.subsets)"], 1, None),
        ([HAS, SUBSETS], 5, None),
        ([OLD, SUBSETS], 10, 4),
        ([OLD, SUBSETS], 6, 0),
        ([OLD, SUBSETS, "true"], 6, 0),
        ([OLD, SUBSETS], 5, None),
        ([DENIED], 350_005, 0),
        ([DENIED], 350_004, None),
        ([DENIED, "has(object.subsets)"], 35_000, None),
        ([DENIED, DENIED], 700_000, None),
        ([DENIED, DENIED], 700_011, 1),
        ([DENIED, DENIED], 700_010, 0),
        (["[1,2,3,4].isSorted()"], 4, 0),
        (["url('https:://kubernetes.io/').getHostname() == 'kubernetes.io'"], 4, 0),
        (["size('abc 123 def 123'.split(' ')) > 0"], 5, 0),
        (["size(['aa', 'bb', 'cc', 'd', 'e', 'f', 'g', 'h', 'i', 'j'].join(' ')) > 0"], 7, 0),
        (["size('abc 123 def 123'.find('123')) > 0"], 4, 0),
        (['quantity("200M") == quantity("0.2G") && quantity("0.2G") == quantity("200M")'], 6, 0),
    ],
)
def test_a_budget_is_exceeded_beyond_its_last_unit(
    expressions: list[str], budget: int, left: int | None
) -> None:
    assert evaluated(expressions, {}, budget) == left


# Variables, expression, budget, whether it suffices.
@pytest.mark.parametrize(
    ("variables", "expression", "budget", "suffices"),
    [
        ({"name": "object.metadata.name"}, "variables.name == 'endpoints1'", 4, False),
        ({"name": "object.metadata.name"}, "variables.name == 'endpoints1'", 6, True),
        ({"name": "object.metadata.name"}, "variables.name == 'endpoints1' && variables.name == 'endpoints1' ", 10, True),
        ({"name": "object.metadata.name"}, "variables.name == 'endpoints1' && variables.name == 'endpoints1' ", 8, False),
        ({"dict": "'abc 123 def 123'.split(' ')"}, "size(variables.dict) > 0", 5, False),
        ({"unused": "'abc 123 def 123'.split(' ')"}, "true", 0, True),
    ],
)  # fmt: skip
def test_variables_cost_once_and_only_when_they_are_used(
    variables: dict[str, str], expression: str, budget: int, *, suffices: bool
) -> None:
    assert (evaluated([expression], variables, budget) is not None) is suffices


def evaluated(expressions: Sequence[str], variables: dict[str, str], budget: int) -> int | None:
    """What is left of the budget after all expressions, with an authorizer that denies; None if nothing is."""
    environment = policy_environment({}, has_params=True)
    known = {name: compile_expression(each, environment) for name, each in variables.items()}
    types = {name: each.type for name, each in known.items()}
    environment = policy_environment(types, has_params=True)
    compiled = [compile_expression(each, environment) for each in expressions]
    prepared = Prepared(build.document(**CREATED))
    while True:
        prepared.known.missing = {}
        values = (
            ENDPOINTS,
            None,
            prepared.request,
            None,
            prepared.authorizer,
            prepared.check,
            None,
            None,
            None,
        )
        try:
            _, left = evaluate_all(compiled, known, values, budget, Allowance(is_brief=False))
        except OutOfBudgetError:
            left = -1
        if not prepared.known.missing:
            return None if left < 0 else round(left)
        prepared.known.decisions = {
            **prepared.known.decisions,
            **dict.fromkeys(prepared.known.missing, AccessDecision()),
        }


COMPILED = (
    "object.foo < params.x",
    "namespaceObject.metadata.name.startsWith('test')",
    "object.foo == oldObject.foo",
    "object == null || oldObject == null || object.foo == oldObject.foo",
    "object.spec.string.matches('[0-9]+')",
    "object.spec.string.findAll('[0-9]+').size() > 0",
    "object.spec.list.isSorted()",
    "url(object.spec.endpoint).getHostname() in ['ok1', 'ok2']",
    "request.kind.group == 'example.com' && request.kind.version == 'v1' && request.kind.kind == 'Fake'",
    "request.resource.group == 'example.com' && request.resource.version == 'v1' && request.resource.resource == 'fake' && request.subResource == 'scale'",
    "request.requestKind.group == 'example.com' && request.requestKind.version == 'v1' && request.requestKind.kind == 'Fake'",
    "request.requestResource.group == 'example.com' && request.requestResource.version == 'v1' && request.requestResource.resource == 'fake' && request.requestSubResource == 'scale'",
    "request.name == 'fake-name'",
    "request.namespace == 'fake-namespace'",
    "request.operation == 'CREATE'",
    "request.userInfo.username == 'admin'",
    "request.userInfo.uid == '014fbff9a07c'",
    "request.userInfo.groups == ['system:authenticated', 'my-admin-group']",
    "request.userInfo.extra == {'some-key': ['some-value1', 'some-value2']}",
    "request.dryRun == false",
    "request.options == {'whatever': 'you want'}",
    "namespaceObject.metadata != null",
    "namespaceObject.metadata.generateName == 'test'",
    "namespaceObject.metadata.namespace == 'testns'",
    "'test' in namespaceObject.metadata.labels",
    "'test' in namespaceObject.metadata.annotations",
    "namespaceObject.metadata.UID == '12345'",
    "type(namespaceObject.metadata.creationTimestamp) == google.protobuf.Timestamp",
    "type(namespaceObject.metadata.deletionTimestamp) == google.protobuf.Timestamp",
    "namespaceObject.metadata.deletionGracePeriodSeconds == 5",
    "namespaceObject.metadata.generation == 2",
    "namespaceObject.metadata.resourceVersion == 'v1'",
    "namespaceObject.metadata.finalizers[0] == 'testEnv'",
    "namespaceObject.spec.finalizers[0] == 'testEnv'",
    "namespaceObject.status.phase == 'Active'",
    "namespaceObject.status.conditions[0].status == 'True'",
    "namespaceObject.status.conditions[0].type == 'NamespaceDeletionDiscoveryFailure'",
    "type(namespaceObject.status.conditions[0].lastTransitionTime) == google.protobuf.Timestamp",
    "namespaceObject.status.conditions[0].message == 'Unknow'",
    "namespaceObject.status.conditions[0].reason == 'Invalid'",
)
AUTHORIZER = "authorizer.group('') != null"


def test_expressions_that_compile(tmp_path: Path) -> None:
    annotations = [
        {"key": f"k{number}", "valueExpression": f"string({each})"}
        for number, each in enumerate((*COMPILED, AUTHORIZER))
    ]
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    for part in (annotations[:20], annotations[20:40], annotations[40:]):
        expressions = [*COMPILED, AUTHORIZER]
        made = policy(validations=expressions, paramKind=kind, auditAnnotations=part)
        written(tmp_path, [made, binding(), CLUSTER])
        assert load([tmp_path]).validating


@pytest.mark.parametrize("form", ["expression", "valueExpression"])
@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("1 < 'asdf'", "found no matching overload for '_<_' applied to '(int, string)"),
        ("'asdf'.contains('x'", "expected ')'"),
        ("fail to compile test", "unexpected"),
        ("object.foo < params.x", "undeclared reference to 'params'"),
        ("object.foo < invalid.x", "undeclared reference to 'invalid'"),
        ("request.foo1 == 'nope'", "undefined field 'foo1'"),
        ("request.resource.foo2 == 'nope'", "undefined field 'foo2'"),
        ("request.requestKind.foo3 == 'nope'", "undefined field 'foo3'"),
        ("request.requestResource.foo4 == 'nope'", "undefined field 'foo4'"),
        ("request.userInfo.foo5 == 'nope'", "undefined field 'foo5'"),
        ("test() == true", "undeclared reference to 'test'"),
        ("namespaceObject.foo1 == 'nope'", "undefined field 'foo1'"),
        ("namespaceObject.metadata.foo2 == 'nope'", "undefined field 'foo2'"),
        ("namespaceObject.spec.foo3 == 'nope'", "undefined field 'foo3'"),
        ("namespaceObject.status.foo4 == 'nope'", "undefined field 'foo4'"),
        ("namespaceObject.status.conditions[0].foo5 == 'nope'", "undefined field 'foo5'"),
        ("size(namespaceObject.metadata.managedFields) == 1", "undefined field 'managedFields'"),
        ("size(namespaceObject.metadata.ownerReferences) == 1", "undefined field 'ownerReferences'"),
    ],
)
def test_expressions_that_do_not_compile(tmp_path: Path, expression: str, problem: str, form: str) -> None:
    if form == "expression":
        made = policy(validations=[expression])
    else:
        made = policy(auditAnnotations=[{"key": "k", "valueExpression": f"string({expression})"}])
    assert problem in refusal(tmp_path, made)


def refusal(folder: Path, *documents: Json) -> str:
    written(folder, [*documents, binding()])
    with pytest.raises(ConfigError) as raised:
        load([folder])
    return str(raised.value)
