"""MutatingAdmissionPolicies: mutations, bindings and parameters, and what the core makes of them.

Source of the tables: k8s.io/apiserver pkg/admission/plugin/policy/mutating/patch/json_patch_test.go, smd_test.go,
compilation_test.go, dispatcher_test.go, plugin_test.go. What the API server recorded is in tests/recorded.
"""

# ruff: noqa: E501 - tables

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.config.kinds.mutating_policy import read_mutating_binding, read_mutating_policy
from gateway.config.yaml.fields import Fields, Problems
from gateway.observe.decisions.record import record_of_webhook
from gateway.pure.admission_policies import mutations, values
from gateway.pure.admission_policies.mutating import as_webhooks
from gateway.pure.admission_policies.params import FixedParams
from gateway.pure.cel.meter import EXCEEDED
from gateway.pure.core import matching
from gateway.pure.core.decision import decide
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.explain import explain
from gateway.pure.core.matching import Selection
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.stages import changed_payloads
from gateway.pure.core.verdict import Denied, Failed
from tests.core.build import request, webhook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.outcome import Outcome
    from gateway.pure.core.webhook import Mode, Webhook

    Json = dict[str, Any]

NAMESPACE = Namespace("default", {}, b'{"metadata":{"name":"default"}}')
RULE = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}


def patch(expression: str) -> Json:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def apply(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def policy(
    *mutations: Json,
    name: str = "policy",
    bindings: Sequence[Json] = ({},),
    params: Sequence[Json] = (),
    **spec: Any,
) -> list[Webhook]:
    """The entries of a policy with its bindings; a binding may have a ``mode``."""
    problems = Problems("test")
    content = {
        "matchConstraints": {"resourceRules": [RULE]},
        "reinvocationPolicy": "Never",
        "mutations": list(mutations),
        **spec,
    }
    read = read_mutating_policy(Fields({"metadata": {"name": name}, "spec": content}, "", problems))
    bound = []
    for number, each in enumerate(bindings):
        metadata: Json = {"name": f"binding-{number}"}
        if "mode" in each:
            metadata["annotations"] = {"admission-gateway.io/mode": each["mode"]}
        of_binding = {key: value for key, value in each.items() if key != "mode"}
        document = {"metadata": metadata, "spec": {"policyName": name, **of_binding}}
        bound.append(read_mutating_binding(Fields(document, "", problems)))
    assert not problems.found, problems.found
    return list(as_webhooks(read, bound, FixedParams(params)))


def evaluated(
    webhooks: Sequence[Webhook], current: Json | None, modes: dict[int, Mode] | None = None, **members: Any
) -> Evaluation:
    """An evaluation of *webhooks* on an object, which nothing interrupts."""
    evaluation = Evaluation(
        Selection("mutate", webhooks), request(object=current, **members), NAMESPACE, modes=modes or {}
    )
    assert not evaluation.start()
    while tasks := evaluation.take_condition_tasks():
        for task in tasks:
            assert callable(task)
            evaluation.complete_condition_task(task, task())
    assert evaluation.done
    return evaluation


def only(evaluation: Evaluation) -> Outcome:
    (outcome,) = evaluation.outcomes
    return outcome


def deployment(
    *containers: Json, init: Sequence[Json] = (), replicas: int | None = 1, **metadata: Any
) -> Json:
    spec: Json = {"template": {"spec": {"containers": list(containers)}}}
    if init:
        spec["template"]["spec"]["initContainers"] = list(init)
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", **metadata},
        "spec": spec,
    }


A, B, C = ({"name": each} for each in "abc")
IN_POD = "/spec/template/spec"
X = "Object.spec.template.spec"
INIT_1 = {"name": "init-1", "image": "alpine:3.18"}


