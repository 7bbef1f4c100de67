"""A whole gateway that watches a cluster: readiness, what reviews see, reloads, and the other commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ConfigError
from tests.faults.rotating import write_whole
from tests.kit import PATIENCE_S, REVIEWS, ROOT, call_command, pool_document, webhook_document
from tests.kubernetes.server import CUSTOM, NAMESPACES, ApiServer, hang, refuse, silence
from tests.waiting import eventually
from tests.worker.server import scripted_worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.in_process import Stage
    from tests.kit import StartGateway
    from tests.worker.server import StartWorker

POD = "pod-create-validate"
DENIED = {"deny": {"message": "selected"}}
ONLY_TEAM_A = {"namespaceSelector": {"matchLabels": {"team": "a"}}}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KUBERNETES_")}
    return call_command(*arguments, environment=environment)


def settings(**kubernetes: object) -> str:
    document = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "kubernetes": kubernetes,
    }
    return json.dumps(document) + "\n---\n"


def pod_in(namespace: str) -> bytes:
    review = json.loads((REVIEWS / f"{POD}.json").read_bytes())
    review["request"]["namespace"] = namespace
    return json.dumps(review).encode()


@pytest.fixture
def configure(server: ApiServer, tmp_path: Path) -> Callable[..., Path]:
    """Write a configuration with a validating webhook for namespaces of team a; return its folder."""

    def configure(target: str, script: dict[str, Any] | None = None, **fields: Any) -> Path:
        folder = tmp_path / "config"
        folder.mkdir(exist_ok=True)
        server.kubeconfig(tmp_path)
        (folder / "c.yaml").write_text(
            settings(kubeconfig="../kubeconfig")
            + pool_document("pool", target)
            + webhook_document("validate", "v", "pool", script or DENIED, **{**ONLY_TEAM_A, **fields})
        )
        return folder

    return configure


@pytest.fixture
def target(stage: Stage) -> str:
    return stage.enter(scripted_worker("127.0.0.1:0")).target


def test_it_is_ready_once_the_namespaces_are_read_and_follows_them(
    server: ApiServer, configure: Callable[..., Path], target: str, stage: Stage
) -> None:
    server.put("shop")
    server.faults["list"].append(refuse(403, "namespaces is forbidden"))
    gateway = stage.start_gateway(configure(target))
    gateway.expect("namespaces cannot be read yet: the API server answers 403: namespaces is forbidden")
    status, said = gateway.admin("/readyz")
    assert (status, "namespaces not synced: the API server answers 403" in said) in (
        (503, True),
        (200, False),
    )
    gateway.expect("namespaces synced: 1 from")
    stage.eventually(lambda: gateway.admin("/readyz")[0] == 200)
    stage.eventually(lambda: gateway.metric("admission_gateway_cluster_watch_connected") == 1)
    assert gateway.metric("admission_gateway_cluster_namespaces") == 1

    assert gateway.review("/validate", pod_in("shop"))["allowed"] is True
    server.put("shop", team="a")
    stage.eventually(lambda: not gateway.review("/validate", pod_in("shop"))["allowed"])
    server.put("shop", team="b")
    stage.eventually(lambda: gateway.review("/validate", pod_in("shop"))["allowed"])
    assert server.asked("get") == 0

    for kind in ("list", "watch"):
        server.faults[kind].extend([refuse(503)] * 10_000)
    server.end_watches(abruptly=True)
    stage.eventually(lambda: gateway.metric("admission_gateway_cluster_watch_connected") == 0)
    assert gateway.admin("/readyz")[0] == 200
    assert gateway.review("/validate", pod_in("shop"))["allowed"] is True
    for kind in ("list", "watch"):
        server.faults[kind].clear()
    stage.eventually(lambda: gateway.metric("admission_gateway_cluster_watch_connected") == 1)


def test_a_namespace_that_the_watch_has_not_seen_is_looked_up(
    server: ApiServer, configure: Callable[..., Path], target: str, stage: Stage
) -> None:
    server.faults["watch"].append(silence)
    gateway = stage.start_gateway(configure(target))
    gateway.expect("namespaces synced: 0 from")
    server.put("shop", team="a")
    denied = gateway.review("/validate", pod_in("shop"))
    assert denied["status"]["message"] == "h0.v.test: selected"
    assert server.asked("get") == 1
    # Nothing is kept: the next review looks it up again.
    server.objects[f"{NAMESPACES}/shop"]["metadata"]["labels"] = {}
    assert gateway.review("/validate", pod_in("shop"))["allowed"] is True

    missing = gateway.review("/validate", pod_in("nowhere"))
    assert missing["status"]["message"] == (
        'failed calling webhook "h0.v.test": namespace "nowhere" not found, and its labels are needed by the '
        "namespaceSelector"
    )
    server.faults["get"].append(refuse(500, "etcd is away"))
    failed = gateway.review("/validate", pod_in("shop"))
    assert failed["status"]["message"] == (
        'failed calling webhook "h0.v.test": namespace "shop" cannot be looked up: the API server answers '
        "500: etcd is away"
    )
    assert server.asked("get") == 4
    # Its own labels are matched, and it need not exist.
    assert gateway.review("/validate", "namespace-create")["allowed"] is True
    assert server.asked("get") == 4
    gateway.review("/validate", "namespace-delete")
    assert server.asked("get") == 5
    gateway.review("/validate", "node-create")
    gateway.review("/mutate", POD)
    assert server.asked("get") == 5


def test_a_look_up_leaves_time_for_the_answer_and_ends_with_the_client(
    server: ApiServer, configure: Callable[..., Path], target: str, stage: Stage
) -> None:
    server.faults["watch"].append(silence)
    gateway = stage.start_gateway(configure(target, failurePolicy="Ignore"))
    gateway.expect("namespaces synced")
    server.faults["get"].extend([hang, hang])
    passed = gateway.review("/validate?timeout=3s", pod_in("shop"))
    assert passed["allowed"] is True
    assert "failed-open.round_0_index_0" in passed["auditAnnotations"]

    review = gateway.begin_review("/validate", pod_in("other"))
    stage.eventually(lambda: server.asked("get") == 2)
    review.cancel()
    stage.eventually(lambda: gateway.metric("admission_gateway_reviews_in_flight") == 0)
    assert "Traceback" not in gateway.log


def test_workers_get_a_looked_up_namespace_but_do_not_need_it(
    server: ApiServer, configure: Callable[..., Path], target: str, stage: Stage
) -> None:
    server.faults["watch"].append(silence)
    gateway = stage.start_gateway(configure(target, {"report": True}, namespaceSelector={}))
    gateway.expect("namespaces synced")

    def shown() -> dict[str, Any]:
        message = gateway.review("/validate", pod_in("shop"))["status"]["message"].partition(": ")[2]
        namespace: str = json.loads(message)["namespace"]
        return dict(json.loads(namespace or "{}"))

    server.put("shop", team="a")
    assert shown()["metadata"]["labels"]["team"] == "a"
    server.faults["get"].append(refuse(500))
    assert shown() == {}


def test_another_cluster_takes_effect_once_it_has_been_read(
    server: ApiServer, configure: Callable[..., Path], target: str, stage: Stage, tmp_path: Path
) -> None:
    server.put("shop", team="a")
    folder = configure(target)
    gateway = stage.start_gateway(folder)
    gateway.expect("namespaces synced")
    assert gateway.review("/validate", pod_in("shop"))["allowed"] is False
    (tmp_path / "other").mkdir()
    file = folder / "c.yaml"
    other = stage.enter(ApiServer())
    other.put("shop", team="b")
    other.kubeconfig(tmp_path / "other")
    file.write_text(file.read_text().replace("../kubeconfig", "../other/kubeconfig"))
    gateway.expect("configuration reloaded")
    assert gateway.review("/validate", pod_in("shop"))["allowed"] is True
    stage.eventually(lambda: server.watches == 0)
    seen = len(gateway.log)
    document = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n---\n"
    file.write_text(document + file.read_text())
    gateway.expect('Namespace "shop": has no effect: GatewayConfiguration.kubernetes', after=seen)
    assert gateway.review("/validate", pod_in("shop"))["allowed"] is True
    seen = len(gateway.log)
    file.write_text(file.read_text().replace('{"kubeconfig": "../other/kubeconfig"}', "null"))
    gateway.expect("configuration reloaded", after=seen)
    assert gateway.review("/validate", pod_in("shop"))["allowed"] is False
    stage.eventually(lambda: other.watches == 0)
    assert "cluster" not in gateway.admin("/metrics")[1]


@pytest.mark.process
@pytest.mark.smoke
def test_each_of_several_processes_has_its_own_watches(
    server: ApiServer,
    configure: Callable[..., Path],
    start_worker: StartWorker,
    start_gateway: StartGateway,
) -> None:
    """Of namespaces, and of the custom resources that a reload enables."""
    server.put("shop", team="a")
    folder = configure(start_worker().target)
    gateway = start_gateway(folder, "--processes", "2")
    server.wait_for(lambda: server.watches == 2)
    assert gateway.review("/validate", pod_in("shop"))["allowed"] is False
    eventually(lambda: gateway.metric("admission_gateway_cluster_watch_connected") == 1)
    assert gateway.metric("admission_gateway_cluster_namespaces") == 1
    file = folder / "c.yaml"
    write_whole(file, file.read_text().replace('"kubernetes": {', '"kubernetes": {"customResources": true, '))
    gateway.expect("(?s)configuration reloaded.*configuration reloaded")
    server.wait_for(lambda: server.watches == 2 * (1 + len(CUSTOM)))


def test_the_review_command_gets_one_namespace(
    server: ApiServer, configure: Callable[..., Path], threaded_target: str, tmp_path: Path
) -> None:
    server.put("shop", team="a")
    folder = str(configure(threaded_target))
    (tmp_path / "review.json").write_bytes(pod_in("shop"))
    review = ("review", str(tmp_path / "review.json"), "--config", folder)
    assert json.loads(run(*review).stdout)["response"]["allowed"] is False
    assert [kind for kind, _ in server.requests] == ["get"]

    server.faults["get"].append(refuse(401, "Unauthorized"))
    refused = run(*review)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr == (
        "admission-gateway: the request could not be decided: the API server answers 401: Unauthorized\n"
    )


def test_check_needs_no_cluster(server: ApiServer, configure: Callable[..., Path]) -> None:
    checked = run("check", "--config", str(configure("127.0.0.1:9")))
    assert checked.returncode == 0
    assert "namespaces: the cluster's" in checked.stdout
    assert server.requests == []


def test_a_start_outside_of_a_pod_says_what_is_missing(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "c.yaml").write_text(settings())
    gateway = stage.make_gateway(tmp_path, allow_empty=True)
    gateway.begin()
    with pytest.raises(ConfigError) as raised:
        gateway.wait_until_started()
    assert str(raised.value) == (
        "GatewayConfiguration: kubernetes: the service account is missing: KUBERNETES_SERVICE_HOST is not "
        "set, so this is not a pod; set a kubeconfig"
    )


def test_a_gateway_loads_neither_clients_nor_cel_before_it_needs_them() -> None:
    code = (
        "import sys, gateway.tools.cli, gateway.server.process.serve, gateway.tools.offline.gateway\n"
        "heavy = {'httpx2', 'gateway.server.kubernetes.access', 'gateway.pure.cel'}\n"
        "print(heavy & set(sys.modules) or 'none')"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert loaded.stdout == "none\n"


def widgets() -> str:
    """Return a MutatingAdmissionPolicy that gives Widgets an owner, with its binding."""
    rule = {"apiGroups": ["example.io"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["*"]}
    expression = 'Object{spec: Object.spec{owner: "nobody"}}'
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }
    kinds = {"MutatingAdmissionPolicy": policy, "MutatingAdmissionPolicyBinding": {"policyName": "owner"}}
    return "".join(
        json.dumps(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": "owner"},
                "spec": spec,
            }
        )
        + "\n---\n"
        for kind, spec in kinds.items()
    )


def widget_review() -> bytes:
    review = json.loads((REVIEWS / f"{POD}.json").read_bytes())
    kind = {"group": "example.io", "version": "v1", "kind": "Widget"}
    resource = {"group": "example.io", "version": "v1", "resource": "widgets"}
    review["request"] |= {
        "kind": kind,
        "requestKind": kind,
        "resource": resource,
        "requestResource": resource,
    }
    review["request"]["object"] = {
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"size": 1},
    }
    return json.dumps(review).encode()


def test_custom_resources_are_mutated_by_the_schemas_of_the_cluster(
    server: ApiServer, tmp_path: Path, stage: Stage
) -> None:
    server.kubeconfig(tmp_path)
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "c.yaml").write_text(settings(kubeconfig="../kubeconfig") + widgets())
    server.put("default")
    server.objects["/openapi/v3"] = {"paths": {}}
    gateway = stage.start_gateway(folder)
    refused = gateway.review("/mutate", widget_review())
    assert "there is no schema of example.io/v1, Kind=Widget" in refused["status"]["message"]

    text = {"type": "string"}
    spec = {"type": "object", "properties": {"owner": text, "size": {"type": "integer"}}}
    metadata = {"type": "object", "additionalProperties": text}
    kind = {"group": "example.io", "version": "v1", "kind": "Widget"}
    server.objects["/openapi/v3/apis/example.io/v1"] = {
        "components": {
            "schemas": {
                "Widget": {
                    "type": "object",
                    "properties": {"apiVersion": text, "kind": text, "metadata": metadata, "spec": spec},
                    "x-kubernetes-group-version-kind": [kind],
                }
            }
        }
    }
    entry = {"serverRelativeURL": "/openapi/v3/apis/example.io/v1?hash=1"}
    server.objects["/openapi/v3"] = {"paths": {"apis/example.io/v1": entry}}
    found = stage.eventually(lambda: gateway.review("/mutate", widget_review()).get("patch"))
    assert found is not None
    assert json.loads(b64decode(found)) == [{"op": "add", "path": "/spec/owner", "value": "nobody"}]


def test_a_cluster_of_another_version_is_logged(
    server: ApiServer, configure: Callable[..., Path], target: str, stage: Stage
) -> None:
    server.objects["/version"] = {"major": "1", "minor": "33"}
    folder = configure(
        target, matchConditions=[{"name": "any", "expression": "object.metadata.labels != ''"}]
    )
    stage.start_gateway(folder).expect(
        "other version of Kubernetes: the API server has Kubernetes 1.33, and expressions are"
    )
