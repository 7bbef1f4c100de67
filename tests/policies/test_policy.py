"""A policy within a review: the tasks that it needs first, its budgets, and the two ways to run it."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.kinds.validating_policy import read_validating_binding, read_validating_policy
from gateway.config.yaml.fields import Fields, Problems
from gateway.engine.object_review import RequestOptions, request_for, review_of
from gateway.pure.admission_policies.evaluation import OUT_OF_BUDGET, Allowance
from gateway.pure.admission_policies.params import FixedParams, UnreadParamsError
from gateway.pure.admission_policies.policy import ValidatingPolicyInForce, as_webhook
from gateway.pure.cel.lazy import LazyVariables
from gateway.pure.core import fast_allow
from gateway.pure.core.conditions import (
    AccessDecision,
    ConditionInput,
    FoundParam,
    LongEvaluation,
    NotMatched,
    ParamLookup,
    PolicyResult,
    Unresolved,
)
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.matching import Selection
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.policy import ParamKind, PolicyInput
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import Allowed, Denied, Failed

if TYPE_CHECKING:
    from gateway.pure.cel.paths import Paths
    from gateway.pure.core.conditions import Evaluated, PolicyAnswer
    from gateway.pure.core.labels import Selector

RULES = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
SPACE = Namespace("default", {}, b'{"metadata":{"name":"default"}}')


def read(reader: Any, spec: dict[str, Any], name: str = "p") -> Any:
    problems = Problems("test")
    found = reader(Fields({"metadata": {"name": name}, "spec": spec}, "", problems))
    assert not problems.found, problems.found
    return found


def bound(
    *validations: dict[str, Any] | str, actions: tuple[str, ...] = ("Deny",), **spec: Any
) -> ValidatingPolicyInForce:
    listed = [{"expression": each} if isinstance(each, str) else each for each in validations]
    policy = read(
        read_validating_policy,
        {"matchConstraints": {"resourceRules": RULES}, "validations": listed, **spec},
    )
    binding = read(read_validating_binding, {"policyName": "p", "validationActions": list(actions)}, "b")
    return ValidatingPolicyInForce(policy, [binding], FixedParams([]))


def policy_input(**data: str) -> PolicyInput:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    request = decode(review_of(request_for(config_map, RequestOptions())))
    conditions = ConditionInput(request.document, request.object, request.old_object)
    return PolicyInput(conditions, request, SPACE)


def verdict(result: Evaluated) -> Any:
    assert isinstance(result, PolicyResult | NotMatched), result
    return result.verdict if isinstance(result, PolicyResult) else None


def test_the_policies_of_a_review_share_the_time_of_the_event_loop() -> None:
    given = policy_input(a="x" * 1000)
    policy = bound("object.data.a.replace('x', 'y').replace('y', 'z').size() == 1000")
    results = [policy.evaluate(given, {}) for _ in range(200)]
    assert isinstance(results[0], PolicyResult)
    last = results[-1]
    assert isinstance(last, Unresolved)
    assert last.evaluation is not None
    assert verdict(last.evaluation()) == verdict(results[0])


def test_policies_that_allow_share_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for which no time is left are evaluated elsewhere."""
    hooks = []
    for number in range(20):
        policy = bound("object.data.a.replace('x', 'y').replace('y', 'z').size() == 1000").policy
        binding = read(read_validating_binding, {"policyName": "p", "validationActions": ["Deny"]}, "b")
        hooks.append(as_webhook(replace(policy, name=f"p{number:02}"), [binding]))
    given = policy_input(a="x" * 1000)
    # A policy takes the whole time.
    monkeypatch.setattr(fast_allow, "_STEPS_PER_S", 1e12)
    evaluation = Evaluation(Selection("validate", hooks), given.request, SPACE)
    evaluation.start()
    assert len(evaluation.outcomes) == 1
    while not evaluation.done:
        for task in evaluation.take_condition_tasks():
            assert isinstance(task, LongEvaluation)
            evaluation.complete_condition_task(task, task())
    assert [type(one.verdict) for one in evaluation.outcomes] == [Allowed] * 20


