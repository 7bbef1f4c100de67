"""The gateway matches by the cluster's namespaces as the API server does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.cluster import STRANGER, Cluster
from tests.e2e.objects import pod
from tests.e2e.setups import BehindGateway, Hook
from tests.kit import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer

GUARDED = {"matchLabels": {"guarded": "yes"}}
DENY = Hook(
    "validate",
    "deny.guarded.test",
    {"deny": {"code": 403, "message": "guarded"}},
    fields={"namespaceSelector": GUARDED},
)
SHOW = Hook(
    "validate",
    "show.guarded.test",
    {"report": True},
    fields={"objectSelector": {"matchLabels": {"show": "namespace"}}},
)


def make_namespace(cluster: Cluster, labels: dict[str, str] | None = None) -> str:
    metadata = {"generateName": "watched-", "labels": labels or {}, "annotations": {"owner": "tests"}}
    answer = cluster.api.create(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    )
    assert answer.status == 201, answer
    return str(answer.document["metadata"]["name"])


def make_pod(cluster: Cluster, namespace: str, **labels: str) -> Answer:
    return cluster.api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod("web-", labels))


def relabel(cluster: Cluster, namespace: str, **labels: str | None) -> None:
    answer = cluster.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
    assert answer.status == 200, answer


def watching(kubeconfig: Path) -> dict[str, Any]:
    return {"kubernetes": {"kubeconfig": str(kubeconfig)}}


@pytest.fixture(scope="module")
def setup(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BehindGateway]:
    gateway = watching(cluster.kubeconfig())
    with BehindGateway(
        cluster, tmp_path_factory.mktemp("watching"), [DENY, SHOW], "watching", gateway=gateway
    ) as setup:
        yield setup


def test_a_namespace_made_before_the_gateway_started_is_known(cluster: Cluster, setup: BehindGateway) -> None:
    assert make_pod(cluster, "default").status == 201


def test_a_pod_created_right_after_its_namespace_meets_the_policies_of_its_labels(
    cluster: Cluster, setup: BehindGateway
) -> None:
    for _ in range(20):
        assert make_pod(cluster, make_namespace(cluster, {"guarded": "yes"})).status == 403
        assert make_pod(cluster, make_namespace(cluster)).status == 201


def test_a_changed_label_takes_effect(cluster: Cluster, setup: BehindGateway) -> None:
    namespace = make_namespace(cluster)
    assert make_pod(cluster, namespace).status == 201
    relabel(cluster, namespace, guarded="yes")
    eventually(lambda: make_pod(cluster, namespace).status == 403)
    relabel(cluster, namespace, guarded=None)
    eventually(lambda: make_pod(cluster, namespace).status == 201)


def test_workers_get_the_namespace_with_labels_and_annotations(
    cluster: Cluster, setup: BehindGateway
) -> None:
    namespace = make_namespace(cluster, {"tier": "gold"})
    answer = make_pod(cluster, namespace, show="namespace")
    shown = json.loads(json.loads(answer.message[answer.message.index("{") :])["namespace"])
    assert shown["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace, "tier": "gold"}
    assert shown["metadata"]["annotations"] == {"owner": "tests"}
    stored = cluster.api.get(f"/api/v1/namespaces/{namespace}").document
    assert shown["metadata"]["uid"] == stored["metadata"]["uid"]


def test_a_namespaces_own_creation_is_matched_on_the_object_itself(cluster: Cluster, tmp_path: Path) -> None:
    rules = (
        {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"]},
    )
    hook = Hook("validate", "no.namespaces.test", DENY.script, rules, fields={"namespaceSelector": GUARDED})
    with BehindGateway(cluster, tmp_path, [hook], "creation", gateway=watching(cluster.kubeconfig())):
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "x-"}}
        assert cluster.api.create("/api/v1/namespaces?dryRun=All", document).status == 201
        document["metadata"] = {"generateName": "x-", "labels": {"guarded": "yes"}}
        assert cluster.api.create("/api/v1/namespaces?dryRun=All", document).status == 403


def test_the_role_of_the_manifest_is_enough_to_watch(cluster: Cluster, tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy" / "manifest.yaml").read_text()))
    wanted = [
        one for one in documents if one["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    ]
    assert {one["kind"] for one in wanted} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    applied = cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(wanted))
    assert applied.returncode == 0, applied.stderr
    account = next(one["metadata"] for one in wanted if one["kind"] == "ServiceAccount")
    token = cluster.kubectl("create", "token", account["name"], f"--namespace={account['namespace']}").stdout
    kubeconfig = cluster.write_kubeconfig(tmp_path / "account.kubeconfig", token=token.strip())
    with BehindGateway(cluster, tmp_path, [DENY], "account", gateway=watching(kubeconfig)) as setup:
        # The API server reads roles from a cache of its own.
        eventually(lambda: setup.gateway.admin("/readyz")[0] == 200)
        assert make_pod(cluster, make_namespace(cluster, {"guarded": "yes"})).status == 403


def test_a_gateway_without_the_right_to_watch_is_not_ready(cluster: Cluster, tmp_path: Path) -> None:
    setup = BehindGateway(
        cluster, tmp_path, [DENY], "stranger", gateway=watching(cluster.kubeconfig(STRANGER))
    )
    with setup.stack:
        setup.write_configuration()
        setup.start_worker()
        gateway = setup.start_gateway()
        eventually(lambda: "forbidden" in gateway.admin("/readyz")[1])
        status, text = gateway.admin("/readyz")
        assert status == 503
        assert "namespaces" in text
        assert gateway.admin("/livez")[0] == 200


def test_the_watch_is_resumed_after_the_api_server_was_away(cluster: Cluster, tmp_path: Path) -> None:
    with Cluster(cluster.binaries, tmp_path / "cluster") as own:
        kubeconfig = own.kubeconfig()
        with BehindGateway(own, tmp_path / "gateway", [DENY], gateway=watching(kubeconfig)) as setup:
            namespace = make_namespace(own)
            assert make_pod(own, namespace).status == 201
            # It serves before it has read the namespaces.
            eventually(lambda: setup.gateway.admin("/readyz")[0] == 200)
            own.restart_api_server()
            assert setup.gateway.admin("/readyz")[0] == 200
            relabel(own, namespace, guarded="yes")
            eventually(lambda: make_pod(own, namespace).status == 403)
            relabel(own, namespace, guarded=None)
            eventually(lambda: make_pod(own, namespace).status == 201)


def test_a_gateway_that_started_before_the_api_server_becomes_ready_with_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    with Cluster(cluster.binaries, tmp_path / "cluster") as own:
        own.stop_api_server()
        setup = BehindGateway(own, tmp_path / "gateway", [DENY], gateway=watching(own.kubeconfig()))
        with setup.stack:
            setup.write_configuration()
            setup.start_worker()
            gateway = setup.start_gateway()
            assert gateway.admin("/readyz")[0] == 503
            own.restart_api_server()
            eventually(lambda: gateway.admin("/readyz")[0] == 200)
