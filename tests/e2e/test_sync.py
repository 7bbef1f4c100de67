"""Webhooks whose objects knative.dev/pkg's reconcilers write, moved behind the gateway and in sync there.

The reconcilers are the library's own. Its client of Kubernetes 1.26 has no matchConditions, and drops them
from the objects that it writes.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gateway.tools.registration.unregistered import is_unregistered
from tests.dispatch.https.conftest import Proxy
from tests.e2e.cluster import NAMESPACE, Cluster
from tests.e2e.golang import ROOT, go, kept
from tests.e2e.objects import config_map
from tests.e2e.setups import REGISTRATIONS
from tests.kit import GatewayProcess, Process, free_port, run_command, serving
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Json = dict[str, Any]

NAME, GATEWAY = "items", "followed"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}"
OBJECTS = {
    f"{NAME}-default.knative.test": "mutating",
    f"{NAME}-bind.knative.test": "mutating",
    f"{NAME}-validate.knative.test": "validating",
}


def path_of(name: str) -> str:
    return f"{REGISTRATIONS}/{OBJECTS[name]}webhookconfigurations/{name}"


class Reconcilers(Process):
    """A running project on knative.dev/pkg, for objects of *kinds*."""

    def __init__(self, program: Path, cluster: Cluster, port: int, kinds: str) -> None:
        super().__init__(
            *(
                "env",
                f"SYSTEM_NAMESPACE={NAMESPACE}",
                str(program),
                "--kubeconfig",
                str(cluster.kubeconfig()),
            ),
            *("--name", NAME, "--port", str(port), "--kinds", kinds),
        )


@pytest.fixture(scope="module")
def program() -> Path:
    module = ROOT / "tests" / "e2e" / "knative"
    sources = [module / name for name in ("go.mod", "go.sum", "main.go")]

    def make(programs: Path) -> None:
        go("build", "-o", f"{programs}{os.sep}", ".", cwd=module)

    return kept("knative", sources, [], make) / "knative"


@pytest.fixture
def port(cluster: Cluster) -> Iterator[int]:
    """The port of the webhooks; the objects of a release are created, and deleted afterwards."""
    port = free_port()
    cluster.add_service(NAME)
    secret: Json = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}}
    assert cluster.api.create(SECRET.rpartition("/")[0], secret).status == 201
    for name, phase in OBJECTS.items():
        hook = {
            "name": name,
            "clientConfig": {"service": {"name": NAME, "namespace": NAMESPACE, "port": port}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
        }
        kind = f"{phase.title()}WebhookConfiguration"
        document = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
        made = cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**document, "webhooks": [hook]}))
        assert made.returncode == 0, made.stderr
    try:
        yield port
    finally:
        for name in OBJECTS:
            cluster.api.delete(path_of(name))
        for kind in ("mutating", "validating"):
            cluster.api.delete(f"{REGISTRATIONS}/{kind}webhookconfigurations/{GATEWAY}")
        cluster.api.delete(SECRET)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy that maps every name to this machine, as a cluster's DNS and Services."""
    proxy = Proxy()
    with serving(proxy):
        yield proxy


def entry_of(cluster: Cluster, name: str) -> Json:
    (entry,) = cluster.api.get(path_of(name)).document["webhooks"]
    found: Json = entry
    return found


def bundles(cluster: Cluster) -> set[str]:
    return {entry_of(cluster, name)["clientConfig"].get("caBundle", "") for name in OBJECTS}


def created(cluster: Cluster, plural: str, document: Json) -> tuple[int, str]:
    """Return the status of a dry run, and the value of the defaulting webhook."""
    answer = cluster.api.create(f"/api/v1/namespaces/default/{plural}?dryRun=All", document)
    return answer.status, answer.document.get("metadata", {}).get("labels", {}).get("stamp", "")


def map_labelled(*labels: str) -> Json:
    document: Json = config_map("followed")
    document["metadata"]["labels"] = dict.fromkeys(labels, "yes")
    return document


def limits(*labels: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "followed", "labels": dict.fromkeys(labels, "yes")},
        "spec": {"limits": []},
    }