def test_a_long_evaluation_runs_elsewhere_with_the_same_result() -> None:
    numbers = json.dumps(list(range(20)))
    dear = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, a + b + c < 57)))"
    policy = bound({"expression": dear, "message": "too much"})
    result = policy.evaluate(policy_input(), {})
    assert isinstance(result, Unresolved)
    assert result.evaluation is not None
    denied = verdict(result.evaluation())
    assert isinstance(denied, Denied)
    assert denied.message.endswith("denied request: too much")


def test_a_policy_waits_for_the_decisions_of_the_authorizer() -> None:
    policy = bound("authorizer.path('/healthz').check('get').allowed()")
    result = policy.evaluate(policy_input(), {})
    assert isinstance(result, Unresolved)
    (check,) = result.checks
    for allowed in (True, False):
        found = verdict(policy.evaluate(policy_input(), {check: AccessDecision(allowed)}))
        assert isinstance(found, Allowed if allowed else Denied)


class Unread:
    """Parameters of a cluster that have not been shown by a watch: a ``Params`` and its ``ParamObjects``."""

    is_namespaced = True
    roles = None

    def of(self, kind: ParamKind, paths: Paths) -> Unread:
        assert (kind, paths) == (ParamKind("v1", "ConfigMap"), frozenset({("data", "a")}))
        return self

    def get(self, namespace: str, name: str) -> Any:
        raise UnreadParamsError(ParamLookup("v1", "ConfigMap", namespace, name))

    def select(self, namespace: str, selector: Selector) -> Any:
        raise AssertionError("no binding has a selector")

    def seen(self, namespace: str, name: str) -> Any:
        raise AssertionError("no expression reads objects")

    def count(self, namespace: str) -> int:
        raise AssertionError("no expression reads objects")

    def bytes_of(self, namespace: str, name: str = "") -> int:
        raise AssertionError("no expression reads objects")


def reading_params(files: FixedParams) -> ValidatingPolicyInForce:
    policy = read(
        read_validating_policy,
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": RULES},
            "validations": [{"expression": "params.data.a == 'b'"}],
        },
    )
    ref = {"name": "x", "parameterNotFoundAction": "Deny"}
    spec = {"policyName": "p", "validationActions": ["Deny"], "paramRef": ref}
    return ValidatingPolicyInForce(policy, [read(read_validating_binding, spec, "b")], files)


def test_a_policy_waits_for_parameters_of_the_cluster() -> None:
    policy = reading_params(FixedParams([]))
    assert policy.cluster_kind == ("v1", "ConfigMap")
    given = policy_input()
    given.params = Unread()
    (lookup,) = unresolved(policy.evaluate(given, {})).lookups
    assert lookup == ParamLookup("v1", "ConfigMap", "default", "x")
    for found, expected in (
        (FoundParam({"data": {"a": "b"}}), Allowed),
        (FoundParam({"data": {"a": "c"}}), Denied),
        (FoundParam(), Denied),
        (FoundParam(error="the watch is gone"), Denied),
    ):
        given.found_params = {lookup: found}
        assert isinstance(verdict(policy.evaluate(given, {})), expected)


def unresolved(result: PolicyAnswer) -> Unresolved:
    assert isinstance(result, Unresolved), result
    return result


def test_parameters_in_files_are_not_taken_from_the_cluster() -> None:
    metadata = {"name": "x", "namespace": "default"}
    files = FixedParams([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}])
    policy = reading_params(files)
    assert policy.cluster_kind is None
    given = policy_input()
    given.params = Unread()
    assert isinstance(verdict(policy.evaluate(given, {})), Allowed)


def test_equal_parameters_have_the_same_digest() -> None:
    def made(data: dict[str, str]) -> str:
        metadata = {"name": "x", "namespace": "default"}
        return FixedParams([{"apiVersion": "v1", "kind": "C", "metadata": metadata, "data": data}]).digest

    assert made({"a": "1", "b": "2"}) == made({"b": "2", "a": "1"}) != made({"a": "1", "b": "3"})


