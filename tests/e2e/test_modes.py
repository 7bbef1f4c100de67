"""Each mode as a client of the API server, its audit log and its stored object show it.

Of webhooks, and of bindings of a MutatingAdmissionPolicy.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.objects import config_map
from tests.e2e.outcome import audit_annotations
from tests.e2e.setups import BehindGateway, Hook, rule
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

CONFIG_MAPS: Final = (rule("configmaps", "CREATE"),)
NO: Final = {"deny": {"code": 403, "message": "no team"}}
LABEL: Final = {"label": "added"}
MODES: Final = ("Enforce", "Warn", "Audit", "Shadow")
DEV: Final = {"namespaceSelector": {"matchLabels": {"tier": "dev"}}}


def hook(phase: Any, name: str, script: dict[str, Any], mode: str, **rollout: Any) -> Hook:
    marked = {"objectSelector": {"matchLabels": {"mode": name.partition(".")[0]}}}
    return Hook(phase, name, script, CONFIG_MAPS, fields={**marked, "rollout": {"mode": mode, **rollout}})


HOOKS: Final = [
    *(hook("mutate", f"{mode.lower()}.label.test", LABEL, mode) for mode in MODES),
    *(hook("validate", f"{mode.lower()}.deny.test", NO, mode) for mode in MODES),
    hook("validate", "dev.deny.test", NO, "Warn", enforce=DEV),
]

FAILURE: Final = (
    'JSON Patch: remove operation does not apply: doc is missing path: "/none/none": missing value'
)


def policy(mode: str) -> Iterator[dict[str, Any]]:
    """Yield a policy that labels ConfigMaps, or fails if they say so, and its binding with *mode*."""
    name = f"{mode.lower()}-policy"
    patch = (
        "'fails' in object.metadata.labels ? [JSONPatch{op: 'remove', path: '/none/none'}]"
        " : [JSONPatch{op: 'add', path: '/metadata/labels/by', value: 'policy'}]"
    )
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    selector = {"matchLabels": {"mode": name}}
    spec = {
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": list(CONFIG_MAPS), "objectSelector": selector},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    yield {**head, "kind": "MutatingAdmissionPolicy", "spec": spec}
    metadata = {"name": name, "annotations": {"admission-gateway.io/mode": mode}}
    bound = {"policyName": name}
    yield {**head, "kind": "MutatingAdmissionPolicyBinding", "metadata": metadata, "spec": bound}


@pytest.fixture(scope="module")
def setup(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BehindGateway]:
    gateway = {"kubernetes": {"kubeconfig": str(cluster.kubeconfig())}}
    behind = BehindGateway(cluster, tmp_path_factory.mktemp("modes"), HOOKS, "modes", gateway=gateway)
    policies = [document for mode in MODES for document in policy(mode)]
    (behind.config / "policies.yaml").write_text("\n---\n".join(map(json.dumps, policies)))
    with behind as setup:
        yield setup


def create(cluster: Cluster, namespace: str, mode: str, **labels: str) -> Answer:
    document = config_map("settings-", {"mode": mode.lower(), **labels}, key="value")
    return cluster.api.create(f"/api/v1/namespaces/{namespace}/configmaps", document)


def not_enforced(cluster: Cluster, answer: Answer) -> list[dict[str, Any]]:
    """Return the annotations in the audit log about rejections that were not enforced."""
    (annotations,) = audit_annotations(cluster, [answer]).values()
    return [json.loads(value) for key, value in annotations.items() if "/not-enforced." in key]


def is_counted(setup: BehindGateway, webhook: str, mode: str, result: str, *made: str, **labels: str) -> bool:
    """Whether *result* of *webhook* is counted; if not, make another ConfigMap, by the rest for ``create``.

    While its event loop is late, a gateway drops the calls of shadows.
    """
    counted = setup.gateway.metric(
        "admission_gateway_webhook_not_enforced_total", name=webhook, mode=mode, result=result
    )
    if not counted:
        assert create(setup.cluster, *made, **labels).status == 201
    return counted >= 1


def test_an_enforced_webhook_refuses_the_request(
    cluster: Cluster, setup: BehindGateway, namespace: str
) -> None:
    answer = create(cluster, namespace, "Enforce")
    assert answer.status == 403, answer
    assert "no team" in answer.document["message"]


@pytest.mark.parametrize("mode", ["Warn", "Audit"])
def test_a_rejection_that_is_not_enforced_is_in_the_audit_log_and_in_the_mode_warn_a_warning(
    cluster: Cluster, setup: BehindGateway, namespace: str, mode: str
) -> None:
    answer = create(cluster, namespace, mode)
    assert answer.status == 201, answer
    name = f"{mode.lower()}.deny.test"
    expected = [f"would be refused later, date not set: {name}: no team"] if mode == "Warn" else []
    assert [text for text in answer.warnings if "no team" in text] == expected
    assert "added" not in answer.document["metadata"]["labels"]
    about = {"configuration": "policies", "webhook": name, "mode": mode, "code": 403, "message": "no team"}
    assert not_enforced(cluster, answer) == [about]


def test_a_shadow_is_called_after_the_answer_and_seen_only_by_the_gateway(
    cluster: Cluster, setup: BehindGateway, namespace: str
) -> None:
    answer = create(cluster, namespace, "Shadow")
    assert answer.status == 201, answer
    assert answer.warnings == ()
    assert "added" not in answer.document["metadata"]["labels"]
    assert not_enforced(cluster, answer) == []
    for webhook, result in (("shadow.deny.test", "denied"), ("shadow.label.test", "changed")):
        eventually(partial(is_counted, setup, webhook, "Shadow", result, namespace, "Shadow"))


def test_a_webhook_is_enforced_where_the_namespace_matches(
    cluster: Cluster, setup: BehindGateway, namespace: str
) -> None:
    answer = create(cluster, namespace, "dev")
    assert answer.status == 201, answer
    assert answer.warnings == ("would be refused later, date not set: dev.deny.test: no team",)
    labelled = {"metadata": {"labels": {"tier": "dev"}}}
    assert cluster.api.patch(f"/api/v1/namespaces/{namespace}", labelled).status == 200
    eventually(lambda: create(cluster, namespace, "dev").status == 403)


def test_an_enforced_policy_changes_the_object_and_its_error_refuses_the_request(
    cluster: Cluster, setup: BehindGateway, namespace: str
) -> None:
    changed = create(cluster, namespace, "enforce-policy")
    assert changed.document["metadata"]["labels"] == {"mode": "enforce-policy", "by": "policy"}
    refused = create(cluster, namespace, "enforce-policy", fails="yes")
    assert refused.status == 403, refused
    assert FAILURE in refused.message


@pytest.mark.parametrize("mode", ["Warn", "Audit", "Shadow"])
def test_a_policy_that_is_not_enforced_changes_and_refuses_nothing(
    cluster: Cluster, setup: BehindGateway, namespace: str, mode: str
) -> None:
    name = f"{mode.lower()}-policy"
    unchanged = create(cluster, namespace, name)
    assert (unchanged.status, unchanged.warnings) == (201, ())
    assert unchanged.document["metadata"]["labels"] == {"mode": name}
    admitted = create(cluster, namespace, name, fails="yes")
    assert admitted.status == 201, admitted
    message = f"policy '{name}' with binding '{name}' denied request: {FAILURE}"
    assert admitted.warnings == (
        (f"would be refused later, date not set: {message}",) if mode == "Warn" else ()
    )
    about = {"configuration": name, "webhook": name, "mode": mode, "code": 403, "message": message}
    assert not_enforced(cluster, admitted) == ([] if mode == "Shadow" else [about])
    for result, labels in (("changed", {}), ("denied", {"fails": "yes"})):
        eventually(partial(is_counted, setup, name, mode, result, namespace, name, **labels))