def test_reconcilers_continue_and_the_gateway_follows(
    cluster: Cluster,
    program: Path,
    port: int,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kubeconfig, config = cluster.kubeconfig(), tmp_path / "config"
    issued = cluster.issue(tmp_path, f"{GATEWAY}.{NAMESPACE}.svc", "localhost", "127.0.0.1")
    tls = {"certFile": str(issued[0]), "keyFile": str(issued[1])}
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    sync = ("sync", "--kubeconfig", kubeconfig, "--output", config)
    reconcilers = Reconcilers(program, cluster, port, "ConfigMap")
    following: Process | None = None
    gateway: GatewayProcess | None = None
    try:
        eventually(lambda: created(cluster, "configmaps", map_labelled()) == (201, "knative"))
        # Each object has a reconciler of its own.
        eventually(lambda: "" not in bundles(cluster), "all objects are reconciled")
        imported = run_command("import", "--kubeconfig", kubeconfig, "--output", config)
        assert imported.returncode == 0, imported.stderr
        assert "a controller writes rules or selectors of 3 configurations" in imported.stderr
        assert "a controller writes the caBundle of 3 configurations" in imported.stderr
        assert f"admission-gateway sync --kubeconfig {kubeconfig} --output {config} --unregister" in (
            imported.stderr.splitlines()
        )

        # knative.dev/pkg adds a namespaceSelector, so the gateway needs the namespaces.
        settings = {"tls": tls, "kubernetes": {"kubeconfig": str(kubeconfig)}}
        (config / "gateway.yaml").write_text(json.dumps({**head, **settings}))
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.server_port}")
        gateway = GatewayProcess(config, issued, cluster.authority)
        monkeypatch.delenv("HTTPS_PROXY")
        cluster.add_service(GATEWAY)
        manifests = [
            *("manifests", "--config", str(config), "--service", f"{NAMESPACE}/{GATEWAY}:{gateway.port}"),
            *("--name", GATEWAY, "--ca-file", str(cluster.ca_file), "--apply"),
            *("--kubeconfig", str(kubeconfig)),
        ]
        assert run_command(*manifests).returncode == 0
        unregistered = run_command(*sync, "--unregister")
        assert unregistered.returncode == 0, unregistered.stderr
        assert len(unregistered.stdout.splitlines()) == 3

        # The mark survives when the reconcilers write another certificate after an event of their informer.
        before = bundles(cluster)
        assert len(before) == 1
        patch(cluster, "secret", NAME, {"op": "remove", "path": "/data"})
        eventually(lambda: len(after := bundles(cluster)) == 1 and after != before)
        assert all(is_unregistered(entry_of(cluster, name)) for name in OBJECTS)

        # From here on one process follows the webhooks and updates the registration.
        following = Process(
            *command("--watch", "--unregister", "--kubeconfig", str(kubeconfig)),
            *("--output", str(config), "--then", " ".join(command(*manifests[1:], name="manifests"))),
        )
        eventually(lambda: created(cluster, "configmaps", map_labelled()) == (201, "knative"))
        assert created(cluster, "configmaps", map_labelled("refuse"))[0] >= 400

        # Another release has another kind: the rules change, and another writer removes the mark.
        assert created(cluster, "limitranges", limits()) == (201, "")
        reconcilers.stop()
        reconcilers = Reconcilers(program, cluster, port, "ConfigMap,LimitRange")
        eventually(lambda: created(cluster, "limitranges", limits()) == (201, "knative"))
        eventually(lambda: created(cluster, "limitranges", limits("refuse"))[0] >= 400)
        default = next(iter(OBJECTS))
        taken = {"op": "replace", "path": "/webhooks/0/objectSelector", "value": {}}
        patch(cluster, "mutatingwebhookconfiguration", default, taken)
        eventually(lambda: is_unregistered(entry_of(cluster, default)))
        following.expect(f"{default} was registered again, last writer: kubectl-patch")
        assert len(proxy.heads) > 0, "reviews went through the gateway"

        # The way back.
        following.stop()
        following = None
        restored = run_command("sync", "--kubeconfig", kubeconfig, "--restore")
        assert restored.returncode == 0, restored.stderr
        for kind in ("mutating", "validating"):
            cluster.api.delete(f"{REGISTRATIONS}/{kind}webhookconfigurations/{GATEWAY}")
        gateway.stop()
        gateway = None
        eventually(lambda: created(cluster, "limitranges", limits()) == (201, "knative"))
        assert not any(is_unregistered(entry_of(cluster, name)) for name in OBJECTS)
    finally:
        for process in (following, gateway, reconcilers):
            if process is not None:
                process.stop()


def patch(cluster: Cluster, kind: str, name: str, operation: Json) -> None:
    options = ("--namespace", NAMESPACE, "--type=json", "-p", json.dumps([operation]))
    done = cluster.kubectl("patch", kind, name, *options)
    assert done.returncode == 0, done.stderr


def command(*arguments: str, name: str = "sync") -> list[str]:
    return [sys.executable, "-m", "gateway", name, *arguments]


def test_a_reconciler_needs_its_object(cluster: Cluster, program: Path, port: int) -> None:
    """The reason why sync deletes nothing: the library fails and retries until the object exists."""
    cluster.api.delete(path_of(f"{NAME}-default.knative.test"))
    reconcilers = Reconcilers(program, cluster, port, "ConfigMap")
    try:
        reconcilers.expect(r"error retrieving webhook.*not found")
    finally:
        reconcilers.stop()
