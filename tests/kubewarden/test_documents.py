"""Documents of Kubewarden become entries that call a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.yaml.documents import ENGINES
from gateway.pure.core.webhook import Rollout, Rule, WorkerRef
from tests.config.documents import load_documents, problems_of

if TYPE_CHECKING:
    from gateway.pure.core.webhook import Webhook

Json = dict[str, Any]

PODS: Json = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
POOL: Json = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "WorkerPool",
    "metadata": {"name": "wasm"},
    "spec": {"targets": ["127.0.0.1:1"]},
}


def engines(**kubewarden: Any) -> Json:
    """The settings with the pool of the worker."""
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "policies": {"engines": {"kubewarden": {"pool": "wasm", **kubewarden}}},
    }


def document(kind: str, spec: Json, *, namespace: str = "", version: str = "v1", mode: str = "") -> Json:
    """A document of Kubewarden."""
    metadata: Json = {"name": "p", **({"namespace": namespace} if namespace else {})}
    if mode:
        metadata["annotations"] = {"admission-gateway.io/mode": mode}
    version = f"policies.kubewarden.io/{version}"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def policy(*, namespace: str = "", version: str = "v1", mode: str = "", **spec: Any) -> Json:
    """A policy for Pods, for one *namespace* if there is one."""
    spec = {"module": "registry://a/b:v1", "rules": [PODS], "mutating": False, **spec}
    kind = "AdmissionPolicy" if namespace else "ClusterAdmissionPolicy"
    return document(kind, spec, namespace=namespace, version=version, mode=mode)


def entry(found: Json, **kubewarden: Any) -> Webhook:
    """The entry of the policy *found*."""
    (hook,) = load_documents(engines(**kubewarden), POOL, found).webhooks
    return hook


def worker_of(hook: Webhook) -> WorkerRef:
    assert isinstance(hook.client, WorkerRef)
    return hook.client


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_a_policy_is_an_entry(version: str) -> None:
    conditions = [{"name": "c", "expression": "request.operation == 'CREATE'"}]
    selector: Json = {"matchLabels": {"a": "b"}}
    found = entry(
        policy(
            version=version,
            settings={"any": [1]},
            policyServer="default",
            backgroundAudit=False,
            contextAwareResources=[{"apiVersion": "v1", "kind": "Pod"}],
            failurePolicy="Ignore",
            matchPolicy="Exact",
            sideEffects="NoneOnDryRun",
            timeoutSeconds=5,
            timeoutEvalSeconds=2,
            message="no",
            matchConditions=conditions,
            objectSelector=selector,
            namespaceSelector=selector,
        )
    )
    assert (found.phase, found.configuration, found.name) == ("validate", "p", "p")
    assert worker_of(found) == WorkerRef("wasm", "p", kind="ClusterAdmissionPolicy")
    assert found.rules == (Rule(("CREATE",), ("",), ("v1",), ("pods",)),)
    assert (found.failure_policy, found.match_policy, found.side_effects) == (
        "Ignore",
        "Exact",
        "NoneOnDryRun",
    )
    assert (found.timeout_s, found.rollout) == (5, None)
    assert found.match_conditions is not None
    for one in (found.namespace_selector, found.object_selector):
        assert one.matches({"a": "b"})
        assert not one.matches({})


def test_defaults_are_those_of_kubewarden() -> None:
    found = entry(policy(settings=None))
    assert (found.failure_policy, found.match_policy, found.side_effects) == ("Fail", "Equivalent", "None")
    assert (found.timeout_s, found.reinvocation_policy) == (10, "Never")


def test_settings_replace_what_the_policy_has() -> None:
    found = entry(policy(failurePolicy="Ignore"), failurePolicy="Fail", timeoutSeconds=3)
    assert (found.failure_policy, found.timeout_s) == ("Fail", 3)


def test_a_policy_of_one_namespace_has_its_requests() -> None:
    found = entry(policy(namespace="n"))
    assert (found.name, found.namespace, worker_of(found).policy) == ("n/p", "n", "n/p")
    assert found.namespace_selector.matches({"kubernetes.io/metadata.name": "n"})
    assert not found.namespace_selector.matches({"kubernetes.io/metadata.name": "m"})


def test_a_policy_that_may_change_objects_is_in_the_mutating_phase() -> None:
    assert entry(policy(mutating=True)).phase == "mutate"


@pytest.mark.parametrize(
    ("found", "mode"),
    [
        (policy(mode="Warn"), "Warn"),
        (policy(mode="Shadow", namespace="n"), "Shadow"),
    ],
)
def test_the_annotation_is_the_mode(found: Json, mode: str) -> None:
    hook = entry(found)
    assert hook.rollout is not None
    assert (hook.rollout.mode, worker_of(hook).parameters) == (mode, b'{"action":"deny"}')


def test_monitor_is_the_mode_audit() -> None:
    monitoring = policy()
    monitoring["spec"]["mode"] = "monitor"
    hook = entry(monitoring)
    assert hook.rollout is not None
    assert (hook.rollout.mode, worker_of(hook).parameters) == ("Audit", b'{"action":"deny"}')
    monitoring["metadata"]["annotations"] = {"admission-gateway.io/mode": "Enforce"}
    hook = entry(monitoring)
    assert (hook.rollout, worker_of(hook).parameters) == (Rollout("Enforce"), b'{"action":"deny"}')


NOWHERE = (
    "a worker evaluates its module: name its pool in policies.engines.kubewarden of the GatewayConfiguration"
)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (policy(module=""), ("spec.module", "is required")),
        (policy(rules=[]), ("spec.rules", "is required with at least one entry")),
        (policy(mode="Soft"), ("metadata.annotations", 'found "Soft", expected Enforce')),
        (policy(settngs={}), ("spec.settngs", "unknown field")),
        (policy(namespace="n", namespaceSelector={}), ("spec.namespaceSelector", "unknown field")),
        (policy(sideEffects="Some"), ("spec.sideEffects", 'found "Some", expected None or NoneOnDryRun')),
        (policy(version="v2"), ("apiVersion", 'found "v2", expected v1 or v1alpha2')),
        (
            policy(matchConditions=[{"name": "c", "expression": "("}]),
            ("spec.matchConditions[0].expression", ""),
        ),
        (
            policy(
                matchConditions=[{"name": "c", "expression": "authorizer.path('/').check('get').allowed()"}]
            ),
            ("spec.matchConditions", "found authorizer, which requires a cluster"),
        ),
        (document("AdmissionPolicy", policy()["spec"]), ("metadata.namespace", "is required: an Admission")),
        (
            document("ClusterAdmissionPolicyGroup", {}),
            (
                "kind",
                "found ClusterAdmissionPolicyGroup, which the gateway cannot run: write its members",
            ),
        ),
        (
            document("AdmissionPolicyGroup", {}),
            ("kind", "found AdmissionPolicyGroup, which the gateway cannot"),
        ),
        (
            document("Policy", {}),
            ("kind", 'found the unknown kind "Policy", expected ClusterAdmissionPolicy'),
        ),
    ],
)
def test_problems_name_the_field(found: Json, problem: tuple[str, str]) -> None:
    field, message = problem
    assert any(
        at.startswith(field) and text.startswith(message) for at, text in problems_of(engines(), POOL, found)
    ), problems_of(engines(), POOL, found)


def test_without_a_worker_policies_are_refused() -> None:
    assert problems_of(policy()) == [("spec.module", NOWHERE)]


def test_a_policy_server_has_no_effect() -> None:
    config = load_documents(
        engines(), POOL, policy(), document("PolicyServer", {"image": "a", "replicas": 1})
    )
    (warning,) = config.warnings
    assert warning.message == "has no effect: the pool in policies.engines.kubewarden takes its place"
    assert len(config.webhooks) == 1


def test_a_namespace_of_a_kind_without_one_is_left_out() -> None:
    found = policy()
    found["metadata"]["namespace"] = "n"
    assert entry(found).name == "p"


def test_policies_follow_in_the_cluster() -> None:
    assert [kind.resource for kind in ENGINES["Kubewarden"]] == [
        "clusteradmissionpolicies",
        "admissionpolicies",
    ]