@pytest.mark.parametrize(
    ("expression", "current", "expected"),
    [
        ('[JSONPatch{op: "test", path: "/spec/paused"}, JSONPatch{op: "replace", path: "/spec/replicas", value: 3}]', deployment(), deployment(replicas=3)),
        ('[JSONPatch{op: "add", path: "/spec/empty", value: []}, JSONPatch{op: "test", path: "/spec/empty", value: null}, JSONPatch{op: "remove", path: "/spec/empty"}, JSONPatch{op: "replace", path: "/spec/replicas", value: 3}]', deployment(), deployment(replicas=3)),
        (f'[JSONPatch{{op: "add", path: "/spec", value: Object.spec{{template: Object.spec.template{{spec: {X}{{containers: []}}}}, replicas: 10}}}}]', deployment(A), deployment(replicas=10)),
    ],
)  # fmt: skip
def test_a_json_patch_changes_the_object(expression: str, current: Json, expected: Json) -> None:
    evaluation = evaluated(policy(patch(expression)), current)
    outcome = only(evaluation)
    assert evaluation.final_object == expected
    assert (type(outcome.verdict).__name__, outcome.has_changed) == ("Allowed", current != expected)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ('[JSONPatch{op: "move", from: "/spec", path: "/spec/c"}]', "JSON Patch: move operation does not apply: doc is missing destination path: /spec/c: missing value"),
        ('[JSONPatch{op: "move", from: "/spec/replicas", path: "/a/\\u0001"}]', "JSON Patch: move operation failed to decode path: invalid character 'x' in string escape code"),
        ('[JSONPatch{op: "remove", path: "/a/\\u0001"}]', "JSON Patch: remove operation failed to decode path: missing value"),
        ('[JSONPatch{op: "replace", path: "", value: []}]', "JSON Patch: it leaves an array where the object was"),
    ],
)  # fmt: skip
def test_the_message_of_a_json_patch_that_does_not_apply(expression: str, problem: str) -> None:
    evaluation = evaluated(policy(patch(expression)), deployment(A))
    text = f"policy 'policy' with binding 'binding-0' denied request: {problem}"
    verdict = only(evaluation).verdict
    assert isinstance(verdict, Denied)
    assert (verdict.message, verdict.code, verdict.reason) == (text, 403, "Invalid")
    status = decide(evaluation, "Metadata").status
    assert status is not None
    assert (status.message, [cause.message for cause in status.causes]) == (text, [text])


@pytest.mark.parametrize(
    ("expression", "current", "expected"),
    [
        ("Object{spec: Object.spec{replicas: 3}}", deployment({**A, "env": [{"name": "t", "value": "1"}, {"name": "t", "value": "2"}]}), deployment({**A, "env": [{"name": "t", "value": "1"}, {"name": "t", "value": "2"}]}, replicas=3)),
        (f'Object{{spec: Object.spec{{template: Object.spec.template{{spec: {X}{{containers: [{X}.containers{{name: "a", env: [{X}.containers.env{{name: "t", value: "c"}}]}}]}}}}}}}}', deployment({**A, "env": [{"name": "t", "value": "1"}, {"name": "t", "value": "2"}, {"name": "f"}]}), deployment({**A, "env": [{"name": "t", "value": "c"}, {"name": "f"}]})),
        ("Object{spec: Object.spec{replicas: 1, template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {'a': 'b'}}}}}", {**deployment(), "spec": {}}, {**deployment(), "spec": {"replicas": 1, "template": {"metadata": {"labels": {"a": "b"}}}}}),
    ],
)  # fmt: skip
def test_an_apply_configuration_is_merged(expression: str, current: Json, expected: Json) -> None:
    assert evaluated(policy(apply(expression)), current).final_object == expected


