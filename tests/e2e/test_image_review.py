"""ImagePolicyWebhook on both sides: an API server asks the gateway, and a gateway asks an existing backend.

The backend of both is a gateway with the policy ``require-image-digests``. One API server has the plug-in,
the other one has a gateway with the backend as a webhook.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.e2e.client import MERGE_PATCH
from tests.e2e.cluster import Cluster
from tests.e2e.objects import deployment, pod
from tests.e2e.setups import BehindGateway, Hook
from tests.kit import GatewayProcess, Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer

PODS: Final = "/api/v1/namespaces/default/pods"
_FIELD: Final = re.compile(r"spec\.\S+\.image: ")
WEBHOOK: Final = "images.policies.test"
SETTINGS: Final = {"allowTTL": -1, "denyTTL": -1, "retryBackoff": 1}
PREFIX: Final = "imagepolicywebhook.image-policy.k8s.io/"

Json = dict[str, Any]

BACKEND: Final = """
apiVersion: admission-gateway.io/v1alpha1
kind: WorkerPool
metadata: {name: policies}
spec: {command: [python, -m, admission_gateway_worker.policies]}
---
apiVersion: admission-gateway.io/v1alpha1
kind: GatewayConfiguration
imageReview: {webhooks: [digests.policies.test, failing.policies.test]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: digests}
webhooks:
  - name: digests.policies.test
    clientConfig:
      worker: {pool: policies, policy: require-image-digests}
    rules:
      - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}
    sideEffects: None
    admissionReviewVersions: [v1]
  - name: failing.policies.test
    clientConfig:
      worker: {pool: policies, policy: require-image-digests}
    rules:
      - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}
    matchConditions:
      - name: fails
        expression: "object.spec.containers.exists(c, c.image.startsWith('fails')) && object.missing"
    sideEffects: None
    admissionReviewVersions: [v1]
