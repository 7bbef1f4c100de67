"""Rules in Kyverno's own language become entries that call a worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.merge.read import read
from gateway.config.yaml.documents import read_documents
from gateway.pure.core.webhook import PolicyRef, WorkerRef
from gateway.pure.kyverno.cluster_policy import KyvernoClusterPolicy
from tests.config.documents import problems_of
from tests.kyverno.test_cluster_policy import ALL, REQUEST, reviewed

if TYPE_CHECKING:
    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook

Json = dict[str, Any]

PODS: Json = {"any": [{"resources": {"kinds": ["Pod"]}}]}
PATTERN: Json = {"pattern": {"spec": {"hostNetwork": False}}}
MUTATE: Json = {"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}
CEL: Json = {"cel": {"expressions": [{"expression": "has(object.spec.nodeName)"}]}}
POOL: Json = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "WorkerPool",
    "metadata": {"name": "kyverno"},
    "spec": {"targets": ["127.0.0.1:1"]},
}


def engines(**kyverno: Any) -> Json:
    """The settings with the pool of the worker."""
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "policies": {"engines": {"kyverno": {"pool": "kyverno", **kyverno}}},
    }


def validate(name: str = "r", *, match: Json = PODS, rule: Json | None = None, **members: Any) -> Json:
    """A validating rule, by default with a pattern."""
    return {"name": name, "match": match, "validate": members or PATTERN, **(rule or {})}


def mutate(name: str = "m", *, match: Json = PODS, **members: Any) -> Json:
    """A mutating rule."""
    return {"name": name, "match": match, "mutate": members or MUTATE}


def policy(*rules: Json, name: str = "p", namespace: str = "", mode: str = "", **spec: Any) -> Json:
    """A ClusterPolicy, or a Policy with a *namespace*, which enforces."""
    metadata: Json = {"name": name, **({"namespace": namespace} if namespace else {})}
    if mode:
        metadata["annotations"] = {"admission-gateway.io/mode": mode}
    spec = {"validationFailureAction": "Enforce", "rules": list(rules), **spec}
    kind = "Policy" if namespace else "ClusterPolicy"
    return {"apiVersion": "kyverno.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def exception(*rules: str, of: str = "p", **spec: Any) -> Json:
    """A PolicyException for *rules* of one policy."""
    spec = {"match": PODS, "exceptions": [{"policyName": of, "ruleNames": list(rules)}], **spec}
    metadata = {"name": "e", "namespace": "n"}
    return {"apiVersion": "kyverno.io/v2", "kind": "PolicyException", "metadata": metadata, "spec": spec}


def config_of(*documents: Json) -> Config:
    """The configuration of *documents*."""
    texts = (read_documents(Path("f.json"), json.dumps(each)) for each in documents)
    return read(one for found in texts for one in found)


def entries(*documents: Json, **kyverno: Any) -> dict[str, Webhook]:
    """The entries of *documents* with a worker, by name."""
    found = config_of(engines(**kyverno), POOL, *documents).webhooks
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}


def texts_of(*documents: Json) -> list[str]:
    """The problems of *documents*, each with its field."""
    return [f"{field}: {message}" for field, message in problems_of(*documents)]


def worker_of(hook: Webhook) -> WorkerRef:
    assert isinstance(hook.client, WorkerRef)
    return hook.client


def test_each_rule_is_an_entry() -> None:
    found = entries(policy(validate(), mutate(), validate("s", deny={})))
    assert list(found) == ["p/m", "p/r", "p/s"]
    assert [one.phase for one in found.values()] == ["mutate", "validate", "validate"]
    rule = found["p/r"]
    assert worker_of(rule) == WorkerRef(
        "kyverno", "p/r", b'{"action":"deny"}', kind="ClusterPolicy", has_own_words=True
    )
    assert (rule.configuration, rule.failure_policy, rule.timeout_s, rule.rollout) == ("p", "Fail", 10, None)
    assert worker_of(found["p/m"]).parameters == b""
    assert found["p/m"].reinvocation_policy == "IfNeeded"
    assert found["p/r"].reinvocation_policy == "Never"


def test_mutating_rules_are_in_the_order_of_policies_and_then_of_rules() -> None:
    found = entries(policy(mutate("b"), mutate("a"), name="q"), policy(mutate("z"), name="p"))
    assert list(found) == ["p/z", "q/b", "q/a"]


def test_a_policy_of_one_namespace_has_its_requests() -> None:
    found = entries(policy(validate(), namespace="n"))["n/p/r"]
    assert found.namespace == "n"
    assert found.namespace_selector.matches({"kubernetes.io/metadata.name": "n"})
    assert not found.namespace_selector.matches({"kubernetes.io/metadata.name": "m"})
    assert worker_of(found).kind == "Policy"


def test_rules_are_for_the_kinds_and_those_of_workloads() -> None:
    rule = entries(policy(validate()))["p/r"]
    resources = {(group, name) for one in rule.rules for group in one.api_groups for name in one.resources}
    assert {
        ("", "pods"),
        ("", "pods/ephemeralcontainers"),
        ("apps", "deployments"),
        ("batch", "cronjobs"),
    } <= (resources)
    assert {one.operations for one in rule.rules} == {("CONNECT", "CREATE", "DELETE", "UPDATE")}


def test_without_variants_rules_are_for_the_kinds_alone() -> None:
    rule = policy(validate())
    rule["metadata"]["annotations"] = {"pod-policies.kyverno.io/autogen-controllers": "none"}
    named = {"any": [{"resources": {"kinds": ["Pod"], "names": ["a"]}}]}
    patches = mutate(patchesJson6902="- {op: add, path: /a, value: b}")
    for one in (
        *(rule, policy(validate(match=named))),
        *(policy(patches), policy(mutate(), patches | {"name": "n"})),
    ):
        for found in entries(one).values():
            groups = {group for each in found.rules for group in each.api_groups}
            assert groups == {""}


def test_mutating_rules_are_for_creation_and_change() -> None:
    found = entries(policy(mutate()))["p/m"]
    assert {one.operations for one in found.rules} == {("CREATE", "UPDATE")}
    deletes = {"any": [{"resources": {"kinds": ["ConfigMap"], "operations": ["DELETE"]}}]}
    (rule,) = entries(policy(mutate(match=deletes)))["p/m"].rules
    assert (rule.operations, rule.resources) == (("DELETE",), ("configmaps",))


OVERRIDE: Json = {"action": "Enforce", "namespaces": ["prod-*"]}


@pytest.mark.parametrize(
    ("found", "mode", "parameters"),
    [
        (policy(validate()), None, b'{"action":"deny"}'),
        (policy(validate(), validationFailureAction="enforce"), None, b'{"action":"deny"}'),
        (policy(validate(), validationFailureAction="Audit"), "Audit", b'{"action":"deny"}'),
        (policy(validate(), validationFailureAction="Audit", emitWarning=True), None, b'{"action":"warn"}'),
        (policy(validate(**PATTERN, failureAction="Audit")), "Audit", b'{"action":"deny"}'),
        (policy(validate(), validationFailureActionOverrides=[OVERRIDE]), None, b""),
        (policy(validate(**PATTERN, failureActionOverrides=[OVERRIDE])), None, b""),
        (
            policy(validate(), validationFailureActionOverrides=[OVERRIDE], mode="Warn"),
            "Warn",
            b'{"action":"deny"}',
        ),
        (
            policy(validate(), validationFailureAction="Audit", mode="Enforce"),
            "Enforce",
            b'{"action":"deny"}',
        ),
        (policy(validate(), mode="Shadow"), "Shadow", b'{"action":"deny"}'),
    ],
)
def test_actions_become_modes(found: Json, mode: str | None, parameters: bytes) -> None:
    rule = entries(found)["p/r"]
    assert worker_of(rule).parameters == parameters
    assert (None if rule.rollout is None else rule.rollout.mode) == mode


def test_the_mode_of_mutating_rules_is_that_of_the_annotation() -> None:
    assert entries(policy(mutate(), validationFailureAction="Audit"))["p/m"].rollout is None
    audited = entries(policy(mutate(), mode="Audit"))["p/m"]
    assert audited.rollout is not None
    assert audited.rollout.mode == "Audit"
    assert worker_of(audited).parameters == b""


def test_settings_replace_what_the_policy_has() -> None:
    own: Json = {"failurePolicy": "Ignore", "timeoutSeconds": 3}
    found = policy(validate(), webhookTimeoutSeconds=20, webhookConfiguration=own)
    rule = entries(found)["p/r"]
    assert (rule.failure_policy, rule.timeout_s) == ("Ignore", 3)
    rule = entries(policy(validate(), webhookTimeoutSeconds=20))["p/r"]
    assert (rule.failure_policy, rule.timeout_s) == ("Fail", 20)
    rule = entries(found, failurePolicy="Fail", timeoutSeconds=7)["p/r"]
    assert (rule.failure_policy, rule.timeout_s) == ("Fail", 7)


def test_match_conditions_are_those_of_the_entries() -> None:
    conditions = [{"name": "c", "expression": "request.operation == 'CREATE'"}]
    rule = entries(policy(validate(), webhookConfiguration={"matchConditions": conditions}))["p/r"]
    assert rule.match_conditions is not None


def test_rules_in_cel_stay_in_the_gateway() -> None:
    found = entries(policy(validate("c", **CEL), validate()))
    assert list(found) == ["p", "p/r"]
    native = found["p"].policy
    assert isinstance(native, KyvernoClusterPolicy)
    results = native.rule_results(reviewed(REQUEST, {}), ALL, {})
    assert [(each.rule, each.status) for each in results] == [("c", "fail")]


@pytest.mark.parametrize("member", ["context", "preconditions"])
def test_rules_in_cel_with_jmespath_go_to_the_worker(member: str) -> None:
    rule = validate("c", **CEL, rule={member: [{"name": "a"}]})
    assert list(entries(policy(rule))) == ["p/c"]


def test_rules_that_belong_together_are_one_entry() -> None:
    found = entries(policy(validate("c", **CEL), validate(), applyRules="One"))
    assert list(found) == ["p"]
    assert worker_of(found["p"]).policy == "p"
    assert list(entries(policy(mutate(), applyRules="One"))) == ["p"]
    both = entries(policy(mutate(), validate(), applyRules="One"))
    assert {name: one.phase for name, one in both.items()} == {"p/mutation": "mutate", "p": "validate"}
    alone = entries(policy(validate("c", **CEL), applyRules="One"))
    assert isinstance(alone["p"].client, PolicyRef)


def test_rules_of_a_policy_that_belong_together_have_a_name_of_their_own() -> None:
    """A rule of a ClusterPolicy may have the name NAMESPACE/POLICY."""
    together = policy(validate(), mutate(), name="r", namespace="p", applyRules="One")
    found = entries(policy(validate()), together)
    assert list(found) == ["p/r/mutation", "p/r", "p/r/validation"]


@pytest.mark.parametrize("name", ["validation", "mutation"])
def test_a_name_of_the_workers_own_policies_is_refused(name: str) -> None:
    found = problems_of(engines(), POOL, policy(validate(), name=name, applyRules="One"))
    expected = (
        "expected another name with applyRules: One: the worker of Kyverno has all rules under this one"
    )
    assert found == [("metadata.name", f'found "{name}", {expected}')]
    assert list(entries(policy(validate(), name=name))) == [f"{name}/r"]
    assert list(entries(policy(validate(), name=name, namespace="n", applyRules="One"))) == [
        f"n/{name}/validation"
    ]


@pytest.mark.parametrize(
    ("name", "found"),
    [("a/b", '"a/b"'), ("two\nlines", r'"two\nlines"'), (" ", '" "'), ("x" * 64, "64 characters")],
)
def test_a_rule_needs_a_name_that_the_worker_can_have(name: str, found: str) -> None:
    problems = problems_of(engines(), POOL, policy(validate(name)))
    assert [field for field, _ in problems] == ["spec.rules[0].name"]
    assert problems[0][1].startswith(f"found {found}, expected")


def test_rules_of_the_worker_count_for_whether_there_are_rules_for_workloads() -> None:
    """Kyverno makes none if a rule of the policy names an object."""
    named = {"any": [{"resources": {"kinds": ["Pod"], "names": ["a"]}}]}
    template: Json = {"metadata": {}, "spec": {"containers": []}}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": template},
    }
    request = {
        **REQUEST,
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
        "object": workload,
    }
    for other, expected in ((validate(), ["autogen-c"]), (validate(match=named), [])):
        native = entries(policy(validate("c", **CEL), other))["p"].policy
        assert isinstance(native, KyvernoClusterPolicy)
        assert [each.rule for each in native.rule_results(reviewed(request, {}), ALL, {})] == expected


def test_without_a_worker_such_rules_are_refused() -> None:
    found = policy(validate(rule={"preconditions": {"all": []}}), mutate())
    where = "name its pool in policies.engines.kyverno of the GatewayConfiguration"
    language = "Kyverno's own language, which a worker evaluates"
    assert texts_of(found) == [
        f'{path}: {name} of the rule "{rule}" is {language}: {where}, or {instead}'
        for path, name, rule, instead in (
            ("spec.rules[0].preconditions", "preconditions", "r", "write celPreconditions"),
            ("spec.rules[0].validate.pattern", "pattern", "r", "write validate.cel"),
            ("spec.rules[1].mutate", "mutate", "m", "write a MutatingPolicy of policies.kyverno.io"),
        )
    ]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"generate": {"kind": "Secret"}}, 'generate of the rule "x" is Kyverno\'s own language, which the'),
        ({"verifyImages": [{}]}, "use a worker that verifies images"),
        ({"mutate": {"targets": [{}], **MUTATE}}, 'mutate.targets of the rule "x" is Kyverno\'s own'),
        ({"validate": {"manifests": {}}}, "use a worker that verifies them"),
        ({"validate": {"assert": {}}}, "Kyverno has ignored it since 1.19"),
    ],
)
def test_what_no_review_can_do_is_refused(rule: Json, message: str) -> None:
    found = policy(validate(), {"name": "x", "match": PODS, **rule})
    (problem,) = texts_of(engines(), POOL, found)
    assert message in problem


def test_a_rule_does_one_thing() -> None:
    (problem,) = texts_of(engines(), POOL, policy({**validate(), **mutate()}))
    assert problem.endswith("found mutate and validate, expected one of them in a rule")


def test_the_pool_has_to_exist() -> None:
    (problem,) = texts_of(engines(), policy(validate()))
    assert problem == 'policies.engines.kyverno.pool: there is no WorkerPool "kyverno"'


def test_roles_of_such_rules_are_found_by_the_worker() -> None:
    block = {"resources": {"kinds": ["Pod"]}, "clusterRoles": ["r"]}
    assert entries(policy(validate(match={"any": [block]})))


def test_exceptions_with_jmespath_are_for_rules_of_the_worker() -> None:
    conditions = {"all": [{"key": "a", "operator": "Equals", "value": "a"}]}
    mixed = policy(validate("c", **CEL), validate())
    assert entries(mixed, exception("r", conditions=conditions, podSecurity=[]))
    (problem,) = texts_of(engines(), POOL, mixed, exception("*", conditions=conditions))
    assert problem == (
        "spec.conditions: are JMESPath, which the gateway cannot run: use match, or an exception of the "
        'gateway; the rule "c" of p is in CEL, which the gateway evaluates'
    )
    (problem,) = texts_of(policy(validate("c", **CEL)), exception("c", conditions=conditions))
    assert problem.endswith(
        "for rules in Kyverno's own language name its pool in policies.engines.kyverno of the "
        "GatewayConfiguration"
    )