def test_a_refused_policy_fails_by_its_failure_policy() -> None:
    for failure_policy, expected in (("Fail", Denied), ("Ignore", Failed)):
        plain = bound("true", failurePolicy=failure_policy)
        policy = ValidatingPolicyInForce(plain.policy, plain.bindings, refusal="it is broken")
        found = verdict(policy.evaluate(policy_input(), {}))
        assert isinstance(found, expected)
        assert "it is broken" in (found.message if isinstance(found, Denied) else found.cause)


@pytest.mark.slow
def test_all_expressions_of_a_policy_share_one_budget() -> None:
    numbers = json.dumps(list(range(16)))
    dear = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, {numbers}.all(d, a + b + c + d >= %d))))"
    policy = bound(*(dear % -number for number in range(30)))
    result = policy.evaluate(policy_input(), {})
    assert isinstance(result, Unresolved)
    assert result.evaluation is not None
    denied = verdict(result.evaluation())
    assert isinstance(denied, Denied)
    assert denied.message.endswith(OUT_OF_BUDGET)


def test_an_ignored_error_is_a_failure_with_the_warnings_of_the_rest() -> None:
    policy = bound(
        "object.data.none == 'x'",
        {"expression": "false", "message": "w"},
        actions=("Warn",),
        failurePolicy="Ignore",
    )
    result = policy.evaluate(policy_input(a="1"), {})
    assert isinstance(result, PolicyResult)
    assert isinstance(result.verdict, Failed)
    assert "no such key: none" in result.verdict.cause
    assert isinstance(result.reported, Allowed)
    (warning,) = result.reported.warnings
    assert warning.endswith("with binding 'b': w")


def test_the_namespace_has_to_be_known_if_an_expression_uses_it() -> None:
    unknown = policy_input()
    unknown.namespace = None
    for uses in (
        bound("namespaceObject != null"),
        bound({"expression": "false", "messageExpression": "string(namespaceObject.metadata.name)"}),
        bound("variables.a", variables=[{"name": "a", "expression": "namespaceObject == null"}]),
    ):
        failed = verdict(uses.evaluate(unknown, {}))
        assert isinstance(failed, Failed)
        assert 'namespace "default" not found' in failed.cause
    assert isinstance(verdict(bound("true").evaluate(unknown, {})), Allowed)
    assert isinstance(verdict(bound("false").evaluate(unknown, {})), Denied)


EXPRESSIONS = st.sampled_from(
    [
        "true",
        "false",
        "object.data.a == '1'",
        "object.data.none == '1'",
        "has(object.data.none)",
        "variables.n > 1",
        "variables.broken == 1",
        "namespaceObject.metadata.name == 'default'",
        "request.operation == 'CREATE'",
    ]
)
MESSAGES = st.sampled_from([{}, {"message": "m"}, {"messageExpression": "'n is ' + string(variables.n)"}])
VARIABLES = [
    {"name": "n", "expression": "int(object.data.a)"},
    {"name": "broken", "expression": "int(object.data.none)"},
]


@given(
    validations=st.lists(st.tuples(EXPRESSIONS, MESSAGES), min_size=1, max_size=5),
    failure_policy=st.sampled_from(["Fail", "Ignore"]),
    actions=st.sampled_from([("Deny",), ("Warn",), ("Audit",), ("Deny", "Audit"), ("Warn", "Audit")]),
    value=st.sampled_from(["1", "2", "x"]),
)
def test_the_event_loop_and_the_thread_decide_alike(
    validations: list[tuple[str, dict[str, str]]], failure_policy: str, actions: tuple[str, ...], value: str
) -> None:
    listed = [{"expression": expression, **message} for expression, message in validations]
    policy = bound(*listed, actions=actions, failurePolicy=failure_policy, variables=VARIABLES)
    brief = policy.evaluate(policy_input(a=value), {})
    long = policy.run_type(policy, policy_input(a=value), {}, Allowance(is_brief=False)).result()
    assert isinstance(brief, PolicyResult)
    assert isinstance(long, PolicyResult)
    assert (brief.verdict, brief.reported) == (long.verdict, long.reported)
    denials = brief.verdict.message.split("\n") if isinstance(brief.verdict, Denied) else []
    assert len(denials) <= len(validations) * ("Deny" in actions)
    reported = brief.reported
    assert reported is not None
    if actions == ("Warn", "Audit"):
        audited = dict(reported.audit_annotations).get("validation_failure", "[]")
        assert len(reported.warnings) == len(orjson.loads(audited))


