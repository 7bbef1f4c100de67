"""Custom resources in a real API server: validation, effect on the gateway, and rights."""

from __future__ import annotations

import copy
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from deploy.monitoring import CHART_FILES
from gateway.config.merge.custom_resource import PLURALS, CustomResource, read_resource
from tests.e2e.objects import pod
from tests.e2e.setups import PODS, BehindGateway, deployed_account
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

ROOT_PATH = "/apis/admission-gateway.io/v1alpha1"
VALIDATING, MUTATING = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"
RESOURCES = [f"{plural}.admission-gateway.io" for plural in PLURALS.values()]
ACCOUNT = "admission-gateway"


@pytest.fixture(scope="module")
def defined(cluster: Cluster) -> Cluster:
    """The cluster with the definitions of deploy/."""
    applied = cluster.kubectl("apply", "--server-side", f"--filename={CHART_FILES / 'crds.yaml'}")
    assert applied.returncode == 0, applied.stderr
    cluster.wait_until_served(*RESOURCES)
    return cluster


@pytest.fixture(scope="module")
def account(defined: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kubeconfig of the service account of deploy/, with its roles and no others."""
    with deployed_account(defined, tmp_path_factory.mktemp("account"), "custom-resources.yaml") as kubeconfig:
        yield kubeconfig


def hook(name: str = "custom.e2e.test", pool: str = "scripted", **script: Any) -> dict[str, Any]:
    return {
        "name": name,
        "clientConfig": {"worker": {"pool": pool, "policy": json.dumps(script)}},
        "rules": [PODS],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def validating(*hooks: dict[str, Any], name: str = "custom") -> dict[str, Any]:
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": VALIDATING, "metadata": {"name": name}}
    return {**head, "webhooks": list(hooks)}


def worker_pool(name: str = "custom", **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "WorkerPool", "metadata": {"name": name}}
    return {**head, "spec": spec}


def apply(cluster: Cluster, document: dict[str, Any]) -> None:
    applied = cluster.kubectl("apply", "--filename=-", stdin=json.dumps(document))
    assert applied.returncode == 0, applied.stderr


def ready(cluster: Cluster, plural: str, name: str = "custom") -> dict[str, Any]:
    document = cluster.api.get(f"{ROOT_PATH}/{plural}/{name}").document
    found: list[dict[str, Any]] = document.get("status", {}).get("conditions", [])
    return found[0] if found else {}


def make_pod(cluster: Cluster) -> Answer:
    return cluster.api.create("/api/v1/namespaces/default/pods?dryRun=All", pod("web-"))


@pytest.fixture
def served(defined: Cluster, account: Path, tmp_path: Path) -> Iterator[BehindGateway]:
    """A gateway with the rights of the account, and one webhook that the cluster has."""
    apply(defined, validating(hook(deny={"message": "by a custom resource"})))
    settings = {"kubernetes": {"kubeconfig": str(account), "customResources": True}}
    try:
        with BehindGateway(defined, tmp_path, [], "custom", gateway=settings) as setup:
            yield setup
    finally:
        for plural in PLURALS.values():
            defined.kubectl("delete", f"{plural}.admission-gateway.io", "--all")


def test_applied_resources_are_enforced_and_get_a_status_with_the_deployed_role(
    defined: Cluster, served: BehindGateway
) -> None:
    plural = PLURALS[VALIDATING]
    assert make_pod(defined).message.endswith("custom.e2e.test: by a custom resource")
    eventually(lambda: ready(defined, plural).get("status") == "True")
    assert ready(defined, plural)["observedGeneration"] == 1

    # Only the gateway can check the pool.
    apply(defined, validating(hook(pool="nowhere", deny={"message": "bad"})))
    eventually(lambda: ready(defined, plural).get("status") == "False")
    condition = ready(defined, plural)
    assert (condition["reason"], condition["observedGeneration"]) == ("NoWorkerPool", 2)
    assert condition["message"].startswith(
        'webhooks[0].clientConfig.worker.pool: there is no WorkerPool "nowhere" in force'
    )
    assert make_pod(defined).message.endswith("by a custom resource")
    shown = defined.kubectl("get", f"{plural}.admission-gateway.io").stdout.split()
    assert shown[:4] == ["NAME", "READY", "REASON", "AGE"]
    assert shown[4:7] == ["custom", "False", "NoWorkerPool"]

    def reasons() -> list[str]:
        events = defined.api.get("/apis/events.k8s.io/v1/namespaces/default/events").document["items"]
        return [one["reason"] for one in events if one["regarding"]["name"] == "custom"]

    # The Event is created after the status. Writing the status changes neither the generation nor Events.
    eventually(lambda: reasons() == ["NoWorkerPool"])
    described = defined.kubectl("describe", f"{plural}.admission-gateway.io", "custom").stdout
    assert "refused because of webhooks[0].clientConfig.worker.pool; its status says why" in described

    apply(defined, worker_pool("nowhere", targets=["127.0.0.1:9"]))
    eventually(lambda: ready(defined, plural).get("status") == "True")
    defined.kubectl("delete", f"{plural}.admission-gateway.io", "custom")
    eventually(lambda: make_pod(defined).status == 201)
    assert "forbidden" not in served.gateway.log
    assert "Traceback" not in served.gateway.log


def test_definitions_can_be_deleted_and_created_again(defined: Cluster, served: BehindGateway) -> None:
    assert make_pod(defined).message.endswith("custom.e2e.test: by a custom resource")
    crds = f"--filename={CHART_FILES / 'crds.yaml'}"
    try:
        deleted = defined.kubectl("delete", crds)
        assert deleted.returncode == 0, deleted.stderr
        eventually(lambda: make_pod(defined).status == 201)
    finally:
        defined.kubectl("apply", "--server-side", crds)
        defined.wait_until_served(*RESOURCES)
    apply(defined, validating(hook(deny={"message": "again"})))
    eventually(lambda: make_pod(defined).message.endswith("custom.e2e.test: again"))
    eventually(lambda: ready(defined, PLURALS[VALIDATING]).get("status") == "True")
    assert "Traceback" not in served.gateway.log


def test_the_deployed_role_allows_nothing_else(defined: Cluster, account: Path) -> None:
    def may(verb: str, what: str, *flags: str) -> bool:
        result = defined.kubectl(f"--kubeconfig={account}", "auth", "can-i", verb, what, *flags)
        return result.stdout.strip() == "yes"

    for plural in PLURALS.values():
        assert may("watch", f"{plural}.admission-gateway.io")
        for verb in ("create", "update", "patch", "delete"):
            assert not may(verb, f"{plural}.admission-gateway.io")
    assert not may("create", "leases.coordination.k8s.io", f"--namespace={ACCOUNT}")
    assert not may("create", "events.events.k8s.io", f"--namespace={ACCOUNT}")
    assert not may("get", "secrets", f"--namespace={ACCOUNT}")


GOOD_HOOK = hook(deny={"message": "x"})
LABEL_OK, LABEL_BAD = (
    ["app", "example.com/team", "A_b.c"],
    ["", "-a", "a/b/c", "x" * 64, "UPPER.com/a", "a b"],
)
EXPRESSION_VALUES: list[dict[str, Any]] = [{}, {"values": []}, {"values": ["x"]}, {"values": ["a b"]}]
CA_SOURCES: list[dict[str, Any]] = [
    {"secret": {"namespace": "a", "name": "b.c"}},
    {"configMap": {"namespace": "a", "name": "b", "key": "x_Y-1.pem"}},
    {"webhookConfiguration": {"kind": VALIDATING, "name": "a", "webhook": "a.b.c"}},
    {"webhookConfiguration": {"kind": VALIDATING, "name": "a", "webhook": "a.b"}},
    {"webhookConfiguration": {"kind": "Secret", "name": "a", "webhook": "a.b.c"}},
    {"webhookConfiguration": {"kind": VALIDATING, "name": "", "webhook": "a.b.c"}},
    {"secret": {"namespace": "a.b", "name": "b"}},
    {"secret": {"namespace": "a", "name": "B"}},
    {"secret": {"namespace": "a"}},
    {"configMap": {"namespace": "a", "name": "b", "key": "x y"}},
    {"configMap": {"namespace": "a", "name": "b", "key": ""}},
    {"configMap": {"namespace": "a", "name": "b"}, "secret": {"namespace": "a", "name": "b"}},
    {},
]
RULE_CHOICES: dict[str, list[Any]] = {
    "operations": [["*"], ["*", "CREATE"], [], ["PATCH"], ["CREATE", "CREATE"]],
    "apiGroups": [["*"], ["*", ""], [], ["apps", ""]],
    "apiVersions": [["*"], ["*", "v1"], [], [""], ["v1", "v2"]],
    "resources": [["*"], ["*/*"], ["*/*", "pods"], [], [""], ["pods", "pods/*"], ["*/scale"]],
    "scope": ["*", "Cluster", "Namespaced", "All"],
}
HOOK_CHOICES: dict[str, list[Any]] = {
    "name": ["a.b.c", "a.b", "A.b.c", "a..b.c", "a-.b.c", f"{'a' * 250}.b.c", "", "x.y.z-9"],
    "failurePolicy": ["Fail", "Ignore", "fail", ""],
    "matchPolicy": ["Exact", "Equivalent", "Any"],
    "sideEffects": ["None", "NoneOnDryRun", "Some", "Unknown"],
    "timeoutSeconds": [1, 30, 0, 31, -1, "5", 2.5],
    "reinvocationPolicy": ["Never", "IfNeeded", "Always"],
    "admissionReviewVersions": [["v1"], ["v1beta1", "v2"], ["v2"], [], ["v1", "v1"], ["V1", "v1"], "v1"],
    "matchConditions": [
        [],
        [{"name": "a", "expression": "true"}],
        [{"name": "a", "expression": "true"}, {"name": "a", "expression": "false"}],
        [{"name": "a", "expression": " "}],
        [{"name": "a"}],
        [{"name": "a b", "expression": "true"}],
        [{"name": f"c{number}", "expression": "true"} for number in range(65)],
    ],
    "clientConfig": [
        {},
        {"worker": {"pool": "p"}},
        {"worker": {"pool": "", "policy": "x"}},
        {"worker": {"pool": "p", "policy": "x"}, "url": "https://a.test"},
        {"worker": {"pool": "p", "policy": "x"}, "caBundle": "YQ=="},
        *(
            {"url": f"https://{rest}"}
            for rest in ("a.test/x", "a.test:8443", "[::1]:1/x", "", "u@a.test", "a?b")
        ),
        *(
            {"url": url}
            for url in ("http://a.test", "HTTPS://a.test", "a.test", "https://a.test#x", "https://a b")
        ),
        {"url": "https://a.test", "caBundle": "***"},
        *({"url": "https://a.test", "caBundleFrom": source} for source in CA_SOURCES),
        {"url": "https://a.test", "caBundle": "", "caBundleFrom": CA_SOURCES[0]},
        {"worker": {"pool": "scripted", "policy": "a"}, "caBundleFrom": CA_SOURCES[0]},
        {"service": {"namespace": "a", "name": "b"}},
        {"service": {"namespace": "a", "name": ""}},
        {"service": {"name": "b"}},
        {"service": {"namespace": "a", "name": "b", "port": 0}},
        {"service": {"namespace": "a", "name": "b", "port": 65535}},
        *(
            {"service": {"namespace": "a", "name": "b", "path": path}}
            for path in ("", "/", "/a", "/a/b/", "a", "//", "/a//b", "/A", "/a_b", "/a.b")
        ),
    ],
    "rules": [
        [],
        *([{**PODS, field: value}] for field, values in RULE_CHOICES.items() for value in values),
    ],
    "objectSelector": [
        {},
        *({"matchLabels": {key: "v"}} for key in (*LABEL_OK, *LABEL_BAD)),
        *({"matchLabels": {"a": value}} for value in ("", "x-1", "-x", "a b", "x" * 64)),
        *(
            {"matchExpressions": [{"key": key, "operator": operator, **more}]}
            for key in ("app", "a b")
            for operator in ("In", "NotIn", "Exists", "DoesNotExist", "Has")
            for more in EXPRESSION_VALUES
        ),
    ],
}
POOL_CHOICES: dict[str, list[Any]] = {
    "target": [
        *("dns:///a.svc:1", "a:1", "dns:a:1", "ipv4:1.2.3.4:5", "ipv4:1.2.3.4:5,1.2.3.5:6", "ipv6:[::1]:9"),
        *(
            "unix:/a",
            "unix:a",
            "unix-abstract:a",
            "a",
            "a:0",
            ":1",
            "dns://8.8.8.8/a:1",
            "http://a:1",
            "",
            "a b:1",
        ),
        *("[::1]:80", "a.b.c.:443", "x_y:1", "-a:1"),
    ],
    "targets": [["a:1"], ["a:1", "b:1"], ["a:1", "a:1"], [], ["unix:/a"]],
    "transport": ["Auto", "Stream", "Unary", "auto"],
    "maxInFlight": [1, 1_000_000, 0, 1_000_001, "5"],
    "command": [["sh"], []],
    "hedge": [
        {},
        *(
            {"after": after}
            for after in ("p50", "p99.9", "p49", "p100", "20ms", "30s", "31s", "0s", "-1s", "x", "1h")
        ),
        *({"budgetPercent": percent} for percent in (0, 0.5, 100, 101, -1, 5)),
    ],
    "tls": [
        {},
        {"serverName": "a.test"},
        {"serverName": ""},
        {"caBundle": "***"},
        *({name: "/etc/passwd"} for name in ("caFile", "certFile", "keyFile")),
    ],
}


POLICY_RULE = {"resourceRules": [PODS]}
NAME_LISTS: list[list[str]] = [[], ["a"], ["a", "a"], ["."], [".."], ["..."], ["a/b"], ["a%b"], [""]]
POLICY_CHOICES: dict[str, list[Any]] = {
    "matchConstraints": [
        {},
        {"resourceRules": []},
        *({"resourceRules": [{**PODS, "resourceNames": names}]} for names in NAME_LISTS),
        {**POLICY_RULE, "excludeResourceRules": [{**PODS, "operations": []}]},
        {**POLICY_RULE, "excludeResourceRules": [PODS], "matchPolicy": "Any"},
        {**POLICY_RULE, "namespaceSelector": {"matchLabels": {"a b": "c"}}},
    ],
    "validations": [
        [],
        *([{"expression": text}] for text in ("", " ", "true")),
        *([{"expression": "true", "message": text}] for text in ("a", " ", "a\nb", " a ", "a\rb")),
        *(
            [{"expression": "true", "reason": text}]
            for text in ("Forbidden", "Unauthorized", "Other", "Invalid")
        ),
        [{"message": "a"}],
    ],
    "auditAnnotations": [
        [],
        *([{"key": key, "valueExpression": "'x'"}] for key in ("a", "", "a/b", "-a", "a" * 63, "a" * 64)),
        [{"key": "a", "valueExpression": "'x'"}, {"key": "a", "valueExpression": "'y'"}],
        [{"key": f"k{number}", "valueExpression": "'x'"} for number in range(21)],
        [{"key": "a", "valueExpression": " "}],
    ],
    "variables": [
        [],
        *([{"name": name, "expression": "1"}] for name in ("a", "_a1", "1a", "a-b", "")),
        [{"name": "a", "expression": ""}],
    ],
    "paramKind": [
        *(
            {"apiVersion": version, "kind": "ConfigMap"}
            for version in ("v1", "a.b/v1", "a/b/v1", "", "V1", "/v1")
        ),
        *({"apiVersion": "v1", "kind": kind} for kind in ("Limit", "limit", "a b", "", "1a")),
        {"kind": "ConfigMap"},
    ],
    "failurePolicy": ["Fail", "Ignore", "Never"],
    "matchConditions": HOOK_CHOICES["matchConditions"],
}
BINDING_CHOICES: dict[str, list[Any]] = {
    "policyName": ["p", "a.b", "", "A", "a b"],
    "validationActions": [
        *(["Deny"], ["Warn", "Audit"], ["Deny", "Warn"], ["Deny", "Deny"], [], ["Other"]),
    ],
    "paramRef": [
        {"name": "a", "parameterNotFoundAction": "Deny"},
        {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"},
        {"selector": {"matchLabels": {"a": "b"}}, "parameterNotFoundAction": "Allow"},
        {"parameterNotFoundAction": "Allow"},
        {"name": "a", "parameterNotFoundAction": "Other"},
        {"name": "a"},
        *({"name": name, "parameterNotFoundAction": "Allow"} for name in (".", "..", "a/b", "")),
    ],
    "matchResources": [
        {},
        POLICY_RULE,
        {"resourceRules": [{**PODS, "resources": []}]},
        {"matchPolicy": "Exact"},
    ],
}


def with_spec(kind: str, **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": kind, "metadata": {"name": "custom"}}
    return {**head, "spec": spec}


def policies() -> Iterator[dict[str, Any]]:
    """Each value of each field of a policy and of a binding by itself."""
    policy = {"matchConstraints": POLICY_RULE, "validations": [{"expression": "true"}]}
    binding = {"policyName": "p", "validationActions": ["Deny"]}
    for kind, good, choices in (
        ("ValidatingAdmissionPolicy", policy, POLICY_CHOICES),
        ("ValidatingAdmissionPolicyBinding", binding, BINDING_CHOICES),
    ):
        for field, values in choices.items():
            yield from (with_spec(kind, **{**good, field: value}) for value in values)
            yield with_spec(kind, **{key: value for key, value in good.items() if key != field})


def dry_run(cluster: Cluster, document: dict[str, Any]) -> Answer:
    plural = PLURALS[document["kind"]]
    return cluster.api.create(f"{ROOT_PATH}/{plural}?dryRun=All&fieldValidation=Strict", document)


def problems(document: dict[str, Any]) -> list[str]:
    """Return the problems that ``check`` finds in *document* alone."""
    name = document["metadata"]["name"]
    return [str(one) for one in read_resource(CustomResource(document["kind"], name, document)).problems]


def variations() -> Iterator[dict[str, Any]]:
    """Each value of each field by itself, and then many at once."""
    for kind in (VALIDATING, MUTATING):
        for field, values in HOOK_CHOICES.items():
            for value in values:
                yield {**validating({**GOOD_HOOK, field: value}), "kind": kind}
            yield {
                **validating({key: value for key, value in GOOD_HOOK.items() if key != field}),
                "kind": kind,
            }
    for field, values in POOL_CHOICES.items():
        for value in values:
            yield worker_pool(
                **({field: value} if field.startswith("target") else {"target": "a:1", field: value})
            )
    yield from policies()
    dice = random.Random(7)
    for _ in range(150):
        hooks = []
        for _ in range(dice.randint(0, 3)):
            one = copy.deepcopy(GOOD_HOOK)
            for field in dice.sample(sorted(HOOK_CHOICES), dice.randint(0, 3)):
                one[field] = dice.choice(HOOK_CHOICES[field])
            hooks.append(one)
        yield {**validating(*hooks), "kind": dice.choice([VALIDATING, MUTATING])}
        spec = {
            field: dice.choice(POOL_CHOICES[field])
            for field in dice.sample(sorted(POOL_CHOICES), dice.randint(0, 3))
        }
        yield worker_pool(**spec)


def test_the_schema_and_the_gateway_refuse_the_same(defined: Cluster) -> None:
    different = []
    for document in variations():
        answer, found = dry_run(defined, document), problems(document)
        assert answer.status in (201, 400, 422), answer
        if (answer.status == 201) != (not found):
            different.append((document, answer.message, found))
    assert not different, "\n".join(map(repr, different[:20]))


@pytest.mark.parametrize(
    "document",
    [
        validating({**GOOD_HOOK, "rules": [{**PODS, "resources": ["pods/*", "pods/status"]}]}),
        validating({**GOOD_HOOK, "rules": [{**PODS, "resources": ["*", "pods"]}]}),
        validating({**GOOD_HOOK, "matchConditions": [{"name": "a", "expression": "no such thing"}]}),
        worker_pool(target="a:65536"),
        worker_pool(target="10.0.0.256:1"),
        worker_pool(target="a:1", tls={"caBundle": "bm9uZQ=="}),
        worker_pool(target="a:1", tls={"serverName": "a b"}),
    ],
)
def test_the_documentation_lists_what_only_the_gateway_refuses(
    defined: Cluster, document: dict[str, Any]
) -> None:
    assert dry_run(defined, document).status == 201
    assert problems(document)


def test_kubectl_names_the_field_of_a_mistake(defined: Cluster) -> None:
    def refused(document: dict[str, Any]) -> str:
        done = defined.kubectl("apply", "--dry-run=server", "--filename=-", stdin=json.dumps(document))
        assert done.returncode != 0
        return done.stderr

    assert "expected exactly one of worker, url or service" in refused(
        validating({**GOOD_HOOK, "clientConfig": {}})
    )
    assert 'unknown field "webhooks[0].namespaceSelectr"' in refused(
        validating({**GOOD_HOOK, "namespaceSelectr": {}})
    )
    found = refused(worker_pool(target="a:1", command=["sh"]))
    assert "spec.command: Invalid value: " in found
    assert "is not allowed in a custom resource, expected target or targets" in found
    assert "Duplicate value" in refused(validating(GOOD_HOOK, GOOD_HOOK))
    reserved = validating(GOOD_HOOK, name="x.static.k8s.io")
    assert "names in .static.k8s.io are reserved" in refused(reserved)