def test_a_mutation_sees_the_old_object() -> None:
    mutation = apply("Object{spec: Object.spec{replicas: oldObject.spec.replicas + 1}}")
    found = evaluated(policy(mutation), deployment(), operation="UPDATE", oldObject=deployment(replicas=2))
    assert found.final_object == deployment(replicas=3)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("object.spec.template.spec.containers", "'list(dyn)' to '*structpb.Value'"),
        ("[object.metadata.labels]", "'map(dyn, dyn)' to '*structpb.Value'"),
        ("{'x': object.metadata}", "struct type v1.ObjectMeta to *structpb.Value"),
        ("dyn(request.kind)", "struct type v1.GroupVersionKind to *structpb.Value"),
    ],
)
def test_a_value_with_a_go_type_is_no_value_of_a_json_patch(value: str, problem: str) -> None:
    """In 1.37 only: with matchConditions the object has Go types in mutations, too."""
    conditions = [{"name": "any", "expression": "true"}]
    entries = policy(
        patch(f'[JSONPatch{{op: "add", path: "/spec/x", value: {value}}}]'), matchConditions=conditions
    )
    verdict = only(evaluated(entries, deployment(A, labels={"x": "1"}))).verdict
    assert isinstance(verdict, Denied)
    assert verdict.message.endswith(f"could not marshal to JSON: type conversion error from {problem}")


def added(path: str, value: str) -> Json:
    return patch(f'[JSONPatch{{op: "add", path: "{path}", value: {value}}}]')


@pytest.mark.parametrize(
    ("path", "empty", "below", "value"),
    [
        ("/metadata/annotations", "{}", "/a", "'b'"),
        (f"{IN_POD}/nodeSelector", "{}", "/a", "'b'"),
        (f"{IN_POD}/tolerations", "[]", "/-", "{'operator': 'Exists'}"),
        (f"{IN_POD}/containers/0/resources", "{'limits': {}}", "/limits/cpu", "'1'"),
    ],
)
def test_empty_lists_and_maps_are_gone_after_a_mutation(
    path: str, empty: str, below: str, value: str
) -> None:
    """As in the API server, which keeps the object as Go values between mutations."""
    verdict = only(
        evaluated(policy(added(path, empty), added(f"{path}{below}", value)), deployment(A))
    ).verdict
    assert isinstance(verdict, Denied)
    assert verdict.message.endswith(f'doc is missing path: "{path}{below}": missing value')
    custom = {**deployment(A), "apiVersion": "example.com/v1"}
    assert (
        only(evaluated(policy(added(path, empty), added(f"{path}{below}", value)), custom)).verdict != verdict
    )
    assert not isinstance(
        only(evaluated(policy(added(path, empty), added(f"{path}{below}", value)), custom)).verdict, Denied
    )


def test_empty_structs_and_required_lists_stay_after_a_mutation() -> None:
    mutations = (
        added(f"{IN_POD}/securityContext", "{}"),
        added(f"{IN_POD}/securityContext/runAsNonRoot", "true"),
        added(f"{IN_POD}/containers", "[]"),
        added(f"{IN_POD}/containers/-", "{'name': 'b'}"),
    )
    changed = evaluated(policy(*mutations), deployment(A)).final_object
    assert changed is not None
    spec = changed["spec"]["template"]["spec"]
    assert spec == {"securityContext": {"runAsNonRoot": True}, "containers": [B]}


ADD_10 = patch('[JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas + 10}]')
ANNOTATE = apply('Object{metadata: Object.metadata{annotations: {"a": "b"}}}')
ADD_100 = apply("Object{spec: Object.spec{replicas: object.spec.replicas + 100}}")


def test_variables_are_evaluated_for_each_mutation() -> None:
    variables = [{"name": "n", "expression": "object.spec.replicas + 1"}]
    mutation = patch('[JSONPatch{op: "replace", path: "/spec/replicas", value: variables.n}]')
    assert evaluated(policy(mutation, mutation, variables=variables), deployment()).final_object == deployment(replicas=3)  # fmt: skip


def test_each_mutation_has_a_budget_of_its_own_and_long_ones_run_in_the_thread() -> None:
    digits = "[0,1,2,3,4,5,6,7,8,9]"
    loop = f"{digits}.all(a, {digits}.all(b, {digits}.all(c, {digits}.all(d, {digits}.all(e, {digits}.all(f, true))))))"
    fails = patch(f'[JSONPatch{{op: "replace", path: "/spec/replicas", value: {loop} ? 1 : 0}}]')
    verdict = only(evaluated(policy(fails, ADD_10), deployment())).verdict
    assert isinstance(verdict, Denied)
    assert verdict.message.endswith("operation cancelled: actual cost limit exceeded")


