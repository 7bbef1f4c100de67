"""The fields that mutating policies read and write, and that policies with different fields have no order."""

# ruff: noqa: E501, ISC004 - tables

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.kinds.mutating_policy import read_mutating_binding, read_mutating_policy
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.admission_policies.effects import Effects, PolicyEffects, has_map_in_list
from gateway.pure.admission_policies.mutating import as_webhooks
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.matching import Selection
from gateway.pure.core.namespace import Namespace
from tests.core.build import request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.admission_policies.model import MutatingPolicy

    Json = dict[str, Any]

RULE = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
NAMESPACE = Namespace("default", {}, b'{"metadata":{"name":"default"}}')
VARIABLES = [
    {"name": "labels", "expression": "object.metadata.?labels.orValue({})"},
    {"name": "constant", "expression": '{"from": "variable"}'},
]


def policy(*expressions: str, **spec: Any) -> MutatingPolicy:
    """Return a policy with a mutation for each of *expressions*: a list is a JSON Patch."""
    mutations = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": one}}
        if "JSONPatch" in one
        else {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": one}}
        for one in expressions
    ]
    content = {
        "matchConstraints": {"resourceRules": [RULE]},
        "reinvocationPolicy": "Never",
        "variables": VARIABLES,
        "mutations": mutations,
        **spec,
    }
    problems = Problems("test")
    found = read_mutating_policy(Fields({"metadata": {"name": "p"}, "spec": content}, "", problems))
    assert not problems.found, problems.found
    return found


LABELS, ANNOTATIONS = ("metadata", "labels"), ("metadata", "annotations")


@pytest.mark.parametrize(
    ("expression", "reads", "writes"),
    [
        (
            "Object{spec: Object.spec{hostname: 'a', subdomain: 'b'}}",
            [],
            [("spec", "hostname"), ("spec", "subdomain")],
        ),
        ("Object{metadata: Object.metadata{labels: {'a': 'b'}}}", [], [(*LABELS, "a")]),
        ("Object{metadata: Object.metadata{labels: {object.kind: 'b'}}}", [("kind",)], [LABELS]),
        ("Object{metadata: Object.metadata{labels: variables.constant}}", [], [(*LABELS, "from")]),
        ("Object{metadata: Object.metadata{labels: variables.labels}}", [LABELS], [LABELS]),
        (
            "Object{spec: Object.spec{?hostname: has(object.metadata.name) ? optional.of('a') : optional.none()}}",
            [("metadata", "name")],
            [("spec", "hostname")],
        ),
        (
            "object.kind == 'Pod' ? Object{spec: Object.spec{hostname: 'a'}} : Object{kind: 'b'}",
            [("kind",)],
            [("kind",), ("spec", "hostname")],
        ),
        ("object.kind == '' ? Object{} : Object{}", [("kind",)], [()]),
        (
            "Object{spec: Object.spec{hostname: object.spec.containers[0].name + object['kind'] + oldObject.kind}}",
            [("kind",), ("spec", "containers")],
            [("spec", "hostname")],
        ),
        (
            "Object{spec: Object.spec{hostname: object.metadata.labels[object.kind].b}}",
            [("kind",), LABELS],
            [("spec", "hostname")],
        ),
        (
            "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name})}}",
            [("spec", "containers")],
            [("spec", "containers")],
        ),
        (
            '[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("a/b"), value: "c"}]',
            [LABELS],
            [(*LABELS, "a/b")],
        ),
        (
            'has(object.spec.x) ? [JSONPatch{op: "remove", path: "/spec/x"}] : []'
            ' + [JSONPatch{op: "test", path: "/kind", value: "a"}]',
            [("kind",), ("spec",), ("spec", "x")],
            [("kind",), ("spec", "x")],
        ),
        (
            '[JSONPatch{op: "add", path: "/spec/containers/0/args/-", value: "a"}]',
            [("spec",)],
            [("spec", "containers")],
        ),
        ('[JSONPatch{op: "move", from: "/a", path: "/b"}]', [], [()]),
        ('[JSONPatch{op: "add", path: object.kind, value: 1}]', [("kind",)], [()]),
    ],
)
def test_effects(expression: str, reads: list[Any], writes: list[Any]) -> None:
    assert PolicyEffects(policy(expression)).all == Effects(frozenset(reads), frozenset(writes))