def test_variables_that_take_long_are_evaluated_elsewhere_too() -> None:
    numbers = json.dumps(list(range(16)))
    dear = f"{numbers}.all(a, {numbers}.all(b, a + b >= 0))"
    variables = [{"name": name, "expression": dear} for name in "abcdefgh"]
    policy = bound(" && ".join(f"variables.{name}" for name in "abcdefgh"), variables=variables)
    result = policy.evaluate(policy_input(), {})
    assert isinstance(result, Unresolved)
    assert result.evaluation is not None
    assert isinstance(verdict(result.evaluation()), Allowed)


def test_an_evaluation_leaves_nothing_to_the_garbage_collector() -> None:
    policy = bound("variables.n > 0", variables=[{"name": "n", "expression": "int(object.data.a)"}])
    gc.disable()
    try:
        for value in ("1", "0"):
            policy.evaluate(policy_input(a=value), {})
        assert not [one for one in gc.get_objects() if isinstance(one, LazyVariables)]
    finally:
        gc.enable()


@pytest.mark.parametrize("value", ["1", "3"])
@pytest.mark.parametrize("is_matched", [True, False])
def test_a_policy_that_allows_is_settled_fast(value: str, *, is_matched: bool) -> None:
    """The fast way finds out that a policy allows the request, or leaves the decision to the other way."""
    policy = bound("variables.n < 2", variables=[{"name": "n", "expression": "int(object.data.a)"}])
    selector = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
    spec = {"policyName": "p", "validationActions": ["Deny"], "matchResources": selector}
    bindings = [read(read_validating_binding, spec, "b")]
    webhook = as_webhook(policy.policy, bindings)
    space = Namespace("default", {"team": "a" if is_matched else "b"}, SPACE.json)
    given = policy_input(a=value)
    evaluation = Evaluation(Selection("validate", [webhook]), given.request, space)
    evaluation.start()
    assert evaluation.done
    verdicts = [(type(one.verdict), one.evaluated_s is not None) for one in evaluation.outcomes]
    assert verdicts == ([(Allowed if value == "1" else Denied, True)] if is_matched else [])
    given.namespace = space
    fast_s = ValidatingPolicyInForce(policy.policy, bindings).allow_fast(given)
    assert (fast_s is not None) is (value == "1")


@pytest.mark.parametrize(
    "match",
    [
        {"objectSelector": {"matchLabels": {"team": "a"}}},
        {
            "excludeResourceRules": [
                {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
            ]
        },
    ],
)
def test_the_fast_way_leaves_bindings_that_may_not_match(match: dict[str, Any]) -> None:
    spec = {"policyName": "p", "validationActions": ["Deny"], "matchResources": match}
    bindings = [read(read_validating_binding, spec, "b")]
    assert ValidatingPolicyInForce(bound("true").policy, bindings).allow_fast(policy_input()) is None


def test_the_fast_way_needs_a_namespace_only_for_its_variable() -> None:
    unknown = policy_input()
    unknown.namespace = None
    assert bound("true").allow_fast(unknown) is not None
    assert bound("namespaceObject == null || true").allow_fast(unknown) is None


def test_bindings_of_one_parameter_share_an_evaluation() -> None:
    policy = bound("object.data.a == '1'", {"expression": "false", "message": "no"})
    specs = [{"policyName": "p", "validationActions": ["Deny"]}] * 3
    bindings = [read(read_validating_binding, spec, name) for spec, name in zip(specs, "cab", strict=True)]
    found = verdict(ValidatingPolicyInForce(policy.policy, bindings).evaluate(policy_input(a="1"), {}))
    assert isinstance(found, Denied)
    assert [line.split("'")[3] for line in found.message.split("\n")] == ["a", "b", "c"]