def test_a_mutation_that_fails_does_not_stop_the_others() -> None:
    fails = patch('[JSONPatch{op: "remove", path: "/a"}]')
    ignored = evaluated(policy(fails, ADD_10, fails, failurePolicy="Ignore"), deployment())
    outcome = only(ignored)
    assert ignored.final_object == deployment(replicas=11)
    assert isinstance(outcome.verdict, Failed)
    assert outcome.verdict.cause.count("denied request") == 2
    decision = decide(ignored, "Request")
    assert decision.allowed
    assert {"failed-open.round_0_index_0", "mutation.round_0_index_0", "patch.round_0_index_0"} == set(decision.audit_annotations)  # fmt: skip
    refused = evaluated(policy(fails, ADD_10, fails), deployment())
    decision = decide(refused, "Request")
    assert decision.status is not None
    assert len(decision.status.causes) == 2
    assert not decision.patch
    assert set(decision.audit_annotations) == {"mutation.round_0_index_0"}


PARAMS = [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default", "labels": {"set": "both"}}, "data": {"n": n}}
    for name, n in (("one", "1"), ("two", "2"))
]  # fmt: skip
WITH_PARAMS: dict[str, Any] = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "params": PARAMS}
ADD_PARAM = patch('[JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas * 10 + int(params.data.n)}]')  # fmt: skip


def ref(**fields: Any) -> Json:
    return {"paramRef": {"parameterNotFoundAction": "Deny", **fields}}


@pytest.mark.parametrize(
    ("bindings", "reinvocation", "expected"),
    [
        ([ref(name="one")], "Never", 11),
        ([ref(selector={"matchLabels": {"set": "both"}})], "Never", 112),
        ([ref(name="two"), ref(name="one")], "Never", 121),
        ([ref(selector={})], "IfNeeded", 11212),
        ([ref(name="none", parameterNotFoundAction="Allow")], "Never", 1),
    ],
)
def test_each_parameter_is_an_invocation(bindings: list[Json], reinvocation: str, expected: int) -> None:
    hooks = policy(ADD_PARAM, bindings=bindings, reinvocationPolicy=reinvocation, **WITH_PARAMS)
    assert evaluated(hooks, deployment()).final_object == deployment(replicas=expected)


def test_a_missing_parameter_is_an_error_of_the_configuration() -> None:
    bindings = [ref(name="none"), ref(name="one")]
    evaluation = evaluated(policy(ADD_PARAM, bindings=bindings, **WITH_PARAMS), deployment())
    verdict = only(evaluation).verdict
    assert isinstance(verdict, Denied)
    assert verdict.reason == "Forbidden"
    assert verdict.message == (
        "policy 'policy' with binding 'binding-0' denied request: failed to configure binding: no params found for "
        "policy binding with `Deny` parameterNotFoundAction"
    )
    ignoring = policy(ADD_PARAM, bindings=bindings, failurePolicy="Ignore", **WITH_PARAMS)
    assert evaluated(ignoring, deployment()).final_object == deployment(replicas=11)


ONCE = {"name": "once", "expression": "object.spec.replicas == 1"}


def test_conditions_are_evaluated_on_the_present_object_and_again_in_the_second_round() -> None:
    hooks = policy(ADD_10, reinvocationPolicy="IfNeeded")
    assert evaluated(hooks, deployment()).final_object == deployment(replicas=21)
    once = policy(ADD_10, reinvocationPolicy="IfNeeded", matchConditions=[ONCE])
    assert evaluated(once, deployment()).final_object == deployment(replicas=11)
    for condition, expected in (
        (ONCE, 11),
        ({"name": "later", "expression": "object.spec.replicas == 11"}, 21),
    ):
        two = [*policy(ADD_10, name="a"), *policy(ADD_10, name="b", matchConditions=[condition])]
        assert evaluated(two, deployment()).final_object == deployment(replicas=expected)
    fails = [{"name": "fails", "expression": "object.none == 1"}]
    verdict = only(evaluated(policy(ADD_10, matchConditions=fails), deployment())).verdict
    assert isinstance(verdict, Denied)
    assert "no such key: none" in verdict.message


