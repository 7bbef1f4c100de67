"""What mutating policies leave out, because it is known without it, changes no result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.admission_policies.evaluation import Allowance
from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.admission_policies.mutating import MutatingPolicyInForce
from gateway.pure.admission_policies.mutations import BYTES_OF_JSON, merger, mutate
from gateway.pure.cel.sizes import json_bytes
from gateway.pure.core.call import Payload
from gateway.pure.core.conditions import PolicyResult
from gateway.pure.core.verdict import Failed, FailureReason
from gateway.pure.openapi.go_types import InMutations
from tests.core.build import request
from tests.policies.test_mutating import NAMESPACE, apply, patch, policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.namespace import Namespace

    Json = dict[str, Any]

LABELS: Final = st.dictionaries(st.text(max_size=3), st.text(max_size=9), max_size=4)


def added(path: str, value: str) -> Json:
    return patch(f'[JSONPatch{{op: "add", path: "{path}", value: {value}}}]')


MUTATIONS: Final[Sequence[Json]] = [
    apply("Object{metadata: Object.metadata{labels: object.metadata.labels}}"),
    apply('Object{metadata: Object.metadata{annotations: {"a": string(object.metadata.name)}}}'),
    apply('Object{spec: Object.spec{containers: [Object.spec.containers{name: "a", image: "x"}]}}'),
    added("/metadata/labels/\u00e9~1x", "object.metadata.labels"),
    added("/spec", '{"a": dyn(duration("300h")), "b": dyn(9007199254740993), "c": dyn(b"\\000a")}'),
    added("/spec/k", "[dyn(1.5), dyn(true), dyn(null), dyn([0, -1]), dyn({})]"),
    patch('[JSONPatch{op: "replace", path: "/spec"}, JSONPatch{op: "add", path: "/k", value: ""}]'),
    patch('[JSONPatch{op: "copy", from: "/metadata", path: "/metadata/copy"}]'),
    patch('[JSONPatch{op: "move", from: "/metadata/labels", path: "/moved"}]'),
]


@given(labels=LABELS, which=st.lists(st.sampled_from(range(len(MUTATIONS))), min_size=1, max_size=4))
def test_an_object_has_no_more_bytes_than_are_counted(labels: dict[str, str], which: list[int]) -> None:
    current: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "labels": labels},
        "spec": {"containers": [{"name": "a"}], "numbers": [1, 2.5, None, True, [], {}]},
    }
    entry = policy(*[MUTATIONS[each] for each in which])[0].policy
    assert isinstance(entry, MutatingPolicyInForce)
    found = mutate(
        entry.policy.rules,
        current,
        lambda each: (each, None, {}, *[None] * 5, InMutations()),
        merger(None, {}),
        Allowance(is_brief=True),
        {},
        json_bytes(current, 1 << 30),
    )
    assert json_bytes(found.object, 1 << 30) <= found.most_bytes
    assert json_bytes(found.object, 1 << 30) <= BYTES_OF_JSON * len(orjson.dumps(found.object))


@pytest.mark.parametrize("namespace", [NAMESPACE, None, Failed(FailureReason.NAMESPACE, "x", 500)])
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"bindings": [{"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}]},
        {"matchConditions": [{"name": "c", "expression": "object.spec.none == 1"}]},
        {"matchConditions": [{"name": "c", "expression": "false"}]},
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "bindings": [{"paramRef": {"name": "none", "parameterNotFoundAction": "Deny"}}],
        },
    ],
)
def test_a_policy_that_is_not_invoked_again_is_evaluated_only_if_that_may_fail(
    spec: Json, namespace: Namespace | Failed | None
) -> None:
    params = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p", "namespace": "default"}}]
    found = [
        each.policy
        for each in policy(patch('[JSONPatch{op: "add", path: "/a", value: 1}]'), params=params, **spec)
    ]
    seen = Payload(request(object={"metadata": {"name": "a"}})).policy_input(namespace, None, None, 0.0)
    seen.invoked = ()
    for each in found:
        assert isinstance(each, MutatingPolicyInForce)
        answers = each.evaluate(seen, {}), PolicyInForce.evaluate(each, seen, {})
        one, other = (each.verdict if isinstance(each, PolicyResult) else each for each in answers)
        assert one == other


def test_the_types_of_a_review_are_those_of_each_frame() -> None:
    types = InMutations()
    requests: list[Json] = [{"userInfo": {"groups": ["a"], "extra": {"b": ["c"]}}, "kind": {}} for _ in "ab"]
    namespaces: list[Json | None] = [None, {"metadata": {"labels": {}}}, {"spec": {"finalizers": []}}]
    params: list[Json | None] = [None, {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}, {"kind": "X"}]
    for one in requests * 2:
        for namespace in namespaces:
            for param in params:
                frame = (None, None, one, namespace, None, None, param, None, None)
                assert types(frame) == InMutations()(frame)
