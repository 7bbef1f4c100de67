"""Kyverno's ClusterPolicies and Policies with rules in CEL decide as in Kyverno.

``cluster_reviews.jsonl`` has what Kyverno's own engine of version 1.19.0 answers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.merge.read import read
from gateway.config.yaml.documents import read_documents
from gateway.pure.admission_policies.evaluation import Allowance
from gateway.pure.core.conditions import ConditionInput, NotMatched, PolicyResult, Unresolved
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.policy import PolicyInput
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import Allowed, Denied, Failed, FailureReason
from gateway.pure.kyverno.cluster_policy import KyvernoClusterPolicy
from gateway.pure.kyverno.cluster_rules import ClusterPolicy
from gateway.pure.kyverno.wildcards import name_pattern
from tests.config.documents import problems_of
from tests.core import build

if TYPE_CHECKING:
    import re

Json = dict[str, Any]

ALL = Allowance(is_brief=False)
REVIEWS = [
    json.loads(line) for line in Path(__file__).with_name("cluster_reviews.jsonl").read_text().splitlines()
]


def loaded(*documents: Json) -> KyvernoClusterPolicy:
    """The policy of *documents*."""
    texts = (read_documents(Path("f.json"), json.dumps(each)) for each in documents)
    (hook,) = read(one for found in texts for one in found).webhooks
    assert isinstance(hook.policy, KyvernoClusterPolicy)
    return hook.policy


def reviewed(request: Json, labels: dict[str, str]) -> PolicyInput:
    """The input of a policy for *request* in a namespace with *labels*."""
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    decoded = decode(json.dumps(body).encode())
    name = request.get("namespace", "")
    namespace = None
    if name and request["kind"]["kind"] != "Namespace":
        namespace = Namespace(name, labels, json.dumps({"metadata": {"name": name}}).encode())
    conditions = ConditionInput(decoded.document, decoded.object, decoded.old_object)
    return PolicyInput(conditions, decoded, namespace)


@pytest.mark.parametrize("review", REVIEWS, ids=range(len(REVIEWS)))
def test_reviews_are_answered_as_by_kyverno(review: Json) -> None:
    policy, answer = loaded(review["Policy"]), review["answer"]
    policy_input = reviewed(review["Request"], review["Labels"])
    results = policy.rule_results(policy_input, ALL, {})
    assert [[each.rule, each.status, each.message] for each in results] == (answer["rules"] or [])


PODS: Json = {"resources": {"kinds": ["Pod"]}}


def pods(action: str, **spec: Any) -> Json:
    """A policy for Pods with two rules, of which one fails for ``POD``."""
    rules = [
        {
            "name": name,
            "match": {"any": [PODS]},
            "validate": {"cel": {"expressions": [{"expression": expression, "message": f"no {name}: x"}]}},
        }
        for name, expression in (("host", "has(object.spec.hostname)"), ("node", "has(object.spec.nodeName)"))
    ]
    spec = {"validationFailureAction": action, "rules": rules, **spec}
    return {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": spec}


POD: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"hostname": "b"}}
REQUEST: Json = {
    "uid": "u",
    "kind": {"group": "", "version": "v1", "kind": "Pod"},
    "resource": {"group": "", "version": "v1", "resource": "pods"},
    "operation": "CREATE",
    "namespace": "n",
    "name": "a",
    "object": POD,
    "userInfo": {"username": "ann"},
}


def verdict(policy: KyvernoClusterPolicy) -> Allowed | Denied:
    found = policy.evaluate(reviewed(REQUEST, {}), {})
    assert isinstance(found, PolicyResult)
    assert isinstance(found.verdict, Allowed | Denied)
    return found.verdict


def test_rules_that_enforce_refuse_with_kyvernos_text() -> None:
    policy = loaded(pods("Enforce"))
    found = verdict(policy)
    text = "\n\nresource Pod/n/a was blocked due to the following policies \n\np:\n  node: 'no node: x'\n"
    assert isinstance(found, Denied)
    assert (found.code, found.message) == (400, text)
    assert policy.webhook().rollout is None


def test_rules_that_audit_have_the_mode_audit_or_warn() -> None:
    rollout = loaded(pods("Audit")).webhook().rollout
    assert rollout is not None
    assert rollout.mode == "Audit"
    warning = loaded(pods("Audit", emitWarning=True))
    assert verdict(warning) == Allowed(b"", ("policy p.node: no node: x",))
    assert warning.webhook().rollout is None


def test_names_of_preconditions_are_free() -> None:
    policy = pods("Enforce")
    policy["spec"]["rules"][1]["celPreconditions"] = [{"name": "Is it so?", "expression": "false"}]
    assert [each.status for each in loaded(policy).rule_results(reviewed(REQUEST, {}), ALL, {})] == [
        "pass",
        "skip",
    ]


def test_the_namespace_of_a_cluster_policy_is_removed() -> None:
    policy = pods("Enforce")
    policy["metadata"]["namespace"] = "x"
    found = loaded(policy)
    assert (found.policy.name, found.namespace) == ("p", "")
    assert isinstance(verdict(found), Denied)


def test_the_expressions_of_a_rule_are_bounded() -> None:
    policy = pods("Enforce")
    policy["spec"]["rules"][0]["validate"]["cel"]["expressions"] = [{"expression": "true"}] * 1001
    (problem,) = problems_of(policy)
    assert problem == (
        "spec.rules[0].validate.cel.expressions",
        "found 1001, expected at most 1000",
    )


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
def test_match_conditions_without_a_value_are_for_the_failure_policy(failure_policy: str) -> None:
    """As in the API server, which evaluates them before it calls Kyverno."""
    conditions = [{"name": "a", "expression": "object.spec.absent == 1"}]
    webhook = {"matchConditions": conditions, "failurePolicy": failure_policy}
    policy = loaded(pods("Enforce", webhookConfiguration=webhook))
    assert not policy.can_allow_fast
    found = policy.evaluate(reviewed(REQUEST, {}), {})
    assert isinstance(found, PolicyResult)
    assert isinstance(found.verdict, Failed)
    assert found.verdict.reason is FailureReason.CONDITION
    assert found.verdict.cause.endswith("resulted in error: no such key: absent")
    assert policy.webhook().failure_policy == failure_policy
    # For kyverno test, the policy has no result.
    assert policy.rule_results(reviewed(REQUEST, {}), ALL, {}) == []


@pytest.mark.parametrize(
    ("expression", "field", "message"),
    [
        ("1 +", "matchConditions[0].expression", "1:4: "),
        ("variables.a", "matchConditions[0].expression", "1:1: undeclared reference"),
        ("authorizer.path('/').check('get').allowed()", "matchConditions", "uses authorizer"),
    ],
)
def test_match_conditions_are_those_of_webhooks(expression: str, field: str, message: str) -> None:
    conditions = [{"name": "a", "expression": expression}]
    found = problems_of(pods("Enforce", webhookConfiguration={"matchConditions": conditions}))
    assert [path for path, _ in found] == [f"spec.webhookConfiguration.{field}"]
    assert found[0][1].startswith(message)


def excepting(name: str, *rules: str) -> Json:
    """A PolicyException of *rules*."""
    spec = {"exceptions": [{"policyName": "p", "ruleNames": list(rules)}], "match": {"any": [PODS]}}
    metadata = {"name": name, "namespace": "n"}
    return {"apiVersion": "kyverno.io/v2", "kind": "PolicyException", "metadata": metadata, "spec": spec}


def test_a_pattern_is_read_once_however_many_exceptions_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, each exception was compared with each rule: a thousand of both took seconds."""
    read_patterns: list[str] = []

    def counted(text: str) -> re.Pattern[str]:
        read_patterns.append(text)
        return name_pattern(text)

    monkeypatch.setattr("gateway.config.loaders.cluster_exception.name_pattern", counted)
    names = [f"e{number:03}" for number in range(100)]
    policy = loaded(pods("Enforce"), *(excepting(name, "host", "x", "*o*", "?ode") for name in names)).policy
    assert isinstance(policy, ClusterPolicy)
    assert sorted(read_patterns) == ["*o*", "?ode"]
    for each in policy.cel_rules:
        assert [one.id for one in each.own.exceptions] == [f"n/{name}" for name in names]
        assert each.for_workloads is not None
        assert [one.id for one in each.for_workloads.exceptions] == [f"n/{name}" for name in names]


