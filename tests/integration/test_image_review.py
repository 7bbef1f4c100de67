"""Both sides of the API server's ImagePolicyWebhook: its backends as webhooks, and a backend for it."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.kit import REVIEWS, pool_document, run_command, webhook_document
from tests.webhook_process import WebhookProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway
    from tests.worker.server import StartWorker

pytestmark = pytest.mark.process

OF_IMAGES = {"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1"}
POD = json.loads((REVIEWS / "pod-create-mutate.json").read_bytes())
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["*/*"], "operations": ["*"]}


def answer(**status: Any) -> dict[str, Any]:
    """Return the script of a backend that answers with *status*."""
    return {"body": json.dumps({**OF_IMAGES, "status": status})}


def review(spec: dict[str, Any], annotations: dict[str, str] | None = None, **members: Any) -> bytes:
    document = json.loads(json.dumps(POD))
    pod = document["request"]["object"]
    pod["spec"] = spec
    pod["metadata"]["annotations"] = annotations or {}
    document["request"].update(members)
    return json.dumps(document).encode()


def containers(*images: str) -> list[dict[str, str]]:
    return [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookProcess]:
    process = WebhookProcess(tmp_path_factory.mktemp("backend"))
    yield process
    process.stop()


class Asker:
    """A gateway with one webhook that asks *backend*, which answers by a script."""

    def __init__(self, folder: Path, backend: WebhookProcess) -> None:
        self._folder, self._backend = folder, backend

    def write(self, script: dict[str, Any], webhook: dict[str, Any], **settings: Any) -> Path:
        """Write the configuration. The script is different for each folder, so that requests are its own."""
        self.client = self._backend.client({**script, "of": str(self._folder)})
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": self.client.url,
                        "certificate-authority-data": base64.b64encode(self.client.ca_pem).decode(),
                    },
                }
            ],
            "users": [{"name": "u", "user": {"token": "of-the-gateway"}}],
        }
        (self._folder / "kube").mkdir()
        (self._folder / "kube" / "images.conf").write_text(yaml.safe_dump(kubeconfig))
        entry = {
            "name": "images.policies.test",
            "clientConfig": {"imageReview": {"kubeConfigFile": "kube/images.conf", **settings}},
            "rules": [PODS],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **webhook,
        }
        document = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "images"},
            "webhooks": [entry],
        }
        file = self._folder / "c.yaml"
        file.write_text(yaml.safe_dump(document))
        return file

    def requests(self) -> list[dict[str, Any]]:
        return self._backend.requests(self.client)

    def specs(self) -> list[dict[str, Any]]:
        """Return the specs of the ImageReviews that the backend has received."""
        found = [json.loads(each["body"]) for each in self.requests()]
        assert all(each | OF_IMAGES == each for each in found)
        return [each["spec"] for each in found]


@pytest.fixture
def asker(tmp_path: Path, backend: WebhookProcess) -> Asker:
    return Asker(tmp_path, backend)


@pytest.fixture
def serve(asker: Asker, start_gateway: StartGateway) -> Callable[..., GatewayProcess]:
    def serve(
        script: dict[str, Any], webhook: dict[str, Any] | None = None, **settings: Any
    ) -> GatewayProcess:
        return start_gateway(asker.write(script, webhook or {}, **settings))

    return serve


def test_the_backend_sees_images_annotations_and_namespace(
    asker: Asker, serve: Callable[..., GatewayProcess]
) -> None:
    gateway = serve(answer(allowed=True, auditAnnotations={"audit-required": "yes"}))
    spec = {"containers": containers("a", "b"), "initContainers": containers("c", "a")}
    annotations = {"mine.image-policy.k8s.io/ticket-1": "break-glass", "other/key": "x"}
    response = gateway.review("/validate", review(spec, annotations, namespace="shop"))
    assert response["allowed"] is True
    assert response["auditAnnotations"] == {"images.policies.test.audit-required": "yes"}
    assert asker.specs() == [
        {
            "containers": [{"image": "a"}, {"image": "b"}, {"image": "c"}, {"image": "a"}],
            "annotations": {"mine.image-policy.k8s.io/ticket-1": "break-glass"},
            "namespace": "shop",
        }
    ]
    (request,) = asker.requests()
    assert request["headers"]["Authorization"] == "Bearer of-the-gateway"
    assert "?" not in request["target"]


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("no scan", "image policy webhook backend denied one or more images: no scan"),
        ("", "one or more images rejected by webhook backend"),
    ],
)
def test_a_denial_has_the_text_of_the_api_server(
    serve: Callable[..., GatewayProcess], reason: str, message: str
) -> None:
    gateway = serve(answer(allowed=False, reason=reason))
    status = gateway.review("/validate", review({"containers": containers("a")}))["status"]
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"] == f"images.policies.test: {message}"


def test_only_the_ephemeral_containers_of_their_subresource_are_reviewed(
    asker: Asker, serve: Callable[..., GatewayProcess]
) -> None:
    gateway = serve(answer(allowed=True))
    spec = {"containers": containers("a"), "ephemeralContainers": containers("e")}
    gateway.review("/validate", review(spec, subResource="ephemeralcontainers", operation="UPDATE"))
    (found,) = asker.specs()
    assert found["containers"] == [{"image": "e"}]
    deployment = {"group": "apps", "version": "v1", "resource": "deployments"}
    for members in (
        {"subResource": "status", "operation": "UPDATE"},
        {"operation": "DELETE", "object": None, "oldObject": POD["request"]["object"]},
        {"resource": deployment, "requestResource": deployment},
    ):
        assert gateway.review("/validate", review(spec, **members))["allowed"] is True
    assert len(asker.specs()) == 1


@pytest.mark.parametrize(("allowed", "switched_off"), [(True, "allowTTL"), (False, "denyTTL")])
def test_a_verdict_holds_for_the_same_images(
    asker: Asker, serve: Callable[..., GatewayProcess], allowed: bool, switched_off: str
) -> None:
    others = {"allowTTL", "denyTTL"} - {switched_off}
    gateway = serve(answer(allowed=not allowed), **dict.fromkeys(others, 1800), **{switched_off: -1})
    for name in ("one", "two"):
        response = gateway.review("/validate", review({"containers": containers("a")}, name=name))
        assert response["allowed"] is not allowed
    gateway.review("/validate", review({"containers": containers("b")}))
    assert [spec["containers"] for spec in asker.specs()] == [[{"image": "a"}], [{"image": "b"}]]


def test_a_verdict_without_a_time_to_live_is_not_kept(
    asker: Asker, serve: Callable[..., GatewayProcess]
) -> None:
    gateway = serve(answer(allowed=True), allowTTL=-1)
    for _ in range(2):
        gateway.review("/validate", review({"containers": containers("a")}))
    assert len(asker.specs()) == 2


def test_busy_backends_are_asked_again(asker: Asker, serve: Callable[..., GatewayProcess]) -> None:
    failures = [*({"status": status, "body": ""} for status in (500, 429, 502)), {"hang_up": True}]
    gateway = serve({"sequence": [*failures, answer(allowed=True)]}, retryBackoff=1)
    assert gateway.review("/validate", review({"containers": containers("a")}))["allowed"] is True


def test_other_failures_end_the_call(asker: Asker, serve: Callable[..., GatewayProcess]) -> None:
    gateway = serve({"sequence": [{"status": 503, "body": ""}, answer(allowed=True)]}, retryBackoff=1)
    assert gateway.review("/validate", review({"containers": containers("a")}))["allowed"] is False
    assert len(asker.specs()) == 1


@pytest.mark.parametrize("default_allow", [True, False])
def test_without_an_answer_the_default_decides(
    serve: Callable[..., GatewayProcess], default_allow: bool
) -> None:
    gateway = serve({"status": 500, "body": "broken"}, defaultAllow=default_allow, retryBackoff=1)
    response = gateway.review("/validate", review({"containers": containers("a")}))
    assert response["allowed"] is default_allow
    fail_open = gateway.metric("admission_gateway_webhook_fail_open_total", name="images.policies.test")
    assert fail_open == default_allow


def test_an_object_that_is_no_pod_is_a_failure(serve: Callable[..., GatewayProcess]) -> None:
    gateway = serve(answer(allowed=True))
    for spec in ("x", {"containers": ["x"]}, {"containers": 5}, {"containers": [{"image": ["x"]}]}):
        status = gateway.review("/validate", review(spec))["status"]  # type: ignore[arg-type]
        assert "the object has no spec of a Pod" in status["message"]


@pytest.mark.parametrize(
    ("webhook", "settings", "message"),
    [
        (
            {"failurePolicy": "Fail"},
            {"defaultAllow": True},
            "failurePolicy: found Fail, which contradicts clientConfig.imageReview.defaultAllow",
        ),
        ({}, {"allowTTL": 1801}, "imageReview.allowTTL: found the number 1801"),
        ({}, {"retryBackoff": -2}, "imageReview.retryBackoff: found the number -2"),
        ({}, {"kubeConfigFile": "absent"}, "imageReview.kubeConfigFile: "),
        ({}, {"cache": 1}, "imageReview.cache: unknown field"),
    ],
)
def test_a_wrong_configuration_is_refused(
    asker: Asker, webhook: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    found = run_command("check", "--config", str(asker.write({}, webhook, **settings)))
    assert found.returncode == 1
    assert message in found.stderr


def image_review(*images: str, **spec: Any) -> bytes:
    containers = [{"image": image} for image in images]
    return json.dumps({**OF_IMAGES, "metadata": {}, "spec": {"containers": containers, **spec}}).encode()


@pytest.fixture
def answering(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> Callable[..., GatewayProcess]:
    """A gateway whose webhook h1 denies everything, and whose other webhooks answer ImageReviews."""

    def answering(script: dict[str, Any], *others: dict[str, Any]) -> GatewayProcess:
        settings = {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "GatewayConfiguration",
            "imageReview": {"webhooks": ["h0.v.test", *(f"h{n}.v.test" for n in range(2, 2 + len(others)))]},
        }
        deny = {"deny": {"code": 403, "message": "no team"}}
        (tmp_path / "c.yaml").write_text(
            pool_document("pool", start_worker().target)
            + webhook_document("validate", "v", "pool", script, deny, *others)
            + f"---\n{yaml.safe_dump(settings)}"
        )
        return start_gateway(tmp_path)

    return answering


def test_image_reviews_are_answered_by_the_named_webhooks(answering: Callable[..., GatewayProcess]) -> None:
    gateway = answering({"annotations": {"scanned": "yes"}})
    found = json.loads(gateway.post("/image-review", image_review("a", "b", namespace="shop")))
    assert found == {
        **OF_IMAGES,
        "metadata": {},
        "spec": {},
        "status": {"allowed": True, "auditAnnotations": {"h0.v.test.scanned": "yes"}},
    }


def test_a_denial_has_its_reason(answering: Callable[..., GatewayProcess]) -> None:
    gateway = answering({"deny": {"code": 403, "message": "not scanned"}})
    status = json.loads(gateway.post("/image-review", image_review("a")))["status"]
    assert (status["allowed"], status["reason"]) == (False, "h0.v.test: not scanned")


def test_failures_without_a_denial_are_no_verdict(answering: Callable[..., GatewayProcess]) -> None:
    """The API server would keep a verdict, and has settings of its own for failures."""
    gateway = answering({"status": "INTERNAL", "details": "broken"})
    status, body = gateway.exchange("/image-review", image_review("a"))
    assert (status, body) == (500, b'failed calling webhook "h0.v.test": INTERNAL: broken')


def test_a_denial_beside_a_failure_is_a_verdict(answering: Callable[..., GatewayProcess]) -> None:
    gateway = answering({"status": "INTERNAL"}, {"deny": {"code": 403, "message": "not scanned"}})
    status = json.loads(gateway.post("/image-review", image_review("a")))["status"]
    assert status["allowed"] is False
    assert status["reason"].endswith("h2.v.test: not scanned")


def test_a_failure_that_is_ignored_is_an_admission(answering: Callable[..., GatewayProcess]) -> None:
    gateway = answering({"status": "INTERNAL", "webhook": {"failurePolicy": "Ignore"}})
    assert json.loads(gateway.post("/image-review", image_review("a")))["status"]["allowed"] is True


def test_the_webhook_sees_a_pod_with_the_images(answering: Callable[..., GatewayProcess]) -> None:
    gateway = answering({"raw": "the request"})
    body = image_review("a", annotations={"x.image-policy.k8s.io/y": "z"}, namespace="shop")
    reason = json.loads(gateway.post("/image-review", body))["status"]["reason"]
    request = json.loads(base64.b64decode(reason.partition(": ")[2]))
    assert request["object"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "shop", "annotations": {"x.image-policy.k8s.io/y": "z"}},
        "spec": {"containers": [{"name": "image-0", "image": "a"}]},
    }
    assert (request["operation"], request["namespace"]) == ("CREATE", "shop")


def test_other_bodies_are_refused(answering: Callable[..., GatewayProcess]) -> None:
    gateway = answering({})

    def spec(**members: Any) -> bytes:
        return json.dumps({**OF_IMAGES, "spec": members}).encode()

    of_another_version = json.dumps({**OF_IMAGES, "apiVersion": "v1"}).encode()
    for body, message in (
        (b"{", "the body is not JSON: "),
        (b"[]", "found a list, expected a mapping"),
        (json.dumps(POD).encode(), 'kind: found the string "AdmissionReview", expected ImageReview'),
        (b"{}", "kind: found null, expected ImageReview"),
        (of_another_version, 'apiVersion: found the string "v1", expected imagepolicy.k8s.io/v1alpha1'),
        (json.dumps({**OF_IMAGES, "spec": 1}).encode(), "spec: found the number 1, expected a mapping"),
        (spec(annotations={"x": 1}), "spec.annotations: found the number 1 as a value, expected a string"),
        (spec(annotations=[]), "spec.annotations: found a list, expected a mapping"),
        (spec(namespace=[]), "spec.namespace: found a list, expected a string"),
        (spec(containers={}), "spec.containers: found a mapping, expected a list"),
        (spec(containers=["a"]), 'spec.containers[0]: found the string "a", expected a mapping'),
        (
            spec(containers=[{"image": "a"}, {"image": 1}]),
            "spec.containers[1].image: found the number 1, expected a string",
        ),
        (spec(containers=[{}]), "spec.containers[0].image: is required, expected the name of an image"),
        (spec(containers=[{"image": ""}]), "spec.containers[0].image: is required"),
        (image_review(*["a"] * 1001), "spec.containers: found 1001 of them, expected at most 1000"),
        (image_review(*["a" * 1000] * 300), "the ImageReview has "),
    ):
        status, text = gateway.exchange("/image-review", body)
        assert status == 400, body[:80]
        assert json.loads(text)["error"].startswith(message)
    assert gateway.exchange("/image-review", image_review(*["a"] * 1000))[0] == 200
    assert gateway.review("/validate", json.dumps(POD).encode())["allowed"] is False


def test_without_webhooks_for_them_there_is_no_path(serve: Callable[..., GatewayProcess]) -> None:
    gateway = serve(answer(allowed=True))
    assert gateway.exchange("/image-review", image_review("a"))[0] == 404
