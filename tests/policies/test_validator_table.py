"""Decisions, messages, reasons, annotations and conditions of one policy, as documents with a review.

Source of the tables: k8s.io/apiserver pkg/admission/plugin/policy/validating/validator_test.go,
admission_test.go; plugin/webhook/matchconditions/matcher_test.go.
"""

# ruff: noqa: E501 - tables

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.pure.core.verdict import Denied
from tests.core.build import POD
from tests.policies.documents import binding, decided, policy

if TYPE_CHECKING:
    from pathlib import Path

    Json = dict[str, Any]

FALSE, OTHER, ERROR = "object.metadata.name == 'x'", "object.metadata.name == 'y'", "object.none == 1"
FAILED, FAILED_OTHER = f"failed expression: {FALSE}", f"failed expression: {OTHER}"
BROKEN = f"expression '{ERROR}' resulted in error: no such key: none"
INVALID, FORBIDDEN, TOO_LARGE = (422, "Invalid"), (403, "Forbidden"), (413, "RequestEntityTooLarge")
ALLOWED = (0, "")
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
FAIL, IGNORE = {"failurePolicy": "Fail"}, {"failurePolicy": "Ignore"}


def false(expression: str = FALSE, **fields: str) -> Json:
    return {"expression": expression, "reason": "Forbidden", **fields}


# Policy, validations, status, text of each denial.
DECISIONS: dict[str, tuple[Json, list[Json | str], tuple[int, str], list[str]]] = {
    "true and an error": (FAIL, ["true", ERROR], INVALID, [BROKEN]),
    "errors, ignored": (IGNORE, [ERROR, ERROR], ALLOWED, []),
    "errors": (FAIL, [ERROR, ERROR], INVALID, [BROKEN, BROKEN]),
    "an ignored error and a denial": (IGNORE, [ERROR, FALSE], INVALID, [FAILED]),
    "the reason of the first": (FAIL, [false(), false(OTHER, reason="RequestEntityTooLarge")], FORBIDDEN, [FAILED, FAILED_OTHER]),
    "the reason of the first, another": (FAIL, [false(OTHER, reason="RequestEntityTooLarge"), false()], TOO_LARGE, [FAILED_OTHER, FAILED]),
    "a reason of an error does not count": (FAIL, [false(ERROR)], INVALID, [BROKEN]),
    "one of two has an expression": ({}, [false(message="kept"), false(message="replaced", messageExpression="'made'")], FORBIDDEN, ["kept", "made"]),
    "an expression that fails, no message": ({}, [false(messageExpression="string(object.none)")], FORBIDDEN, [FAILED]),
    "an expression that is too long": ({}, [false(message="kept", messageExpression="string(object.long) + 'x'")], FORBIDDEN, ["kept"]),
    "spaces around an expression and lines at its end": ({}, [false(messageExpression="' made \\n'")], FORBIDDEN, ["made"]),
}  # fmt: skip
LONG = {**POD, "long": "x" * 5 * 1024}


@pytest.mark.parametrize("case", DECISIONS)
def test_decisions_of_validations(tmp_path: Path, case: str) -> None:
    spec, validations, status, denials = DECISIONS[case]
    answer = decided(tmp_path, [policy(validations=validations, **spec), binding()], {"object": LONG})
    assert (answer.status, answer.denials) == (status, denials)
    ignored = spec is IGNORE and not denials
    assert len(answer.failures) == (1 if ignored else 0)
    assert not ignored or answer.failures[0].count(BROKEN) == validations.count(ERROR)
    assert not answer.decision.warnings


def test_a_message_expression_of_five_kibibytes_is_used(tmp_path: Path) -> None:
    made = policy(validations=[false(message="short", messageExpression="string(object.long)")])
    answer = decided(tmp_path, [made, binding()], {"object": LONG})
    found = answer.evaluation.outcomes[0].verdict
    assert isinstance(found, Denied)
    assert found.message.endswith(f": {LONG['long']}")


def costs(calls: int) -> str:
    """A true expression that costs about 90,000 for each of the calls."""
    return " && ".join(["!object.big.contains('y')"] * calls)


BIG = {**POD, "big": "x" * 900_000}


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
@pytest.mark.parametrize(
    ("validations", "denials"),
    [
        # The budget of 10,000,000 is one of all validations: one decision replaces all others.
        ([FALSE, *[costs(10)] * 12, OTHER], [OUT_OF_BUDGET]),
        # What the validations leave is for all messageExpressions: then no decision has its own message.
        ([*[costs(11)] * 10, false(messageExpression=f"string({costs(11)})")], [f"failed messageExpression: {OUT_OF_BUDGET}"] * 11),
        # The 1,000,000 of one expression: an error of its own.
        ([f"{costs(12)} || true", FALSE], [f"expression '{costs(12)} || true' resulted in error: operation cancelled: actual cost limit exceeded", FAILED]),
    ],
)  # fmt: skip
def test_budgets(
    tmp_path: Path, validations: list[Json | str], denials: list[str], failure_policy: str
) -> None:
    made = policy(validations=validations, failurePolicy=failure_policy)
    answer = decided(tmp_path, [made, binding()], {"object": BIG})
    if failure_policy == "Fail":
        assert answer.denials == denials
    else:
        expected = [each for each in denials if each == FAILED]
        assert answer.denials == expected
        assert expected or answer.failures