def test_what_was_not_invoked_in_the_first_round_is_not_invoked_in_the_second() -> None:
    later = [{"name": "later", "expression": "object.spec.replicas > 1"}]
    hooks = [
        *policy(ADD_10, name="a", reinvocationPolicy="IfNeeded", matchConditions=later),
        *policy(ADD_10, name="b"),
    ]
    assert evaluated(hooks, deployment()).final_object == deployment(replicas=11)


@pytest.mark.parametrize("indexed_from", [0, matching.INDEXED])
def test_selectors_are_matched_with_the_object_at_the_beginning_of_the_round(
    indexed_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an index leaves out what does not match, and the first policy makes the second one match."""
    monkeypatch.setattr(matching, "INDEXED", indexed_from)
    label = patch('[JSONPatch{op: "add", path: "/metadata/labels", value: {"x": "y"}}]')
    match = {"resourceRules": [RULE], "objectSelector": {"matchLabels": {"x": "y"}}}
    hooks = [*policy(label, name="a"), *policy(ADD_10, name="b", matchConstraints=match)]
    final = evaluated(hooks, deployment()).final_object
    assert final == deployment(labels={"x": "y"})
    bound = [{"matchResources": {"objectSelector": {"matchLabels": {"x": "y"}}}}]
    hooks = [*policy(label, name="a"), *policy(ADD_10, name="b", bindings=bound)]
    assert evaluated(hooks, deployment()).final_object == final


def test_a_webhook_sees_the_object_of_the_policies_and_is_not_called_after_a_refusal() -> None:
    hook = webhook("w.policies.test")
    evaluation = Evaluation(
        Selection("mutate", [*policy(ADD_10), hook]), request(object=deployment()), NAMESPACE
    )
    (call,) = evaluation.start()
    assert call.payload.object == deployment(replicas=11)
    fails = policy(patch('[JSONPatch{op: "remove", path: "/a"}]'), name="a")
    also = policy(patch('[JSONPatch{op: "remove", path: "/b"}]'), name="b")
    refused = Evaluation(Selection("mutate", [*fails, *also, hook]), request(object=deployment()), NAMESPACE)
    assert not refused.start()
    assert refused.done
    assert [outcome.rejects for outcome in refused.outcomes] == [True, True]


def test_there_is_nothing_to_change_in_a_deletion() -> None:
    deletion = evaluated(policy(ADD_10), None, operation="DELETE", oldObject=deployment())
    assert not deletion.outcomes


@pytest.mark.parametrize("mode", ["Warn", "Audit", "Shadow"])
def test_bindings_of_other_modes_change_nothing(mode: Mode) -> None:
    enforced, other = policy(ADD_10, bindings=[{"mode": mode}, {}])
    assert (enforced.rollout, other.rollout is not None and other.rollout.mode) == (None, mode)
    evaluation = evaluated([enforced, other], deployment(), {1: mode})
    assert evaluation.final_object == deployment(replicas=11)
    assert [outcome.would_change for outcome in evaluation.outcomes] == ([False] if mode == "Shadow" else [False, True])  # fmt: skip
    fails = policy(patch('[JSONPatch{op: "remove", path: "/a"}]'), bindings=[{"mode": mode}])
    decision = decide(evaluated(fails, deployment(), {0: mode}), "Metadata")
    assert decision.allowed
    assert (len(decision.warnings) == 1) is (mode == "Warn")
    assert ("not-enforced.round_0_index_0" in decision.audit_annotations) is (mode != "Shadow")


def test_a_policy_in_the_mode_shadow_is_evaluated_after_the_answer() -> None:
    (hook,) = policy(ADD_10, bindings=[{"mode": "Shadow"}])
    before = evaluated([hook], deployment(), {0: "Shadow"})
    after = Evaluation(
        Selection("mutate", [hook]), before.request, NAMESPACE, modes={0: "Shadow"}, payload=before.payload
    )
    assert not after.start()
    assert only(after).would_change


def test_a_large_object_is_changed_in_the_thread() -> None:
    big = deployment(annotations={"big": "x" * 300_000})
    evaluation = Evaluation(Selection("mutate", policy(ADD_10)), request(object=big), NAMESPACE)
    assert not evaluation.start()
    (task,) = evaluation.take_condition_tasks()
    assert callable(task)
    evaluation.complete_condition_task(task, task())
    final: Any = evaluation.final_object
    assert final["spec"]["replicas"] == 11


def test_a_change_of_the_identity_is_a_failure() -> None:
    renames = patch('[JSONPatch{op: "replace", path: "/metadata/name", value: "other"}, JSONPatch{op: "add", path: "/metadata/labels", value: {"a": 1}}]')  # fmt: skip
    evaluation = evaluated(policy(renames), deployment())
    decision = decide(evaluation, "Metadata")
    assert decision.status is not None
    assert decision.status.message.startswith("MutatingAdmissionPolicy 'policy' failed: it makes an object")


def test_the_change_of_each_policy_is_recorded() -> None:
    hooks = [*policy(ADD_10, name="a"), *policy(ADD_100, name="b"), *policy(ANNOTATE, name="c")]
    evaluation = evaluated(hooks, deployment())
    found: list[tuple[int, Any]] = [
        (index, payload.object) for index, payload in changed_payloads(evaluation)
    ]
    counts = [(index, after["spec"]["replicas"]) for index, after in found]
    assert counts == [(0, 11), (1, 111), (2, 111)]
    records = [record_of_webhook(outcome, 0.0) for outcome in evaluation.outcomes]
    assert all(record.has_changed and record.milliseconds > 0 for record in records)


def test_explanations_name_what_a_policy_did() -> None:
    hooks = [*policy(ADD_10, name="a"), *policy(ADD_10, name="b", matchConditions=[{"name": "no", "expression": "false"}])]  # fmt: skip
    selection = Selection("mutate", hooks)
    evaluation = evaluated(hooks, deployment())
    first, second = explain(evaluation, selection)
    assert "changed the object: [" in first
    assert second.endswith("not matched, its bindings, parameters or matchConditions exclude the request")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1e20", 1e20),
        ("Object.spec{replicas: 18446744073709551615u}", {"replicas": 2.0**64}),
        ("9007199254740993.0", 9007199254740992),
    ],
)
def test_large_numbers_are_doubles(expression: str, expected: object) -> None:
    add = f'[JSONPatch{{op: "add", path: "/spec/x", value: {expression}}}]'
    evaluation = evaluated(policy(patch(add)), deployment())
    changed: Any = evaluation.payload.object
    assert changed["spec"]["x"] == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            '["a", "b", "c"].map(name, JSONPatch{op: "copy", from: "/spec/big", path: "/spec/" + name})',
            "copies add up to more than 3145728 bytes",
        ),
        (
            'lists.range(30).map(i, JSONPatch{op: "test", path: "/spec/big", value: object.spec.big})',
            "its values have more than 4194304 bytes",
        ),
        (
            'lists.range(10001).map(i, JSONPatch{op: "add", path: "/spec/x", value: 1})',
            "has 10001 operations, and at most 10000 are applied",
        ),
        (
            '[JSONPatch{op: "test", path: "/" + object.spec.big.join()}]',
            "a path has 1200001 characters, and at most 65536 are allowed",
        ),
        (
            '[JSONPatch{op: "copy", path: "/a", from: object.spec.big.slice(0, 20).join().replace("x", "/")}]',
            "a path has 2000 parts, and at most 1024 are allowed",
        ),
    ],
)
def test_the_work_of_a_patch_is_bounded(expression: str, message: str) -> None:
    current = deployment()
    current["spec"]["big"] = ["x" * 100] * 12_000
    verdict = only(evaluated(policy(patch(expression)), current)).verdict
    assert isinstance(verdict, Denied)
    assert f"JSON Patch: {message}" in verdict.message


SMALL = deployment(annotations={f"a{n}": "x" * 50 for n in range(60)})
"""Of 3 KB, whose policies begin on the event loop."""
TWICE = '[JSONPatch{op: "add", path: "/spec/" + NAME, value: object.spec}]'
NESTED = "".join(f".map(v{n}, dyn({{'x': v{n}, 'y': v{n}}}))" for n in range(60))
"""Makes a list of a value into one of a value with 2^60 times as many leaves."""
GROWTH: dict[str, list[Json]] = {
    "an object that doubles": [patch(TWICE.replace("NAME", f"'a{n}'")) for n in range(14)],
    "a text that doubles": [
        patch('[JSONPatch{op: "add", path: "/metadata/annotations/x", value: object.metadata.annotations.?x.orValue("x") + object.metadata.annotations.?x.orValue("x")}]')
    ] * 40,
    "copies that double": [
        patch(f'[JSONPatch{{op: "copy", from: "/spec", path: "/spec/a{n}"}}]') for n in range(14)
    ],
    "an ApplyConfiguration that doubles": [
        apply('Object{metadata: Object.metadata{annotations: Object.metadata.annotations{x: object.metadata.annotations.?x.orValue("x") + object.metadata.annotations.?x.orValue("x")}}}')
    ] * 40,
    "a value with shared parts": [patch(f"[dyn(object)]{NESTED}.map(z, JSONPatch{{op: 'add', path: '/spec/x', value: z}})")],
    "structs with shared parts": [patch(f"[dyn(object)]{NESTED.replace('dyn({', 'dyn(Object.spec{').replace(chr(39), '')}.map(z, JSONPatch{{op: 'add', path: '/spec/x', value: z}})")],
    "an ApplyConfiguration with shared parts": [apply(f"Object{{spec: Object.spec{{x: [dyn(object)]{NESTED}}}}}")],
    "optional values with shared parts": [patch(f"[dyn(object)]{NESTED}.map(z, JSONPatch{{op: 'add', path: '/spec/x', value: [optional.of(z)]}})")],
}  # fmt: skip


@pytest.mark.parametrize("name", GROWTH)
def test_a_mutation_that_makes_a_small_object_large_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the event loop before it takes long there, and takes the memory of a few objects at most."""
    monkeypatch.setattr(mutations, "MAX_OBJECT_BYTES", 200_000)
    monkeypatch.setattr(values, "MAX_VALUE_BYTES", 250_000)
    hooks = policy(*GROWTH[name])
    seen = Evaluation(Selection("mutate", hooks), request(object=SMALL), NAMESPACE, modes={})
    assert not seen.start(), "another thread has to go on"

    tracemalloc.start()
    verdict = only(evaluated(hooks, SMALL)).verdict
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert isinstance(verdict, Denied)
    causes = ("has more than 200000 bytes", "have more than 250000 bytes", "add up to more than", EXCEEDED)
    assert any(each in verdict.message for each in causes), verdict.message
    assert peak < 30_000_000


@pytest.mark.parametrize("levels", [300, 900])
@pytest.mark.parametrize(
    "expression",
    [
        '[JSONPatch{op: "add", path: "/spec/x", value: object.spec.deep}]',
        '[JSONPatch{op: "copy", from: "/spec/deep", path: "/spec/x"}]',
        'lists.range(9).map(i, JSONPatch{op: "add", path: "/spec/x", value: 1})',
        '[JSONPatch{op: "add", path: "/spec/x", value: 1}]',
    ],
)
def test_an_object_that_nests_too_deeply_is_refused(expression: str, levels: int) -> None:
    current = deployment()
    current["spec"]["deep"] = orjson.Fragment(b'{"a":' * levels + b"1" + b"}" * levels)
    verdict = only(evaluated(policy(patch(expression)), current)).verdict
    assert isinstance(verdict, Denied | Failed)
