"""What the API server's own plug-ins change and refuse, by the objects of the manifests or of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.kit import call_command
from tests.kubernetes.server import ApiServer
from tests.preview.kit import WEB, configure, deny, findings, pods, preview

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker

pytestmark = pytest.mark.process

LIMITS = """\
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec:
  limits:
    - {type: Container, default: {cpu: 500m}, max: {cpu: "1"}}
"""
POD = {"containers": [{"name": "main", "image": "a:1"}]}
CLASS = {"value": 7, "preemptionPolicy": "Never", "globalDefault": True}


def pod_of(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in report["objects"] if one["kind"] == "Pod")
    return found


def test_pods_get_what_objects_of_the_manifests_say(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target)
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    account = (
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default}\nimagePullSecrets: [{name: pull}]\n"
    )
    # The order of files does not matter.
    (manifests / "a.yaml").write_text(WEB)
    (manifests / "b.yaml").write_text(f"{LIMITS}---\n{account}automountServiceAccountToken: false\n")
    preview(manifests, "--config", config, "--write", tmp_path / "final")
    file = next((tmp_path / "final" / "default").glob("pod-*"))
    spec = yaml.safe_load(file.read_text())["spec"]
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}}
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert "volumes" not in spec


def test_refusals_are_denials_with_their_place(tmp_path: Path, start_worker: StartWorker) -> None:
    target = start_worker().target
    config = configure(tmp_path / "c.yaml", target, validate=[pods(deny("and this"))])
    file = tmp_path / "web.yaml"
    large = WEB + "          resources:\n            limits:\n              cpu: 2\n"
    file.write_text(f"{LIMITS}---\n{large}")
    report = preview(file, "--config", config, status=1)
    limit, denied = findings(report)
    assert (limit["rule"], limit["finding"], limit["level"], limit["code"]) == (
        "LimitRanger",
        "denied",
        "error",
        403,
    )
    assert limit["message"] == "maximum cpu usage per Container is 1, but limit is 2"
    assert file.read_text().split("\n")[limit["line"] - 1].strip() == "cpu: 2"
    # Validating webhooks are called all the same, so that all denials are shown.
    assert denied["message"] == "and this"
    assert not pod_of(report)["stoppedInMutatingPhase"]
    text = call_command("preview", file, "--config", config).stdout
    assert "error: denied by LimitRanger: maximum cpu usage" in text


def test_a_cluster_has_what_the_manifests_lack(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[pods(deny("no", when="app"))])
    web = WEB + "      serviceAccountName: web\n"
    with ApiServer() as server:
        server.put("default")
        lists = {
            "/api/v1/namespaces/default/limitranges": [],
            "/api/v1/namespaces/default/serviceaccounts": [{"metadata": {"name": "default"}}],
            "/apis/scheduling.k8s.io/v1/priorityclasses": [{"metadata": {"name": "gold"}, **CLASS}],
            "/apis/node.k8s.io/v1/runtimeclasses": [],
            "/apis/storage.k8s.io/v1/storageclasses": [],
        }
        for path, items in lists.items():
            server.objects[path] = {"items": items, "metadata": {}}
        arguments = ("-", "--config", config, "--kubeconfig", server.kubeconfig(tmp_path))
        report = preview(*arguments, stdin=web, status=1)
        [found] = findings(report)
        assert found["rule"] == "ServiceAccount"
        assert found["message"] == (
            'error looking up service account default/web: serviceaccount "web" not found'
        )
        assert pod_of(report)["stoppedInMutatingPhase"]
        account = "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n"
        report = preview(*arguments, stdin=web + account, status=1)
        assert [one["message"] for one in findings(report)] == ["no"]
        bare = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": POD})
        done = call_command("preview", *arguments, "--write", tmp_path / "final", stdin=bare.encode())
        assert done.returncode == 0, done.stdout
        spec = yaml.safe_load((tmp_path / "final" / "default" / "pod-p.yaml").read_text())["spec"]
        assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == ("gold", 7, "Never")
        assert "serviceaccounts of the cluster are not considered" not in done.stderr
        assert "ingressclasses of the cluster are not considered: " in done.stderr