# Policy, annotations, status, denials, published values.
ANNOTATIONS: dict[str, tuple[Json, list[str], tuple[int, str], list[str], dict[str, str]]] = {
    "an error, by default": ({"validations": []}, [f"string({ERROR})", "'a value'"], INVALID, [f"expression 'string({ERROR})' resulted in error: no such key: none"], {"k1": "a value"}),
    "out of budget": ({"validations": [FALSE]}, ["string(" + costs(10) + ")"] * 12, INVALID, [OUT_OF_BUDGET], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", ANNOTATIONS)
@pytest.mark.parametrize("action", ["Deny", "Audit"])
def test_audit_annotations(tmp_path: Path, case: str, action: str) -> None:
    spec, expressions, status, denials, published = ANNOTATIONS[case]
    listed = [{"key": f"k{number}", "valueExpression": each} for number, each in enumerate(expressions)]
    documents = [policy(auditAnnotations=listed, **spec), binding(validationActions=[action])]
    answer = decided(tmp_path, documents, {"object": BIG})
    found = {
        key.removeprefix("p."): value
        for key, value in answer.decision.audit_annotations.items()
        if key.startswith("p.k")
    }
    assert found == published
    # An error of an annotation denies whatever the actions are; other failures go by them.
    softened = action == "Audit" and (FAILED in denials or OUT_OF_BUDGET in denials)
    assert (answer.status, answer.denials) == ((ALLOWED, []) if softened else (status, denials))


# Conditions, failurePolicy, whether the policy is evaluated, error.
T, F, E, E2 = "object != null", "object == null", ERROR, "object.other == 1"
E2_TEXT = f"expression '{E2}' resulted in error: no such key: other"
CONDITIONS: dict[str, tuple[list[str], Json, bool, bool]] = {
    "true, an error, false": ([T, E, F, T, E2], {}, False, False),
    "true and errors, by default": ([T, E, T, E2], {}, False, True),
    "true and errors": ([T, E, T, E2], FAIL, False, True),
    "true and errors, ignored": ([T, E, T, E2], IGNORE, False, True),
    "out of budget": ([costs(10)] * 4, FAIL, False, True),
    "out of budget before false": ([*[costs(10)] * 4, F], FAIL, False, True),
}


@pytest.mark.parametrize("case", CONDITIONS)
@pytest.mark.parametrize("validation", ["false", ERROR])
def test_match_conditions(tmp_path: Path, case: str, validation: str) -> None:
    conditions, spec, is_evaluated, is_error = CONDITIONS[case]
    listed = [{"name": f"c{number}", "expression": each} for number, each in enumerate(conditions)]
    made = policy(validations=[validation], matchConditions=listed, **spec)
    answer = decided(tmp_path, [made, binding()], {"object": BIG})
    denial = BROKEN if validation == ERROR else "failed expression: false"
    if is_evaluated:
        assert answer.denials == [denial]
    elif is_error and spec is not IGNORE:
        (error,) = answer.denials
        if case.startswith("out of budget"):
            assert error == OUT_OF_BUDGET
        else:
            assert error == (f"[{BROKEN}, {E2_TEXT}]" if E2 in conditions else BROKEN)
    else:
        assert not answer.denials
        assert bool(answer.failures) is is_error


def failures(answer: Any, name: str = "p") -> Any:
    return json.loads(answer.decision.audit_annotations.get(f"{name}.validation_failure", "[]"))


def failure(message: str, actions: list[str], name: str = "p", of: str = "b") -> Json:
    return {
        "message": message,
        "policy": name,
        "binding": of,
        "expressionIndex": 0,
        "validationActions": actions,
    }


SORRY = {"expression": "false", "message": "sorry"}


def test_the_action_audit_of_two_policies(tmp_path: Path) -> None:
    audit = {"validationActions": ["Audit"]}
    documents = [
        policy("p1", validations=[SORRY]),
        binding("b1", "p1", **audit),
        policy("p2", validations=[{"expression": "false", "message": "cannot"}]),
        binding("b2", "p2", **audit),
    ]
    answer = decided(tmp_path, documents)
    assert answer.status == ALLOWED
    assert not answer.decision.warnings
    assert failures(answer, "p1") == [failure("sorry", ["Audit"], "p1", "b1")]
    assert failures(answer, "p2") == [failure("cannot", ["Audit"], "p2", "b2")]


def test_values_of_an_annotation_that_differ_are_joined(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    params = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": each, "namespace": "default"}}
        for each in names
    ]
    made = policy(
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        validations=[],
        auditAnnotations=[
            {"key": "joined", "valueExpression": "params.metadata.name == 'two' ? 'special' : 'normal'"},
            {"key": "excluded", "valueExpression": "null"},
            {"key": "fails", "valueExpression": "string(params.none)"},
        ],
    )
    bindings = [
        binding(f"b-{each}", paramRef={"name": each, "parameterNotFoundAction": "Deny"}) for each in names
    ]
    answer = decided(tmp_path, [made, *bindings, *params])
    annotations = answer.decision.audit_annotations
    assert {key for key in annotations if key.startswith("p.")} == {"p.joined"}
    assert sorted(annotations["p.joined"].split(", ")) == ["normal", "special"]
    assert answer.denials == ["expression 'string(params.none)' resulted in error: no such key: none"] * 3
