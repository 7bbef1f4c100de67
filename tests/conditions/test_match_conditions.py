"""matchConditions have the results that they have in the API server."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.pure.cel.compile import compile_condition
from gateway.pure.cel.errors import InvalidExpression
from gateway.pure.conditions.match_conditions import CompiledConditions
from gateway.pure.core.condition_state import ConditionState
from gateway.pure.core.conditions import AccessCheck, AccessDecision, ConditionInput, Excluded, Unresolved
from gateway.pure.core.verdict import Failed, FailureReason
from tests.cel.expressions import EXPRESSIONS

if TYPE_CHECKING:
    from gateway.pure.core.conditions import Evaluated

REVIEWS = Path(__file__).parent.parent / "reviews"
RESULTS = {"true": "request.operation != ''", "false": "request.operation == ''", "error": "object.none == 1"}


def request(name: str = "pod-create-6kb.json", **changed: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((REVIEWS / name).read_text())["request"]
    return {**document, **changed}


def judge(
    *expressions: str,
    document: dict[str, Any] | None = None,
    answers: dict[AccessCheck, AccessDecision] | None = None,
) -> Evaluated:
    document = document or request()
    conditions = CompiledConditions([compile_condition(f"c{n}", each) for n, each in enumerate(expressions)])
    seen = ConditionInput(document, document.get("object"), document.get("oldObject"))
    result = conditions.evaluate(seen, answers or {})
    if isinstance(result, Unresolved) and result.evaluation is not None:
        return result.evaluation()
    return result


def test_the_webhooks_of_a_review_share_the_time_of_the_event_loop() -> None:
    document = request()
    dear = [compile_condition("c", "[" + "1, " * 700 + "2].all(x, isIP('1.2.3.' + string(x)))")]
    state, elsewhere = ConditionState(), []
    for turn in range(2):
        state.clear()
        # The object has changed in the second turn.
        seen = ConditionInput(document, document["object"], None)
        for index in range(100):
            result = state.evaluate(index, CompiledConditions(dear), seen)
            if isinstance(result, Unresolved):
                assert result.evaluation is not None
                assert result.evaluation() is None
                elsewhere.append(100 * turn + index)
            else:
                assert result is None
    assert elsewhere == list(range(elsewhere[0], 200))
    assert 1 < elsewhere[0] < 100


def test_a_thousand_short_conditions_are_evaluated_on_the_event_loop() -> None:
    document, state = request(), ConditionState()
    seen = ConditionInput(document, document["object"], None)
    short = CompiledConditions([compile_condition("c", "object.metadata.labels.size() < 100")])
    assert {state.evaluate(index, short, seen) for index in range(1000)} == {None}


@pytest.mark.parametrize("results", list(itertools.product(RESULTS, repeat=3)), ids="-".join)
def test_a_false_condition_excludes_and_an_error_fails_only_without_one(results: tuple[str, ...]) -> None:
    result = judge(*(RESULTS[each] for each in results))

    if "false" in results:
        first = results.index("false")
        assert result == Excluded(f"c{first}", results[:first].count("error"))
    elif "error" in results:
        text = f"expression '{RESULTS['error']}' resulted in error: no such key: none"
        assert result == Failed(FailureReason.CONDITION, text, 403)
    else:
        assert result is None


def test_distinct_errors_are_listed_and_equal_ones_are_one() -> None:
    result = judge("object.a == 1", "object.b == 1", "object.a == 1")

    assert isinstance(result, Failed)
    assert result.cause == (
        "[expression 'object.a == 1' resulted in error: no such key: a,"
        " expression 'object.b == 1' resulted in error: no such key: b]"
    )


def test_no_conditions_exclude_nothing() -> None:
    assert judge() is None


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("object.a == 1", "no such key: a"),
        ("object['a'] == 1", "no such key: a"),
        ("object.spec.containers[7] == 1", "index out of bounds: 7"),
        ("1 / (1 - 1) == 1", "division by zero"),
        ("1 % (1 - 1) == 1", "modulus by zero"),
        ("9223372036854775807 + 1 == 0", "integer overflow"),
        ("uint(object.spec.containers.size() - 5) == 1u", "unsigned integer overflow"),
        ("object.kind + 1 == 1", "no such overload"),
        ("object.kind < 1", "no such overload"),
        ("int(object.kind) == 1", "type conversion error from 'string' to 'int'"),
        ("object.metadata ? true : false", "no such overload"),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("request.subResource == ''", "no such key: subResource"),
        ("namespaceObject.metadata.name == ''", "no such key: metadata"),
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
    ],
)
def test_errors_have_the_wording_of_the_api_server(expression: str, problem: str) -> None:
    assert judge(expression) == Failed(
        FailureReason.CONDITION, f"expression '{expression}' resulted in error: {problem}", 403
    )


def test_request_has_the_original_resource_and_the_converted_kind() -> None:
    document = request(
        kind={"group": "apps", "version": "v1", "kind": "Deployment"},
        requestKind={"group": "extensions", "version": "v1beta1", "kind": "Deployment"},
        resource={"group": "apps", "version": "v1", "resource": "deployments"},
        requestResource={"group": "extensions", "version": "v1beta1", "resource": "deployments"},
    )

    assert judge("request.kind.group == 'apps'", document=document) is None
    assert judge("request.resource.group == 'extensions'", document=document) is None


def test_objects_are_the_current_ones() -> None:
    document = request()
    conditions = CompiledConditions([compile_condition("c", "object.changed && oldObject == null")])

    assert conditions.evaluate(ConditionInput(document, {"changed": True}, None), {}) is None
    assert isinstance(conditions.evaluate(ConditionInput(document, document["object"], None), {}), Failed)


@pytest.mark.parametrize(
    "expression",
    ["request.uid == ''", "request.object == null", "request.oldObject == null", "params == null"],
)
def test_variables_of_policies_do_not_compile(expression: str) -> None:
    with pytest.raises(ValueError, match=r"undefined field|undeclared reference"):
        compile_condition("c", expression)


def test_the_budget_of_the_webhook_comes_before_a_false_condition() -> None:
    check = "authorizer.path('/a').check('get').allowed() || authorizer.path('/b').check('get').allowed()"
    answers = {
        AccessCheck(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()): AccessDecision()
        for path in ("/a", "/b")
        for spec in [{**_subject(), "nonResourceAttributes": {"path": path, "verb": "get"}}]
    }

    assert judge("false", check, check, check, answers=answers) == Excluded("c0")
    assert judge("false", check, check, check, check, answers=answers) == Failed(
        FailureReason.CONDITION,
        "validation failed due to running out of cost budget, no further validation rules will be run",
        403,
    )


def test_the_third_check_of_an_expression_exceeds_the_budget() -> None:
    checks = " || ".join(f"authorizer.path('/{n}').check('get').allowed()" for n in range(3))
    result = judge(checks, answers=_all_denied(checks))

    assert isinstance(result, Failed)
    assert result.cause.endswith("resulted in error: operation cancelled: actual cost limit exceeded")


def _subject(document: dict[str, Any] | None = None) -> dict[str, Any]:
    user = (document or request())["userInfo"]
    found = {
        "user": user["username"],
        "uid": user.get("uid"),
        "groups": user.get("groups"),
        "extra": user.get("extra"),
    }
    return {name: value for name, value in found.items() if value}


def _all_denied(expression: str) -> dict[AccessCheck, AccessDecision]:
    """Return all decisions that the conditions need."""
    answers: dict[AccessCheck, AccessDecision] = {}
    while isinstance(result := judge(expression, answers=answers), Unresolved):
        answers.update(dict.fromkeys(result.checks, AccessDecision()))
    return answers


@pytest.mark.parametrize(
    ("expression", "spec"),
    [
        (
            (
                "authorizer.group('apps').resource('deployments').subresource('scale').namespace('a').name('b')"
                ".check('update').allowed()"
            ),
            {
                "resourceAttributes": {
                    "group": "apps",
                    "version": "*",
                    "resource": "deployments",
                    "subresource": "scale",
                    "namespace": "a",
                    "name": "b",
                    "verb": "update",
                }
            },
        ),
        (
            "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=a,x!=b').check('list').allowed()",
            {
                "resourceAttributes": {
                    "version": "*",
                    "resource": "pods",
                    "verb": "list",
                    "fieldSelector": {
                        "requirements": [
                            {"key": "spec.nodeName", "operator": "In", "values": ["a"]},
                            {"key": "x", "operator": "NotIn", "values": ["b"]},
                        ]
                    },
                }
            },
        ),
        (
            (
                "authorizer.group('').resource('pods').labelSelector('a=b,c notin (e, d),!f,g')"
                ".check('list').allowed()"
            ),
            {
                "resourceAttributes": {
                    "version": "*",
                    "resource": "pods",
                    "verb": "list",
                    "labelSelector": {
                        "requirements": [
                            {"key": "a", "operator": "In", "values": ["b"]},
                            {"key": "c", "operator": "NotIn", "values": ["d", "e"]},
                            {"key": "f", "operator": "DoesNotExist"},
                            {"key": "g", "operator": "Exists"},
                        ]
                    },
                }
            },
        ),
        (
            "authorizer.group('').resource('pods').labelSelector('a in').check('list').allowed()",
            {"resourceAttributes": {"version": "*", "resource": "pods", "verb": "list"}},
        ),
        (
            "authorizer.path('/healthz').check('get').allowed()",
            {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}},
        ),
    ],
)
def test_a_check_is_the_access_review_of_the_requesting_user(expression: str, spec: dict[str, Any]) -> None:
    result = judge(expression)

    assert isinstance(result, Unresolved)
    (check,) = result.checks
    assert json.loads(check.spec) == {**_subject(), **spec}
    assert judge(expression, answers={check: AccessDecision(allowed=True)}) is None
    assert judge(expression, answers={check: AccessDecision()}) == Excluded("c0")


def test_a_check_of_a_service_account_has_its_groups() -> None:
    result = judge("authorizer.serviceAccount('shop', 'web').path('/a').check('get').allowed()")

    assert isinstance(result, Unresolved)
    assert json.loads(result.checks[0].spec) == {
        "user": "system:serviceaccount:shop:web",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:shop"],
        "nonResourceAttributes": {"path": "/a", "verb": "get"},
    }


def test_the_requested_resource_is_the_original_one() -> None:
    document = request("deployment-update.json")
    document["requestResource"] = {"group": "extensions", "version": "v1beta1", "resource": "deployments"}
    result = judge("authorizer.requestResource.check('deploy').allowed()", document=document)

    assert isinstance(result, Unresolved)
    assert json.loads(result.checks[0].spec)["resourceAttributes"] == {
        "group": "extensions",
        "version": "*",
        "resource": "deployments",
        "namespace": document["namespace"],
        "name": document["name"],
        "verb": "deploy",
    }


def test_an_expression_reads_the_decision() -> None:
    expression = (
        "authorizer.path('/a').check('get').reason() == 'why'"
        " && authorizer.path('/a').check('get').error() == 'broken'"
    )
    result = judge(expression)
    assert isinstance(result, Unresolved)

    for error in ("error", "evaluation_error"):
        answer = AccessDecision(reason="why", **{error: "broken"})  # type: ignore[arg-type]
        assert judge(expression, answers={result.checks[0]: answer}) is None
    answer = AccessDecision(allowed=True, reason="why", evaluation_error="broken")
    assert judge(expression, answers={result.checks[0]: answer}) == Excluded("c0")


def test_checks_that_do_not_matter_are_not_made() -> None:
    check = "authorizer.path('/a').check('get').allowed()"

    assert judge(f"true || {check}") is None
    assert judge(f"{check} || true") is None
    assert judge("false", check) == Excluded("c0")
    assert isinstance(judge(check, "false"), Excluded | Unresolved)


def test_all_checks_are_made_at_once() -> None:
    result = judge(
        "authorizer.path('/a').check('get').allowed() && authorizer.path('/b').check('get').allowed()",
        "authorizer.path('/c').check('get').allowed() || authorizer.path('/a').check('get').allowed()",
    )

    assert isinstance(result, Unresolved)
    asked = [json.loads(check.spec)["nonResourceAttributes"]["path"] for check in result.checks]
    assert asked == ["/a", "/b", "/c"]


@pytest.mark.parametrize(
    ("expression", "needs"),
    [("authorizer.path('/').check('get').allowed()", True), ("object != null", False), ("true", False)],
)
def test_needs_authorizer_is_true_of_expressions_that_use_it(expression: str, needs: bool) -> None:
    assert CompiledConditions([compile_condition("c", expression)]).needs_authorizer is needs


def test_whether_a_namespace_is_excluded_is_found_for_any_expression() -> None:
    """It may not be certain, but it is no error, however many variables macros have."""
    nested = "[1].all(a, b, [2].all(c, d, [3].exists(e, e == a + b + c + d)))"
    for expression in (*EXPRESSIONS, nested, f"!({nested})"):
        try:
            conditions = CompiledConditions([compile_condition("c", expression)])
        except InvalidExpression:
            continue
        for operation in ("CREATE", "UPDATE", "DELETE", "CONNECT"):
            conditions.is_excluded("default", operation)
    assert not CompiledConditions([compile_condition("c", nested)]).is_excluded("default", "CREATE")
    assert CompiledConditions([compile_condition("c", f"!({nested})")]).is_excluded("default", "CREATE")
