"""A policy within a review: the tasks that it needs first, its budgets, and the two ways to run it."""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cel.lazy import LazyVariables
from gateway.config.fields import Fields, Report
from gateway.config.policies import read_validating_binding, read_validating_policy
from gateway.core.conditions import AccessDecision, ConditionInput, Decided, Unresolved
from gateway.core.namespace import Namespace
from gateway.core.review import decode
from gateway.core.verdict import Allowed, Denied, Failed
from gateway.object_review import RequestOptions, request_for, review_of
from gateway.policies.evaluation import OUT_OF_BUDGET
from gateway.policies.params import FixedParams
from gateway.policies.policy import BoundPolicy

if TYPE_CHECKING:
    from gateway.core.conditions import ConditionResult

RULES = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
SPACE = Namespace("default", {}, b'{"metadata":{"name":"default"}}')


def read(reader: Any, spec: dict[str, Any], name: str = "p") -> Any:
    report = Report("test")
    found = reader(Fields({"metadata": {"name": name}, "spec": spec}, "", report))
    assert not report.found, report.found
    return found


def bound(
    *validations: dict[str, Any] | str, actions: tuple[str, ...] = ("Deny",), **spec: Any
) -> BoundPolicy:
    listed = [{"expression": each} if isinstance(each, str) else each for each in validations]
    policy = read(
        read_validating_policy,
        {"matchConstraints": {"resourceRules": RULES}, "validations": listed, **spec},
    )
    binding = read(read_validating_binding, {"policyName": "p", "validationActions": list(actions)}, "b")
    return BoundPolicy(policy, [binding], FixedParams([]))


def condition_input(**data: str) -> ConditionInput:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    request = decode(review_of(request_for(config_map, RequestOptions())))
    made = ConditionInput(request.document, request.object, request.old_object)
    made.request, made.namespace = request, SPACE
    return made


def verdict(result: ConditionResult) -> Any:
    assert isinstance(result, Decided), result
    return result.verdict


def test_a_long_evaluation_runs_elsewhere_with_the_same_result() -> None:
    numbers = json.dumps(list(range(20)))
    dear = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, a + b + c < 57)))"
    policy = bound({"expression": dear, "message": "too much"})
    result = policy.evaluate(condition_input(), {})
    assert isinstance(result, Unresolved)
    assert result.evaluation is not None
    denied = verdict(result.evaluation())
    assert isinstance(denied, Denied)
    assert denied.message.endswith("denied request: too much")


def test_a_policy_waits_for_the_decisions_of_the_authorizer() -> None:
    policy = bound("authorizer.path('/healthz').check('get').allowed()")
    result = policy.evaluate(condition_input(), {})
    assert isinstance(result, Unresolved)
    (check,) = result.checks
    for allowed in (True, False):
        found = verdict(policy.evaluate(condition_input(), {check: AccessDecision(allowed)}))
        assert isinstance(found, Allowed if allowed else Denied)


@pytest.mark.slow
def test_all_expressions_of_a_policy_share_one_budget() -> None:
    numbers = json.dumps(list(range(16)))
    dear = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, {numbers}.all(d, a + b + c + d >= %d))))"
    policy = bound(*(dear % -number for number in range(30)))
    result = policy.evaluate(condition_input(), {})
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
    result = policy.evaluate(condition_input(a="1"), {})
    assert isinstance(result, Decided)
    assert isinstance(result.verdict, Failed)
    assert "no such key: none" in result.verdict.cause
    assert isinstance(result.reported, Allowed)
    (warning,) = result.reported.warnings
    assert warning.endswith("with binding 'b': w")


def test_a_policy_matches_by_its_exclusions_and_the_selectors_of_its_bindings() -> None:
    excluded = [{**RULES[0], "resourceNames": ["c"]}]
    match = {"resourceRules": RULES, "excludeResourceRules": excluded}
    assert verdict(bound("false", matchConstraints=match).evaluate(condition_input(), {})) is None
    unknown = condition_input()
    unknown.namespace = None
    failed = verdict(bound("true").evaluate(unknown, {}))
    assert isinstance(failed, Failed)
    assert 'namespace "default" not found' in failed.cause


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
    brief = policy.evaluate(condition_input(a=value), {})
    long = policy._timed(condition_input(a=value), {}, is_brief=False)
    assert isinstance(brief, Decided)
    assert isinstance(long, Decided)
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
    result = policy.evaluate(condition_input(), {})
    assert isinstance(result, Unresolved)
    assert result.evaluation is not None
    assert isinstance(verdict(result.evaluation()), Allowed)


def test_an_evaluation_leaves_nothing_to_the_garbage_collector() -> None:
    policy = bound("variables.n > 0", variables=[{"name": "n", "expression": "int(object.data.a)"}])
    gc.disable()
    try:
        for value in ("1", "0"):
            policy.evaluate(condition_input(a=value), {})
        assert not [one for one in gc.get_objects() if isinstance(one, LazyVariables)]
    finally:
        gc.enable()