def test_conditions_are_read_by_the_policy_and_not_by_its_mutations() -> None:
    conditions = [{"name": "c", "expression": "object.spec.x == 1"}]
    effects = PolicyEffects(policy("Object{kind: 'a'}", matchConditions=conditions))
    assert effects.all.reads == {("spec", "x")}
    assert [one.reads for one in effects.of_mutations] == [frozenset()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Object{spec: Object.spec{a: {'b': 'c'}}}", False),
        ("Object{spec: Object.spec{a: [Object.spec.a{b: 'c'}]}}", False),
        ("Object{spec: Object.spec{a: [{'b': 'c'}]}}", True),
        ("Object{spec: Object.spec{a: object.x.map(y, {'b': y})}}", True),
    ],
)
def test_map_in_list(text: str, expected: bool) -> None:
    assert has_map_in_list([text]) == expected


# -- the law --------------------------------------------------------------------------------------

EXPRESSIONS = (
    "Object{spec: Object.spec{hostname: 'a'}}",
    "Object{spec: Object.spec{hostname: object.metadata.name}}",
    "Object{spec: Object.spec{subdomain: object.spec.?hostname.orValue('none')}}",
    "Object{spec: Object.spec{subdomain: string(size(variables.labels))}}",
    "Object{metadata: Object.metadata{labels: {'a': 'b'}}}",
    "Object{metadata: Object.metadata{labels: {'c': 'd'}, annotations: {'e': 'f'}}}",
    "Object{metadata: Object.metadata{labels: variables.constant}}",
    "Object{metadata: Object.metadata{annotations: variables.labels}}",
    "has(object.metadata.labels) ? Object{spec: Object.spec{hostname: 'b'}} : Object{spec: Object.spec{hostname: 'c'}}",
    "Object{spec: Object.spec{containers: object.spec.containers.map(c, "
    "Object.spec.containers{name: c.name, imagePullPolicy: 'Always'})}}",
    "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'x', image: 'y'}]}}",
    '[JSONPatch{op: "add", path: "/metadata/labels/a", value: "z"}]',
    '[JSONPatch{op: "add", path: "/metadata/annotations/g", value: object.metadata.name}]',
    '[JSONPatch{op: "remove", path: "/metadata/labels/c"}]',
    'has(object.spec.hostname) ? [JSONPatch{op: "remove", path: "/spec/hostname"}] : []',
    '[JSONPatch{op: "add", path: "/spec/containers/0/image", value: "w"}]',
    '[JSONPatch{op: "test", path: "/spec/hostname", value: "a"}, JSONPatch{op: "add", path: "/spec/nodeName", value: "n"}]',
)


def pods() -> st.SearchStrategy[Json]:
    # The API server sends no empty map of a built-in kind.
    labels = st.none() | st.dictionaries(st.sampled_from("ac"), st.just("v"), min_size=1)

    def pod(own: dict[str, str] | None, notes: dict[str, str] | None, hostname: str | None) -> Json:
        metadata: Json = {"name": "pod"}
        metadata |= {} if own is None else {"labels": own}
        metadata |= {} if notes is None else {"annotations": notes}
        spec: Json = {"containers": [{"name": "x", "image": "i"}, {"name": "z", "image": "j"}]}
        spec |= {} if hostname is None else {"hostname": hostname}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    return st.builds(pod, labels, labels, st.sampled_from([None, "a", "b"]))


def applied(expressions: Sequence[str], pod: Json) -> tuple[bool, Any]:
    """Return whether the request was refused, and the object after the mutations, in order."""
    found = {"metadata": {"name": "b"}, "spec": {"policyName": "p"}}
    binding = read_mutating_binding(Fields(found, "", Problems("test")))
    webhooks = list(as_webhooks(policy(*expressions), [binding]))
    evaluation = Evaluation(Selection("mutate", webhooks), request(object=pod), NAMESPACE)
    assert not evaluation.start()
    while tasks := evaluation.take_condition_tasks():
        for task in tasks:
            assert callable(task)
            evaluation.complete_condition_task(task, task())
    refused = any(outcome.rejects for outcome in evaluation.outcomes)
    return refused, None if refused else evaluation.final_object


@given(pods(), st.lists(st.sampled_from(EXPRESSIONS), min_size=2, max_size=2, unique=True))
def test_mutations_of_different_fields_have_no_order(pod: Json, expressions: list[str]) -> None:
    one, other = PolicyEffects(policy(*expressions)).of_mutations
    assert (one.depend(other) is None) == (other.depend(one) is None)
    if one.depend(other) is None:
        assert applied(expressions, pod) == applied(expressions[::-1], pod)


@pytest.mark.parametrize(("one", "other"), [(4, 5), (0, 4), (4, 12), (9, 5), (0, 16)], ids=str)
def test_some_pairs_have_an_order_and_others_have_none(one: int, other: int) -> None:
    effects = PolicyEffects(policy(EXPRESSIONS[one], EXPRESSIONS[other])).of_mutations
    assert (effects[0].depend(effects[1]) is None) == ((one, other) != (0, 16))