def test_the_names_in_an_exception_are_bounded() -> None:
    exception = excepting("e", *["a"] * 1000)
    exception["spec"]["exceptions"] *= 6
    (problem,) = problems_of(exception)
    assert problem == ("spec.exceptions", "found 6000 names of rules, expected at most 5000")


@pytest.mark.parametrize("is_wild", [False, True])
def test_many_subjects_of_many_groups_do_not_stop_the_event_loop(*, is_wild: bool) -> None:
    """Who writes a policy may also be who has the groups. Names without wildcards are looked up."""
    policy = pods("Enforce")
    star = "*" if is_wild else ""
    subjects = [{"kind": "Group", "name": f"s{number}{star}"} for number in range(1000)]
    for rule in policy["spec"]["rules"]:
        rule["match"]["any"][0]["subjects"] = subjects
    user = {"username": "ann", "groups": [f"g{number}" for number in range(20_000)]}
    answer = loaded(policy).evaluate(reviewed({**REQUEST, "userInfo": user}, {}), {})
    # What takes too long goes on in a thread.
    assert isinstance(answer, Unresolved if is_wild else NotMatched)


@pytest.mark.parametrize(("key", "is_quick"), [("k", True), ("*", False), ("k*", False)])
def test_many_annotations_do_not_stop_the_event_loop(key: str, *, is_quick: bool) -> None:
    policy = pods("Enforce")
    for rule in policy["spec"]["rules"]:
        wanted = {key if number == 0 else f"{key}{number}": "v" for number in range(900)}
        rule["match"]["any"] = [
            {"resources": {"kinds": ["Pod"], "annotations": {name: value}}} for name, value in wanted.items()
        ][:100]
    annotations = {f"a{number}": "x" for number in range(20_000)}
    pod = {**POD, "metadata": {"name": "a", "annotations": annotations}}
    answer = loaded(policy).evaluate(reviewed({**REQUEST, "object": pod}, {}), {})
    assert isinstance(answer, NotMatched if is_quick else Unresolved)


def test_filters_that_take_long_run_in_a_thread_and_end() -> None:
    """The writer of an object chooses the value that a pattern of the author reads."""
    pattern = "*a" * 100
    rules = [
        {
            "name": f"r{number}",
            "match": {"any": [{"resources": {"kinds": ["Pod"], "annotations": {"a": pattern}}}]},
            "validate": {"cel": {"expressions": [{"expression": "true"}]}},
        }
        for number in range(5)
    ]
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"validationFailureAction": "Enforce", "rules": rules},
    }
    written = loaded(policy)
    pod = {"metadata": {"name": "a", "namespace": "default", "annotations": {"a": "b" * 200_000}}}
    asked = reviewed(json.loads(build.request(object=pod).json), {})
    assert written.allow_fast(asked) is None
    answer = written.evaluate(asked, {})
    assert isinstance(answer, Unresolved)
    assert answer.evaluation is not None
    found = answer.evaluation()
    assert isinstance(found, PolicyResult | NotMatched)
