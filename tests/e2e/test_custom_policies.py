"""Policies as custom resources in a real API server: in force, their parameters, and who may write them."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from deploy.monitoring import CHART_FILES
from gateway.config.merge.custom_resource import PLURALS
from tests.e2e.cluster import ADMIN
from tests.e2e.objects import GROUP, pod
from tests.e2e.policy_comparison import follow_config_maps
from tests.e2e.setups import BehindGateway, deployed_account, rule
from tests.kit import Process, run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
ROOT_PATH: Final = "/apis/admission-gateway.io/v1alpha1"
LISTED: Final = [
    {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"},
    {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "resource": "widgets"},
]
READER: Final = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "policy-parameters"},
    "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [GROUP], "resources": ["widgets"], "verbs": ["get", "list", "watch"]},
    ],
}
WRITER: Final = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "policy-writer"},
    "rules": [
        {
            "apiGroups": ["admission-gateway.io"],
            "resources": [PLURALS[POLICY], PLURALS[BINDING]],
            "verbs": ["*"],
        }
    ],
}
CONFIG_MAP: Final = {"apiVersion": "v1", "kind": "ConfigMap"}


def kubectl(cluster: Cluster, *arguments: str, stdin: Any = None) -> str:
    done = cluster.kubectl(*arguments, stdin=None if stdin is None else json.dumps(stdin))
    assert done.returncode == 0, done.stderr
    return done.stdout


def apply(cluster: Cluster, *documents: dict[str, Any]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    kubectl(cluster, "apply", "--filename=-", stdin=items)


def granted(name: str, role: str, subject: dict[str, str]) -> dict[str, Any]:
    """Return the binding *name* of the ClusterRole *role*."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def policy(name: str, *validations: dict[str, Any], space: str, **spec: Any) -> dict[str, Any]:
    match = {
        "resourceRules": [rule("pods", "CREATE")],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}},
    }
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": POLICY,
        "metadata": {"name": name},
        "spec": {"matchConstraints": match, "validations": list(validations), **spec},
    }


def binding(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": BINDING,
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], **spec},
    }