"""


class WithBackend(BehindGateway):
    """A gateway whose webhook asks the backend of *kubeconfig*."""

    kubeconfig: Path

    def client_configs(self) -> list[Json]:
        images = {"imageReview": {"kubeConfigFile": str(self.kubeconfig), **SETTINGS}}
        configs = zip(self.hooks, super().client_configs(), strict=True)
        return [images if hook.name == WEBHOOK else config for hook, config in configs]


class Pair:
    """Two clusters: with the plug-in, and with a gateway."""

    def __init__(self, plugin: Cluster, gateway: Cluster, backend: GatewayProcess) -> None:
        self.clusters = plugin, gateway
        self.backend = backend

    def both(self, method: str, path: str, document: Json | None = None) -> tuple[int, str]:
        """Send a request to both, and return status and message, which have to be equal."""
        content_type = MERGE_PATCH if method == "PATCH" else "application/json"
        one, other = (each.api.request(method, path, document, content_type) for each in self.clusters)
        assert seen(one) == seen(other), (one, other)
        return seen(one)


def seen(answer: Answer) -> tuple[int, str]:
    """Return status and message in a form that both clusters share."""
    text = answer.message if answer.status >= 400 else ""
    for begin in (f" denied the request: {WEBHOOK}: ", " is forbidden: "):
        text = text.rpartition(begin)[2] if begin in text else text
    # The containers of an ImageReview are those of all lists of the pod: their fields differ.
    return answer.status, _FIELD.sub("", text)


@pytest.fixture(scope="module")
def pair(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("images")
    (folder / "backend.yaml").write_text(BACKEND)
    certificate = cluster.issue(folder, "localhost", "127.0.0.1")
    backend = GatewayProcess(folder / "backend.yaml", certificate, cluster.authority)
    kubeconfig = folder / "backend.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(kubeconfig_of(backend, cluster.ca_file)))
    plugin = {
        "name": "ImagePolicyWebhook",
        "configuration": {
            "imagePolicy": {"kubeConfigFile": str(kubeconfig), "defaultAllow": False, **SETTINGS}
        },
    }
    admission = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [plugin],
    }
    (folder / "admission.yaml").write_text(yaml.safe_dump(admission))
    flags = (
        "--enable-admission-plugins=ImagePolicyWebhook",
        f"--admission-control-config-file={folder / 'admission.yaml'}",
    )
    rules = [
        {
            "operations": ["CREATE", "UPDATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods", "pods/ephemeralcontainers"],
        }
    ]
    hook = Hook("validate", WEBHOOK, {}, tuple(rules))
    setup = WithBackend(cluster, folder / "gateway", [hook], "images")
    setup.kubeconfig = kubeconfig
    try:
        with Cluster(cluster.binaries, folder / "cluster", *flags) as other, setup:
            yield Pair(other, cluster, backend)
    finally:
        backend.stop()


def kubeconfig_of(backend: Process, ca_file: Path) -> Json:
    assert isinstance(backend, GatewayProcess)
    server = f"https://localhost:{backend.port}/image-review"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "backend",
        "contexts": [{"name": "backend", "context": {"cluster": "backend", "user": "caller"}}],
        "clusters": [
            {"name": "backend", "cluster": {"server": server, "certificate-authority": str(ca_file)}}
        ],
        "users": [{"name": "caller", "user": {"token": "of-the-caller"}}],
    }


def of_images(name: str, *images: str, init: str = "") -> Json:
    found = pod(name)
    first = found["spec"]["containers"][0]
    found["spec"]["containers"] = [
        {**first, "name": f"c{n}", "image": image} for n, image in enumerate(images)
    ]
    if init:
        found["spec"]["initContainers"] = [{**first, "name": "init", "image": init}]
    return found


def refusal(*images: str) -> tuple[int, str]:
    """Return what users see of a refusal; *images* are those without a digest."""
    texts = (f'image "{image}" has no digest: add @sha256:…' for image in images)
    reason = f"digests.policies.test: {'; '.join(texts)}"
    return 403, f"image policy webhook backend denied one or more images: {reason}"


def test_pods_are_decided_alike(pair: Pair) -> None:
    assert pair.both("POST", PODS, of_images("good", "a@sha256:0", "b@sha256:0")) == (201, "")
    assert pair.both("POST", PODS, of_images("one", "a@sha256:0", "b:1")) == refusal("b:1")
    init = of_images("init", "a@sha256:0", init="i:1")
    assert pair.both("POST", PODS, init) == refusal("i:1")
    several = of_images("many", "a:1", "b:1", init="c:1")
    assert pair.both("POST", PODS, several) == refusal("a:1", "b:1", "c:1")


def test_users_see_why_a_backend_fails(pair: Pair) -> None:
    for each, status in zip(pair.clusters, (403, 500), strict=True):
        answer = each.api.create(PODS, of_images("failing", "fails@sha256:0"))
        assert answer.status == status
        assert 'an error on the server ("failed calling webhook ' in answer.message
        assert "no such key: missing" in answer.message


def test_updates_are_decided_alike(pair: Pair) -> None:
    path = f"{PODS}/changing"
    assert pair.both("POST", PODS, of_images("changing", "a@sha256:0"))[0] == 201
    assert pair.both("PATCH", path, {"metadata": {"labels": {"x": "y"}}}) == (200, "")
    found: Json = pair.clusters[0].api.get(path).document
    for volatile in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        found["metadata"].pop(volatile, None)
    debug = {**found["spec"], "ephemeralContainers": [{"name": "debug", "image": "d:1"}]}
    assert pair.both("PUT", f"{path}/ephemeralcontainers", {**found, "spec": debug}) == refusal("d:1")
    found["spec"]["containers"][0]["image"] = "a:2"
    assert pair.both("PUT", path, found) == refusal("a:2")


def test_workloads_are_not_reviewed(pair: Pair) -> None:
    workload = deployment("web")
    workload["spec"]["template"]["spec"]["containers"][0]["image"] = "a:1"
    path = "/apis/apps/v1/namespaces/default/deployments"
    assert pair.both("POST", path, workload) == (201, "")


def test_without_a_backend_pods_are_refused(pair: Pair) -> None:
    pair.backend.stop()
    for each in pair.clusters:
        answer = each.api.create(PODS, of_images("later", "a@sha256:0"))
        assert answer.status >= 400
        assert "connection refused" in answer.message
