"""Kyverno's ValidatingPolicy: what it decides, and with which words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.pure.core.conditions import ConditionInput, Unresolved
from gateway.pure.core.policy import PolicyInput
from gateway.pure.core.review import decode
from gateway.pure.kyverno.validating import KyvernoValidatingPolicy
from tests.core.build import body, document
from tests.kyverno.documents import ANYTHING, PODS, condition, exception, kyverno, validating
from tests.policies.documents import NOW, decided, written

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Json = dict[str, Any]

FAILS = "object.none == 1"
"""Has no value."""
NO_KEY = "no such key: none"
NO_TEXT = "type conversion error from 'null_type' to 'string'"
DELETE: dict[str, Any] = {"operation": "DELETE", "object": None, "oldObject": {"metadata": {"name": "a"}}}


def message(folder: Path, documents: Sequence[Json] | Json, members: Json | None = None) -> str | None:
    """Return the text of the refusal, or None if the request is allowed."""
    listed = [documents] if isinstance(documents, dict) else documents
    status = decided(folder, listed, members).decision.status
    if status is None:
        return None
    assert (status.code, status.reason, status.causes) == (400, "", ())
    return status.message


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (validating("true"), None),
        (validating("false"), "Policy p failed: CEL expression validation failed at index 0"),
        (validating("true", "false"), "Policy p failed: CEL expression validation failed at index 1"),
        # The first failure is the only one, whatever follows.
        (validating({"expression": "false", "message": "one"}, FAILS), "Policy p failed: one"),
        (validating(FAILS, "false"), f"Policy p error: error: {NO_KEY}"),
        (validating("true", FAILS, failurePolicy="Ignore"), f"Policy p error: error: {NO_KEY}"),
        (
            validating({"expression": "false", "message": "one\ntwo"}),
            "Policy p failed: one\ntwo",
        ),
        (
            validating({"expression": "false", "message": "m", "messageExpression": "'a' + 'b'"}),
            "Policy p failed: ab",
        ),
        (
            validating({"expression": "false", "message": "m", "messageExpression": "string(object.none)"}),
            f"Policy p failed: failed to evaluate message expression: {NO_KEY}",
        ),
        (
            validating({"expression": "false", "message": "m", "messageExpression": "''"}),
            "Policy p failed: CEL expression validation failed at index 0",
        ),
        # Errors of variables are not wrapped.
        (
            validating("variables.v == 1", variables=[{"name": "v", "expression": "object.none"}]),
            f"Policy p error: error: {NO_KEY}",
        ),
        (validating("false", matchConditions=condition("false")), None),
        (
            validating("true", matchConditions=condition(FAILS)),
            f"Policy p error: failed to load context: {NO_KEY}",
        ),
        (validating("false", matchConditions=condition(FAILS), failurePolicy="Ignore"), None),
        (
            validating(
                "false",
                matchConditions=[{"name": "a", "expression": FAILS}, {"name": "b", "expression": "false"}],
            ),
            None,
        ),
        (
            validating("true", auditAnnotations=[{"key": "k", "valueExpression": "string(object.none)"}]),
            f"Policy p error: failed to load context: failed to evaluate auditAnnotation 'k': {NO_KEY}",
        ),
        (
            validating("false", auditAnnotations=[{"key": "k", "valueExpression": "string(object.none)"}]),
            f"Policy p error: error: failed to evaluate auditAnnotation 'k': {NO_KEY}",
        ),
        (
            validating("true", auditAnnotations=[{"key": "k", "valueExpression": "null"}]),
            "Policy p error: failed to load context: failed to convert auditAnnotation 'k' expression: "
            + NO_TEXT,
        ),
        (validating("false", evaluation={"admission": {"enabled": False}}), None),
    ],
)
def test_the_outcome_of_a_policy(policy: Json, expected: str | None, tmp_path: Path) -> None:
    assert message(tmp_path, [policy, validating("true", name="other")]) == expected


def test_the_time_is_that_of_the_review(tmp_path: Path) -> None:
    """It is the same in all of the policy, and no clock is read."""
    for seconds, expected in ((0, None), (1, "Policy p failed: later")):
        limit = f"timestamp({int(NOW) + seconds})"
        policy = validating(
            {"expression": f"time.now() >= {limit}", "message": "later"}, "time.now() == time.now()"
        )
        assert message(tmp_path, policy) == expected


def test_absent_objects_are_empty(tmp_path: Path) -> None:
    policy = validating(
        "object == {}", "!has(object.metadata)", "oldObject.metadata.name == 'a'", "request.object == null"
    )
    assert message(tmp_path, policy, DELETE) is None
    policy = validating("oldObject == {}", "request.oldObject == null", "request.object == object")
    assert message(tmp_path, policy) is None


def test_actions(tmp_path: Path) -> None:
    text = "Policy p failed: no"
    false = {"expression": "false", "message": "no"}

    def answer(*actions: str) -> tuple[str | None, tuple[str, ...]]:
        decision = decided(tmp_path, [validating(false, validationActions=list(actions))]).decision
        return (decision.status.message if decision.status else None), decision.warnings

    assert answer() == (text, ())
    assert answer("Deny") == (text, ())
    assert answer("Deny", "Warn") == (text, (text,))
    assert answer("Warn") == (None, (text,))
    assert answer("Warn", "Audit") == (None, (text,))
    assert answer("Deny", "Audit") == (text, ())
    assert answer("Audit") == (None, ())


def test_audit_is_the_mode_of_the_entry(tmp_path: Path) -> None:
    found = decided(tmp_path, [validating("false", validationActions=["Audit"])])
    (outcome,) = found.evaluation.outcomes
    assert (outcome.mode, outcome.would_reject) == ("Audit", True)


@pytest.mark.parametrize("action", ["Audit", "Warn", "Deny"])
def test_the_annotation_of_the_gateway_decides_on_the_mode(action: str, tmp_path: Path) -> None:
    spec = validating("false", validationActions=[action])["spec"]
    key = "admission-gateway.io/mode"
    policy = kyverno("ValidatingPolicy", "p", spec)
    policy["metadata"]["annotations"] = {key: "Enforce"}
    assert message(tmp_path, policy) is not None
    policy["metadata"]["annotations"] = {key: "enforce"}
    written(tmp_path, [policy])
    with pytest.raises(ConfigError, match='found "enforce", expected Enforce, Warn, Audit or Shadow'):
        load([tmp_path])


def test_a_namespaced_policy_is_for_its_namespace(tmp_path: Path) -> None:
    inside, outside = validating("false", namespace="default"), validating("false", namespace="other")
    assert message(tmp_path, [inside, outside]) == (
        "Policy p failed: CEL expression validation failed at index 0"
    )
    assert message(tmp_path, [outside]) is None
    cluster_scoped = {"namespace": "", "object": {"metadata": {"name": "a"}}}
    assert message(tmp_path, [inside], cluster_scoped) is None


@pytest.mark.parametrize(
    ("name", "generate_name", "is_refused"),
    [("web", None, True), ("web-1", None, False), ("", "web-", True), ("", "we", False), ("", None, False)],
)
def test_names_of_resources(name: str, generate_name: str | None, is_refused: bool, tmp_path: Path) -> None:
    policy = validating("false", matchConstraints={"resourceRules": [{**ANYTHING, "resourceNames": ["web"]}]})
    metadata = {"name": name} if name else {"generateName": generate_name} if generate_name else {}
    members = {"name": name, "object": {"metadata": metadata}}
    assert (message(tmp_path, policy, members) is not None) == is_refused


def test_excluded_resources(tmp_path: Path) -> None:
    match = {"resourceRules": [ANYTHING], "excludeResourceRules": [PODS]}
    assert message(tmp_path, validating("false", matchConstraints=match)) is None


class TestExceptions:
    FALSE = validating("false", variables=[])

    @pytest.mark.parametrize(
        ("exceptions", "expected"),
        [
            ([exception()], None),
            ([exception(matchConditions=condition("object.metadata.name == 'a'"))], None),
            ([exception(matchConditions=condition("false"))], "failed: CEL expression validation failed"),
            ([exception(of="other")], "failed: CEL expression validation failed"),
            ([exception(kind="NamespacedValidatingPolicy")], "failed: CEL expression validation failed"),
            ([exception(images=["x"])], "failed: CEL expression validation failed"),
            ([exception(matchConditions=condition(FAILS))], f"error: failed to load context: {NO_KEY}"),
            # Once the policy is left out, a later error does not count.
            ([exception("a"), exception("b", matchConditions=condition(FAILS))], None),
            ([exception(expiresAt="2020-01-01T00:00:00Z")], "failed: CEL expression validation failed"),
        ],
    )
    def test_an_exception_leaves_the_policy_out(
        self, exceptions: list[Json], expected: str | None, tmp_path: Path
    ) -> None:
        found = message(
            tmp_path, [self.FALSE, *exceptions], {"name": "a", "object": {"metadata": {"name": "a"}}}
        )
        assert found is None if expected is None else found is not None and f"Policy p {expected}" in found

    def test_ignore_takes_an_error_for_false(self, tmp_path: Path) -> None:
        policy = validating("false", failurePolicy="Ignore")
        found = message(tmp_path, [policy, exception(matchConditions=condition(FAILS))])
        assert found == "Policy p failed: CEL expression validation failed at index 0"

    def test_images_and_values_are_variables(self, tmp_path: Path) -> None:
        policy = validating("exceptions.allowedImages == ['a', 'b'] && exceptions.allowedValues == ['c']")
        exceptions = [exception("1", images=["a"]), exception("2", images=["b"], allowedValues=["c"])]
        assert message(tmp_path, [policy, *exceptions]) is None
        assert message(tmp_path, [policy]) is not None


class TestAutogen:
    POLICY = validating(
        {"expression": "object.spec.hostNetwork == false", "message": "object.spec.hostNetwork is true"},
        matchConstraints={"resourceRules": [PODS]},
    )

    @pytest.mark.parametrize(
        ("kind", "path"),
        [
            ("Deployment", "spec.template.spec"),
            ("StatefulSet", "spec.template.spec"),
            ("Job", "spec.template.spec"),
            ("CronJob", "spec.jobTemplate.spec.template.spec"),
        ],
    )
    def test_controllers_of_pods_are_reviewed(self, kind: str, path: str, tmp_path: Path) -> None:
        spec: Any = {"hostNetwork": True}
        for member in reversed(path.split(".")):
            spec = {member: spec}
        group = "batch" if kind in ("Job", "CronJob") else "apps"
        named = {"group": group, "version": "v1"}
        resource = {**named, "resource": f"{kind.lower()}s"}
        members = {
            "kind": {**named, "kind": kind},
            "requestKind": {**named, "kind": kind},
            "resource": resource,
            "requestResource": resource,
            "object": {"metadata": {"name": "a"}, **spec},
        }
        found = message(tmp_path, self.POLICY, members)
        assert found == f"Policy p failed: object.{path}.hostNetwork is true"

    def test_a_wrong_variant_is_a_problem(self, tmp_path: Path) -> None:
        # "object.spec" in a text that is compared makes no wrong expression, a variable of this name does.
        policy = validating("object.spec.x && true", matchConstraints={"resourceRules": [PODS]})
        written(tmp_path, [policy])
        assert len(load([tmp_path]).validating) == 3


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (validating("1"), "spec.validations[0].expression: 1:1: must evaluate to bool but got int"),
        (validating("true", evaluation={"mode": "JSON"}), "spec.evaluation.mode: found JSON"),
        (validating("true", unknown=1), "spec.unknown: "),
        (
            kyverno("ImageValidatingPolicy", "p", {}),
            "found ImageValidatingPolicy, which the gateway cannot run",
        ),
        (kyverno("GeneratingPolicy", "p", {}), "found GeneratingPolicy, which the gateway cannot run"),
        (kyverno("NamespacedDeletingPolicy", "p", {}), "found NamespacedDeletingPolicy, which the gateway"),
        (kyverno("Mutating", "p", {}), "found the unknown kind"),
        (
            kyverno("NamespacedValidatingPolicy", "p", validating("true")["spec"]),
            "metadata.namespace: is required",
        ),
        (validating("true", validationActions=["deny"]), 'validationActions[0]: found "deny", expected Deny'),
        (validating("true", matchConstraints={}), "spec.matchConstraints.resourceRules: is required"),
        (exception(policyRefs=[]), "spec.policyRefs: is required with at least one entry"),
        (
            validating("variables.v", variables=[]),
            "undeclared reference to 'variables'",
        ),
    ],
)
def test_problems_of_documents(document: Json, expected: str, tmp_path: Path) -> None:
    written(tmp_path, [document])
    with pytest.raises(ConfigError) as caught:
        load([tmp_path])
    assert expected in "\n".join(map(str, caught.value.problems))


def test_a_name_is_used_once(tmp_path: Path) -> None:
    written(tmp_path, [validating("true"), validating("false")])
    with pytest.raises(ConfigError, match='found "p" a second time'):
        load([tmp_path])


def test_an_exception_of_no_policy_is_a_warning(tmp_path: Path) -> None:
    written(tmp_path, [validating("true"), exception(of="q")])
    assert any('there is no ValidatingPolicy "q"' in str(each) for each in load([tmp_path]).warnings)


@given(st.lists(st.sampled_from(["true", "false", FAILS]), min_size=1, max_size=6))
def test_the_first_that_is_not_true_decides(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    found = message(tmp_path_factory.mktemp("policies"), validating(*texts))
    first = next((index for index, each in enumerate(texts) if each != "true"), None)
    if first is None:
        assert found is None
    elif texts[first] == "false":
        assert found == f"Policy p failed: CEL expression validation failed at index {first}"
    else:
        assert found == f"Policy p error: error: {NO_KEY}"


@pytest.mark.parametrize("field", ["validations", "variables", "matchConditions", "auditAnnotations"])
def test_lists_of_expressions_are_bounded(tmp_path: Path, field: str) -> None:
    """The time to compile them grows with their square."""
    entries = [
        {"name": f"a{each}", "key": f"a{each}", "expression": "true", "valueExpression": "'x'"}
        for each in range(1001)
    ]
    known = {"validations": ("expression",), "auditAnnotations": ("key", "valueExpression")}
    names = known.get(field, ("name", "expression"))
    listed = [{name: each[name] for name in names} for each in entries]
    policy = validating()
    policy["spec"][field] = listed
    written(tmp_path, [policy])
    with pytest.raises(ConfigError) as caught:
        load([tmp_path])
    (problem,) = caught.value.problems
    assert (problem.field, problem.message) == (f"spec.{field}", "found 1001, expected at most 1000")


def test_conditions_of_all_exceptions_have_one_budget(tmp_path: Path) -> None:
    """Each of them alone has less than the budget of a policy; an author may write thousands."""
    items = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    long = f"{items}.all(a, {items}.all(b, {items}.all(c, {items}.all(d, a + b + c + d > 0)))) && false"
    exceptions = [exception(f"e{each:03}", matchConditions=condition(long)) for each in range(300)]
    found = message(tmp_path, [validating("true", name="p"), *exceptions])
    assert found is not None
    assert "operation cancelled: actual cost limit exceeded" in found


def test_few_of_the_policies_are_named_that_an_exception_lacks(tmp_path: Path) -> None:
    refs = [{"name": f"p{each:03}", "kind": "ValidatingPolicy"} for each in range(100)]
    lacking = kyverno("PolicyException", "e", {"policyRefs": refs}, namespace="x")
    written(tmp_path, [validating("true"), lacking])
    (warning,) = load([tmp_path]).warnings
    assert '"p009"' in warning.message
    assert '"p010"' not in warning.message


@pytest.mark.parametrize("field", ["validations", "matchConditions"])
def test_many_expressions_are_for_the_thread(tmp_path: Path, field: str) -> None:
    """Each of them costs next to nothing; the API server allows a fifth of them."""
    listed = [{"name": f"a{each}", "expression": "object.a != null || true"} for each in range(1000)]
    for one in listed if field == "validations" else ():
        del one["name"]
    made = validating("true")
    made["spec"][field] = listed
    written(tmp_path, [made])
    (hook,) = load([tmp_path]).validating
    assert isinstance(hook.policy, KyvernoValidatingPolicy)
    asked = decode(body(document()))
    seen = PolicyInput(ConditionInput(asked.document, asked.object, asked.old_object), asked, None)
    answer = hook.policy.evaluate(seen, {})
    assert isinstance(answer, Unresolved)
    assert answer.evaluation is not None


@pytest.mark.parametrize(
    ("lengths", "sent"),
    [
        ((3000, 1096), (3000, 1096)),
        # One character more than the API server passes on.
        ((3000, 1097), (256, 256)),
        ((255,) * 16 + (300,), (255,) * 16),
    ],
)
def test_long_warnings_are_cut_where_the_api_server_cuts_them(
    tmp_path: Path, lengths: tuple[int, ...], sent: tuple[int, ...]
) -> None:
    policies = [
        validating(
            {"expression": "false", "message": "w" * (length - len("Policy p00 failed: "))},
            name=f"p{number:02}",
            validationActions=["Warn"],
        )
        for number, length in enumerate(lengths)
    ]
    found = decided(tmp_path, policies).decision
    assert found.allowed
    assert tuple(map(len, found.warnings)) == sent