def mutating(name: str, space: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a policy that labels pods with the tier in the ConfigMap *name* beside them, and its binding."""
    head = policy(name, space=space, paramKind=CONFIG_MAP)
    del head["spec"]["validations"]
    patch = "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'tier': string(params.data.tier)}}]"
    spec = {
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
        "reinvocationPolicy": "Never",
    }
    bound = binding(name, paramRef={"name": name, "parameterNotFoundAction": "Allow"})
    del bound["spec"]["validationActions"]
    return (
        {**head, "kind": "MutatingAdmissionPolicy", "spec": {**head["spec"], **spec}},
        {**bound, "kind": "MutatingAdmissionPolicyBinding"},
    )


def ready(cluster: Cluster, kind: str, name: str) -> tuple[str, str, int]:
    document = cluster.api.get(f"{ROOT_PATH}/{PLURALS[kind]}/{name}").document
    found = document.get("status", {}).get("conditions", [{}])[0]
    return found.get("status", ""), found.get("reason", ""), found.get("observedGeneration", 0)


def make_pod(cluster: Cluster, space: str) -> Answer:
    return cluster.api.create(f"/api/v1/namespaces/{space}/pods?dryRun=All", pod("web-"))


def refusal(cluster: Cluster, space: str) -> str:
    """Return why a pod is refused; empty if it is not."""
    answer = make_pod(cluster, space)
    return "" if answer.status == 201 else answer.message.rpartition("denied request: ")[2]


def tier(cluster: Cluster, space: str) -> str | None:
    """Return the label that the policy of :func:`mutating` gives a pod."""
    document = make_pod(cluster, space).document
    found: str | None = document.get("metadata", {}).get("labels", {}).get("tier")
    return found


@pytest.fixture(scope="module")
def served(
    cluster: Cluster, widgets: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BehindGateway]:
    """A gateway with the rights of deploy/ and on the listed parameters; registered for pods."""
    kubectl(cluster, "apply", "--server-side", f"--filename={CHART_FILES / 'crds.yaml'}")
    cluster.wait_until_served(*(f"{plural}.admission-gateway.io" for plural in PLURALS.values()))
    folder = tmp_path_factory.mktemp("custom-policies")
    # Its rule is part of the registration.
    apply(cluster, policy("registered", {"expression": "true"}, space="none"), binding("registered"))
    apply(cluster, *mutating("registered", "none"))
    with deployed_account(cluster, folder, "custom-resources.yaml") as kubeconfig:
        account = {"kind": "ServiceAccount", "name": "admission-gateway", "namespace": "admission-gateway"}
        apply(cluster, READER, WRITER, granted("policy-parameters", "policy-parameters", account))
        settings = {
            "kubernetes": {"kubeconfig": str(kubeconfig), "customResources": True},
            "policies": {"paramKinds": LISTED, "resources": LISTED},
        }
        try:
            with BehindGateway(cluster, folder, [], "custom-policies", gateway=settings) as setup:
                yield setup
        finally:
            for plural in PLURALS.values():
                cluster.kubectl("delete", f"{plural}.admission-gateway.io", "--all")
            cluster.kubectl(
                "delete",
                "clusterrolebinding",
                "policy-parameters",
                "eve",
                "eve-reads",
                "mallory",
                "mallory-reads",
            )
            cluster.kubectl("delete", "clusterrole", "policy-parameters", "policy-writer")


def test_policies_deny_change_and_are_removed(
    cluster: Cluster, served: BehindGateway, namespace: str
) -> None:
    apply(
        cluster,
        policy("team", {"expression": "false", "message": "first"}, space=namespace),
        binding("team"),
    )
    eventually(lambda: refusal(cluster, namespace) == "first")
    eventually(lambda: ready(cluster, POLICY, "team") == ("True", "Accepted", 1))
    eventually(lambda: ready(cluster, BINDING, "team") == ("True", "Accepted", 1))
    apply(cluster, policy("team", {"expression": "false", "message": "second"}, space=namespace))
    eventually(lambda: refusal(cluster, namespace) == "second")
    # Only the gateway compiles expressions.
    apply(cluster, policy("team", {"expression": "no such"}, space=namespace))
    eventually(lambda: ready(cluster, POLICY, "team") == ("False", "Invalid", 3))
    assert refusal(cluster, namespace) == "second"
    kubectl(cluster, "delete", f"{PLURALS[BINDING]}.admission-gateway.io", "team")
    eventually(lambda: refusal(cluster, namespace) == "")
    assert "Traceback" not in served.gateway.log


WRONG: Final = [
    {"expression": "object.spec.replicaz > 1"},
    {"expression": "object.spec.replicas > 1", "messageExpression": "'found ' + object.spec.foo"},
    {"expression": "object.spec.replicas > 'one'"},
    {"expression": "object.metadata.name == 'é\u4e2d' ||\n\t object.spec.template.metadata.namez == 'x'"},
    {"expression": "object.spec.template.spec.containers.all(c, c.imagee != '')"},
    {"expression": "object.metadata.name != '' || oldObject.metadata.foo == ''"},
]


@contextmanager
def policy_status_controller(cluster: Cluster) -> Iterator[None]:
    """The controller of Kubernetes that checks the types of policies."""
    process = Process(
        str(cluster.binaries.kube_controller_manager),
        *("--kubeconfig", str(cluster.kubeconfig(ADMIN)), "--leader-elect=false", "--secure-port=0"),
        "--controllers=validatingadmissionpolicy-status-controller",
    )
    try:
        yield
    finally:
        process.stop()


def test_expressions_that_cannot_succeed_have_the_warnings_of_the_api_server(
    cluster: Cluster, served: BehindGateway, namespace: str
) -> None:
    rules = [{**rule("deployments", "CREATE"), "apiGroups": ["apps"]}, rule("pods", "CREATE")]
    ours = policy("typed", *WRONG, space=namespace)
    ours["spec"]["matchConstraints"]["resourceRules"] = rules
    theirs = {**ours, "apiVersion": "admissionregistration.k8s.io/v1"}
    path = f"/apis/admissionregistration.k8s.io/v1/{PLURALS[POLICY]}/typed"
    with policy_status_controller(cluster):
        apply(cluster, ours, binding("typed"), theirs)
        eventually(lambda: "typeChecking" in cluster.api.get(path).document["status"])
        eventually(lambda: ready(cluster, POLICY, "typed") == ("True", "CannotSucceed", 1))
    expected = cluster.api.get(path).document["status"]
    cluster.api.delete(path)
    status = cluster.api.get(f"{ROOT_PATH}/{PLURALS[POLICY]}/typed").document["status"]
    assert len(expected["typeChecking"]["expressionWarnings"]) == len(WRONG) + 1
    assert status["typeChecking"] == expected["typeChecking"]
    assert status["observedGeneration"] == expected["observedGeneration"] == 1
    message = status["conditions"][0]["message"]
    assert message.startswith("in force, but spec.validations[0].expression cannot succeed on /v1, Kind=Pod")
    assert f"policy cannot succeed: cluster: {POLICY}" in served.gateway.log
    apply(cluster, policy("typed", {"expression": "true"}, space=namespace))
    eventually(lambda: ready(cluster, POLICY, "typed") == ("True", "Accepted", 2))
    status = cluster.api.get(f"{ROOT_PATH}/{PLURALS[POLICY]}/typed").document["status"]
    assert (status["observedGeneration"], "typeChecking" in status) == (2, False)
    kubectl(cluster, "delete", f"{PLURALS[BINDING]}.admission-gateway.io", "typed")


def test_parameters_change_with_the_objects_of_the_cluster(
    cluster: Cluster, served: BehindGateway, namespace: str
) -> None:
    expression = {
        "expression": "params.data.allowed == 'yes'",
        "messageExpression": "string(params.data.message)",
    }
    of_maps = policy("maps", expression, space=namespace, paramKind=CONFIG_MAP)
    missing = "no params found for policy binding with `Deny` parameterNotFoundAction"

    def config_map(name: str, **data: str) -> dict[str, Any]:
        return {**CONFIG_MAP, "metadata": {"name": name, "namespace": namespace}, "data": data}

    by_name = binding("maps", paramRef={"name": "settings", "parameterNotFoundAction": "Deny"})
    apply(cluster, of_maps, by_name)
    eventually(lambda: refusal(cluster, namespace).endswith(missing))
    # At once: an object that the watch has not shown is requested.
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    cluster.api.create(path, config_map("settings", allowed="no", message="closed"))
    assert refusal(cluster, namespace) == "closed"
    apply(cluster, config_map("settings", allowed="no", message="still closed"))
    eventually(lambda: refusal(cluster, namespace) == "still closed")
    apply(cluster, config_map("settings", allowed="yes", message=""))
    eventually(lambda: refusal(cluster, namespace) == "")
    cluster.api.delete(f"{path}/settings")
    eventually(lambda: refusal(cluster, namespace).endswith(missing))
    apply(cluster, binding("maps", paramRef={"name": "settings", "parameterNotFoundAction": "Allow"}))
    eventually(lambda: refusal(cluster, namespace) == "")
    kubectl(cluster, "delete", f"{PLURALS[BINDING]}.admission-gateway.io", "maps")
    assert "forbidden" not in served.gateway.log


def test_parameters_can_be_custom_resources_that_a_selector_finds(
    cluster: Cluster, served: BehindGateway, namespace: str
) -> None:
    def widget(name: str, limit: int) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace, "labels": {"limit": "pods"}}
        return {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": metadata, "spec": {"limit": limit}}

    message = {"messageExpression": "string(params.metadata.name) + ' allows ' + string(params.spec.limit)"}
    expression = {"expression": "size(object.spec.containers) <= params.spec.limit", **message}
    kind = {"apiVersion": f"{GROUP}/v1", "kind": "Widget"}
    reference = {"selector": {"matchLabels": {"limit": "pods"}}, "parameterNotFoundAction": "Deny"}
    apply(
        cluster,
        widget("a", 5),
        widget("b", 0),
        policy("widgets", expression, space=namespace, paramKind=kind),
        binding("widgets", paramRef=reference),
    )
    eventually(lambda: refusal(cluster, namespace) == "b allows 0")
    apply(cluster, widget("b", 1))
    eventually(lambda: refusal(cluster, namespace) == "")
    kubectl(cluster, "delete", f"{PLURALS[BINDING]}.admission-gateway.io", "widgets")


def test_a_mutating_policy_takes_its_values_from_the_cluster(
    cluster: Cluster, served: BehindGateway, namespace: str
) -> None:
    config_map = {
        **CONFIG_MAP,
        "metadata": {"name": "tier", "namespace": namespace},
        "data": {"tier": "gold"},
    }
    apply(cluster, config_map, *mutating("tier", namespace))
    eventually(lambda: tier(cluster, namespace) == "gold")
    apply(cluster, {**config_map, "data": {"tier": "silver"}})
    eventually(lambda: tier(cluster, namespace) == "silver")
    cluster.api.delete(f"/api/v1/namespaces/{namespace}/configmaps/tier")
    eventually(lambda: tier(cluster, namespace) is None)
    plural = PLURALS["MutatingAdmissionPolicyBinding"]
    eventually(lambda: ready(cluster, "MutatingAdmissionPolicyBinding", "tier") == ("True", "Accepted", 1))
    kubectl(cluster, "delete", f"{plural}.admission-gateway.io", "tier")


def test_a_policy_with_a_kind_that_is_not_listed_cannot_be_written(
    cluster: Cluster, served: BehindGateway, namespace: str
) -> None:
    kind = {"apiVersion": "v1", "kind": "Secret"}
    secrets = policy("secrets", {"expression": "true"}, space=namespace, paramKind=kind)
    done = cluster.kubectl("apply", "--filename=-", stdin=json.dumps(secrets))
    assert done.returncode != 0
    assert "expected a paramKind of policies.paramKinds: ConfigMap of v1 or Widget of" in done.stderr
    apply(cluster, binding("secrets"))
    eventually(lambda: ready(cluster, BINDING, "secrets") == ("False", "NoPolicy", 1))
    kubectl(cluster, "delete", f"{PLURALS[BINDING]}.admission-gateway.io", "secrets")


def test_nobody_reads_through_a_policy_what_he_may_not_read(
    cluster: Cluster, served: BehindGateway, namespace: str
) -> None:
    """Eve may write policies, and read no ConfigMaps."""
    apply(cluster, granted("eve", "policy-writer", {"kind": "User", "name": "eve"}))

    def by_eve(document: dict[str, Any]) -> str:
        done = cluster.kubectl("apply", "--as=eve", "--filename=-", stdin=json.dumps(document))
        return "" if done.returncode == 0 else done.stderr

    shows = {"expression": "false", "messageExpression": "string(params.data.token)"}
    of_maps = policy("eve", shows, space=namespace, paramKind=CONFIG_MAP)
    reference = {"name": "token", "namespace": "kube-system", "parameterNotFoundAction": "Deny"}
    eventually(lambda: by_eve(policy("eve", {"expression": "true"}, space=namespace)) == "")
    assert "the author has no right to get all configmaps" in by_eve(of_maps)
    assert by_eve(binding("eve")) == ""
    assert "the author has no right to read the configmaps of this paramRef" in by_eve(
        binding("eve", paramRef=reference)
    )
    # A policy of the administrator is no way round.
    apply(cluster, of_maps)
    assert "has no right to read" in by_eve(binding("other", policyName="eve", paramRef=reference))
    longer = {**shows, "messageExpression": "string(params.data.token) + '!'"}
    assert "has no right" in by_eve(policy("eve", longer, space=namespace, paramKind=CONFIG_MAP))
    # Nor is an exception, which covers everything else.
    exception = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "ClusterPolicyException",
        "metadata": {"name": "eve"},
        "spec": {
            "webhooks": ["policy-authors.admission-gateway.io"],
            "match": {"users": ["eve"]},
            "reason": "r",
            "owner": "o",
            "permanent": True,
        },
    }
    apply(cluster, exception)
    eventually(lambda: ready(cluster, "ClusterPolicyException", "eve")[1] == "UnknownWebhook")
    assert "has no right" in by_eve(binding("other", policyName="eve", paramRef=reference))
    # With the rights of the chart's role it is allowed.
    apply(cluster, granted("eve-reads", "policy-parameters", {"kind": "User", "name": "eve"}))
    eventually(lambda: by_eve(binding("other", policyName="eve", paramRef=reference)) == "")
    for name in ("eve", "other"):
        cluster.kubectl("delete", "--ignore-not-found", f"{PLURALS[BINDING]}.admission-gateway.io", name)
    assert "Traceback" not in served.gateway.log


def test_nobody_reads_by_an_expression_what_he_may_not_read(
    cluster: Cluster, served: BehindGateway, namespace: str
) -> None:
    """Mallory may write policies, and read no ConfigMaps."""
    mallory = {"kind": "User", "name": "mallory"}
    apply(cluster, granted("mallory", "policy-writer", mallory))

    def by_mallory(document: dict[str, Any]) -> str:
        done = cluster.kubectl("apply", "--as=mallory", "--filename=-", stdin=json.dumps(document))
        return "" if done.returncode == 0 else done.stderr

    def shows(found: str, **spec: Any) -> dict[str, Any]:
        shown = {"expression": "false", "messageExpression": f"string({found}.data.token)"}
        return policy("mallory", shown, space=namespace, **spec)

    token = f"resource.get('v1', 'configmaps', '{namespace}', 'token')"
    alias = {"variables": [{"name": "r", "expression": "[resource][0]"}]}
    secrets = "resource.list('v1', 'secrets', '').items[0]"
    eventually(lambda: by_mallory(policy("mallory", {"expression": "true"}, space=namespace)) == "")
    assert by_mallory(binding("mallory")) == ""
    for document, right in (
        (shows(token), "get all configmaps"),
        (shows(f"variables.r{token.removeprefix('resource')}", **alias), "get all *.*"),
        (shows(secrets), "list all secrets"),
    ):
        assert f"the author has no right to {right}" in by_mallory(document)
    apply(cluster, granted("mallory-reads", "policy-parameters", mallory))
    eventually(lambda: by_mallory(shows(token)) == "")
    assert "the author has no right to list all secrets" in by_mallory(shows(secrets))
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    config_map = {**CONFIG_MAP, "metadata": {"name": "token"}, "data": {"token": "first"}}
    cluster.api.create(path, config_map)
    eventually(lambda: refusal(cluster, namespace) == "first")
    kubectl(
        cluster, "patch", "configmap", "token", f"--namespace={namespace}", '--patch={"data":{"token":"2"}}'
    )
    eventually(lambda: refusal(cluster, namespace) == "2")
    cluster.api.delete(f"{path}/token")
    eventually(lambda: refusal(cluster, namespace) == "failed expression: false")
    eventually(lambda: ready(cluster, POLICY, "mallory")[:2] == ("True", "Accepted"))
    kubectl(cluster, "delete", f"{PLURALS[BINDING]}.admission-gateway.io", "mallory")
    assert "Traceback" not in served.gateway.log


def test_imported_policies_decide_as_before(cluster: Cluster, served: BehindGateway, namespace: str) -> None:
    follow_config_maps(cluster)
    native = {"apiVersion": "admissionregistration.k8s.io/v1"}
    shows = {
        "expression": "params.data.open == 'yes'",
        "messageExpression": "'closed: ' + string(params.data.open)",
        "reason": "Forbidden",
    }
    reference = {"name": "door", "parameterNotFoundAction": "Deny"}
    metadata = {"name": "door", "namespace": namespace}
    apply(
        cluster,
        {**CONFIG_MAP, "metadata": metadata, "data": {"open": "no"}},
        {**policy("native", shows, space=namespace, paramKind=CONFIG_MAP), **native},
        {**binding("native", paramRef=reference), **native},
    )

    def decision() -> tuple[int, str, str]:
        answer = make_pod(cluster, namespace)
        return answer.status, answer.document.get("reason", ""), refusal(cluster, namespace)

    expected = (403, "Forbidden", "closed: no")
    eventually(lambda: decision() == expected)
    imported = run_command(
        *("import", "--kubeconfig", cluster.kubeconfig(), "--as", "CustomResources", "--name", "native")
    )
    assert imported.returncode == 0, imported.stderr
    # Policies of other tests may be there, too.
    assert re.search(r"summary: \d+ polic(y|ies) with \d+ binding", imported.stderr)
    commands = [line.split() for line in imported.stderr.splitlines() if re.match("kubectl .* native", line)]
    assert len(commands) == 2
    for _, *arguments in commands:
        kubectl(cluster, *arguments)
    eventually(lambda: decision()[0] == 201)
    applied = cluster.kubectl("apply", "--filename=-", stdin=imported.stdout)
    assert applied.returncode == 0, applied.stderr
    eventually(lambda: decision() == expected)
    kubectl(cluster, "delete", f"{PLURALS[BINDING]}.admission-gateway.io", "native")


def test_an_imported_mutating_policy_changes_objects_as_before(
    cluster: Cluster, served: BehindGateway, namespace: str
) -> None:
    if cluster.binaries.version < "v1.36":
        pytest.skip("the API server has no MutatingAdmissionPolicies")
    follow_config_maps(cluster)
    metadata = {"name": "moved", "namespace": namespace}
    apply(cluster, {**CONFIG_MAP, "metadata": metadata, "data": {"tier": "bronze"}})
    native = {"apiVersion": "admissionregistration.k8s.io/v1"}
    apply(cluster, *({**document, **native} for document in mutating("moved", namespace)))
    eventually(lambda: tier(cluster, namespace) == "bronze")
    imported = run_command(
        *("import", "--kubeconfig", cluster.kubeconfig(), "--as", "CustomResources", "--name", "moved")
    )
    assert imported.returncode == 0, imported.stderr
    commands = [line.split() for line in imported.stderr.splitlines() if re.match("kubectl .* moved", line)]
    assert len(commands) == 2
    for _, *arguments in commands:
        kubectl(cluster, *arguments)
    eventually(lambda: tier(cluster, namespace) is None)
    applied = cluster.kubectl("apply", "--filename=-", stdin=imported.stdout)
    assert applied.returncode == 0, applied.stderr
    eventually(lambda: tier(cluster, namespace) == "bronze")
    kubectl(cluster, "delete", f"{PLURALS['MutatingAdmissionPolicyBinding']}.admission-gateway.io", "moved")


def test_the_registration_has_the_rules_of_policies_and_of_their_authors(served: BehindGateway) -> None:
    rules = [one for document in served.manifests() for hook in document["webhooks"] for one in hook["rules"]]
    covered = {(group, name) for one in rules for group in one["apiGroups"] for name in one["resources"]}
    assert ("", "pods") in covered
    assert {("admission-gateway.io", PLURALS[kind]) for kind in (POLICY, BINDING)} <= covered
