"""The objects of ``caBundleFrom``: each followed alone, and the last valid bundle in force."""

from __future__ import annotations

import base64
import json
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.pure.core.webhook import CaBundleSource
from gateway.server.kubernetes import access
from gateway.server.kubernetes.ca_bundles import ClusterCaBundles
from gateway.server.kubernetes.watch import Pace
from tests.fakes.https_webhook import Seen, Webhook, path_of
from tests.kit import REVIEWS
from tests.kubernetes.server import refuse
from tests.stream_server import stream_server
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.in_process import Stage
    from tests.kubernetes.server import ApiServer

SECRET = CaBundleSource("Secret", "certificates", "ca", "ca.crt")
AT = "/api/v1/namespaces/certificates/secrets/ca"
CONFIG_MAP = CaBundleSource("ConfigMap", "certificates", "roots", "roots.pem")
ISTIO = CaBundleSource("MutatingWebhookConfiguration", "", "injector", "a.injector.test")
FAST = Pace(first_pause_s=0.01, longest_pause_s=0.02)
PEM = trustme.CA().cert_pem.bytes()
OTHER = trustme.CA().cert_pem.bytes()


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


@pytest.fixture
def followed(server: ApiServer, tmp_path: Path, stage: Stage) -> Iterator[ClusterCaBundles]:
    async def make() -> ClusterCaBundles:
        return ClusterCaBundles(KubernetesSettings(server.kubeconfig(tmp_path)), FAST)

    followed = stage.run(make())
    yield followed
    stage.run(followed.close())
    assert not followed.bundles
    stage.eventually(lambda: server.watches == 0)


async def test_each_kind_is_followed_until_it_is_not_needed(
    server: ApiServer, followed: ClusterCaBundles
) -> None:
    server.hold(AT, data={"ca.crt": encoded(PEM), "tls.key": encoded(b"secret")})
    server.hold("/api/v1/namespaces/certificates/configmaps/roots", data={"roots.pem": PEM.decode()})
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/injector"
    entries = [{"name": "b.injector.test"}, {"name": ISTIO.key, "clientConfig": {"caBundle": encoded(PEM)}}]
    server.hold(path, webhooks=entries)
    bundles = followed.stage([SECRET, CONFIG_MAP, ISTIO])
    await until(lambda: all(one.state == "current" for one in bundles.values()))
    assert {one.pem for one in bundles.values()} == {bundles[SECRET].pem}
    assert {one[1]["fieldSelector"] for one in server.requests} == {
        "metadata.name=ca",
        "metadata.name=roots",
        "metadata.name=injector",
    }
    server.hold(path, webhooks=[{"name": ISTIO.key, "clientConfig": {"caBundle": encoded(OTHER)}}])
    await until(lambda: bundles[ISTIO].pem != bundles[SECRET].pem)
    followed.activate([SECRET])
    await until(lambda: server.watches == 1)
    assert followed.stage([SECRET])[SECRET] is bundles[SECRET]


async def test_the_last_valid_bundle_stays_until_there_is_a_better_one(
    server: ApiServer, followed: ClusterCaBundles
) -> None:
    bundle = followed.stage([SECRET])[SECRET]
    await bundle.wait_until_read(60)
    assert (bundle.state, bundle.pem) == ("missing", b"")
    server.hold(AT, data={"ca.crt": encoded(PEM)})
    await until(lambda: bundle.state == "current")
    first = bundle.pem
    broken: list[Any] = [{"ca.crt": "%"}, {"ca.crt": 3}, {"other": encoded(OTHER)}, [], None]
    for content in broken:
        server.hold(AT, data=content)
        await until(lambda: bundle.state == "kept")
        assert bundle.pem is first
        server.hold(AT, data={"ca.crt": encoded(PEM)})
        await until(lambda: bundle.state == "current")
    server.drop(AT)
    await until(lambda: bundle.state == "kept")
    server.hold(AT, data={"ca.crt": encoded(OTHER)})
    await until(lambda: bundle.state == "current")
    assert bundle.pem is not first
    # Also a change during which the API server was away.
    server.faults["watch one"].extend([refuse(503)] * 3)
    server.faults["list one"].extend([refuse(403, "secrets is forbidden")] * 3)
    server.end_watches(abruptly=True)
    await until(lambda: bundle.state == "kept")
    server.hold(AT, data={"ca.crt": encoded(PEM)})
    await until(lambda: (bundle.state, bundle.pem) == ("current", first))


async def test_many_objects_are_followed_through_several_clients(
    server: ApiServer, followed: ClusterCaBundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "WATCHES_PER_CLIENT", 5)
    sources = [CaBundleSource("Secret", "certificates", f"ca-{number}", "ca.crt") for number in range(12)]
    for source in sources:
        server.hold(f"/api/v1/namespaces/certificates/secrets/{source.name}", data={"ca.crt": encoded(PEM)})
    bundles = followed.stage(sources)
    await until(lambda: all(one.state == "current" for one in bundles.values()))


@asynccontextmanager
async def webhook(ca: trustme.CA) -> AsyncIterator[int]:
    """Serve scripted webhooks on a port of localhost."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost", key_type=trustme.KeyType.ECDSA).configure_cert(context)
    async with stream_server(Webhook(Seen()).serve, ssl=context) as port:
        yield port


def test_a_gateway_follows_the_bundle_of_a_webhook(server: ApiServer, tmp_path: Path, stage: Stage) -> None:
    """Before the bundle was read, after that, while it is gone, and with the CA of somebody else."""
    server.kubeconfig(tmp_path)
    ca, other = (trustme.CA(key_type=trustme.KeyType.ECDSA) for _ in range(2))
    url = f"https://localhost:{stage.enter(webhook(ca))}{path_of({})}"
    source = {"secret": {"namespace": "certificates", "name": "ca"}}
    hook = {
        "name": "a.policies.test",
        "clientConfig": {"url": url, "caBundleFrom": source},
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    configured = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "policies"},
        "webhooks": [hook],
    }
    folder = tmp_path / "config"
    folder.mkdir()
    documents = ({**head, "kubernetes": {"kubeconfig": "../kubeconfig"}}, configured)
    (folder / "c.yaml").write_text("\n---\n".join(map(json.dumps, documents)))
    gateway = stage.start_gateway(folder)
    body = (REVIEWS / "pod-create-validate.json").read_bytes()

    def message() -> str:
        response = gateway.review("/validate", body)
        return "" if response["allowed"] else str(response["status"]["message"])

    def count(state: str) -> float | None:
        return gateway.metric("admission_gateway_ca_bundles", state=state)

    assert "CA bundle of Secret certificates/ca, key ca.crt cannot be used" in message()
    assert "there is no such object" in message()
    assert count("missing") == 1
    loaded = gateway.metric("admission_gateway_config_last_reload_success_timestamp_seconds")
    server.hold(AT, data={"ca.crt": encoded(ca.cert_pem.bytes())})
    stage.eventually(lambda: message() == "")
    assert count("current") == 1
    server.drop(AT)
    stage.eventually(lambda: count("kept") == 1)
    assert message() == ""
    assert "the last valid one stays in force" in gateway.admin("/readyz?verbose")[1]
    server.hold(AT, data={"ca.crt": encoded(other.cert_pem.bytes())})
    stage.eventually(lambda: "failed to verify certificate" in message())
    server.hold(AT, data={"ca.crt": encoded(other.cert_pem.bytes() + ca.cert_pem.bytes())})
    stage.eventually(lambda: message() == "")
    assert gateway.metric("admission_gateway_config_last_reload_success_timestamp_seconds") == loaded
    assert "BEGIN" not in gateway.log
