"""``caBundleFrom`` with real API servers: a CA is replaced while creates go on, with the smallest rights."""

from __future__ import annotations

import base64
import contextlib
import itertools
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import yaml

from tests.e2e.cluster import NAMESPACE
from tests.e2e.direct import Handler, Webhooks
from tests.e2e.load import Load
from tests.e2e.objects import pod
from tests.e2e.setups import PODS, REGISTRATIONS, BehindGateway, Hook, deployed_account
from tests.kit import run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

ACCOUNT = f"{NAMESPACE}/admission-gateway"
CONFIGURATION = "original"
AT = f"{REGISTRATIONS}/validatingwebhookconfigurations/{CONFIGURATION}"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
PODS_PATH = "/api/v1/namespaces/default/pods?dryRun=All"


class RotatingWebhook:
    """An HTTPS webhook that warns, and whose certificate is replaced while it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._context = self._current = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.sni_callback = self._choose
        self._server = Webhooks(("127.0.0.1", 0), Handler)
        self._server.scripts = [{"warnings": ["called"]}]
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def use(self, authority: trustme.CA) -> None:
        """Present a certificate of *authority* on new connections."""
        issued = authority.issue_cert("localhost", key_type=trustme.KeyType.ECDSA)
        file = self._folder / "served.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(file))
        # Another context: in one that is in use, handshakes see the certificate before its key.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        self._current = context

    def _choose(self, connection: ssl.SSLObject, *_: object) -> None:
        connection.context = self._current

    def __enter__(self) -> RotatingWebhook:
        self._server.socket = self._context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Following(BehindGateway):
    """Webhooks of the rotating server, each with its ``caBundleFrom``."""

    sources: dict[str, dict[str, Any]]
    """By name of the webhook."""
    webhook: RotatingWebhook

    def client_configs(self) -> list[dict[str, Any]]:
        url = f"https://localhost:{self.webhook.port}/0"
        return [
            {"url": url, "caBundleFrom": self.sources[hook.name]} if hook.name in self.sources else worker
            for hook, worker in zip(self.hooks, super().client_configs(), strict=True)
        ]


def encoded(*authorities: trustme.CA) -> str:
    return base64.b64encode(b"".join(one.cert_pem.bytes() for one in authorities)).decode()


def inject(cluster: Cluster, bundle: str) -> None:
    """Write *bundle* as the cainjector of cert-manager does: an update with its own field manager."""
    document = cluster.api.get(AT).document
    document["webhooks"][0]["clientConfig"]["caBundle"] = bundle
    answer = cluster.api.update(f"{AT}?fieldManager=cert-manager-cainjector", document)
    assert answer.status == 200, answer


@pytest.fixture
def original(cluster: Cluster) -> Iterator[None]:
    """The cluster's own object, which the API server does not call."""
    never = [
        {"key": "admission-gateway.io/unregistered", "operator": one} for one in ("Exists", "DoesNotExist")
    ]
    hook = {
        "name": "a.followed.test",
        "clientConfig": {"url": "https://localhost:1/0"},
        "rules": [PODS],
        "objectSelector": {"matchExpressions": never},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    document = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION},
        "webhooks": [hook],
    }
    created = cluster.kubectl("create", "--filename=-", stdin=yaml.safe_dump(document))
    assert created.returncode == 0, created.stderr
    yield
    cluster.api.delete(AT)
    cluster.api.delete(f"{SECRETS}/ca")


def test_a_ca_is_replaced_while_creates_go_on(cluster: Cluster, original: None, tmp_path: Path) -> None:
    old, new = (trustme.CA(key_type=trustme.KeyType.ECDSA) for _ in range(2))
    webhook = RotatingWebhook(tmp_path)
    webhook.use(old)
    inject(cluster, encoded(old))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca"}}
    assert cluster.api.create(SECRETS, {**secret, "data": {"ca.crt": encoded(old)}}).status == 201

    # As import writes it, with what managedFields show.
    admin = cluster.kubeconfig()
    imported = run_command("import", "--kubeconfig", admin, "--name", CONFIGURATION)
    assert imported.returncode == 0, imported.stderr
    (document,) = yaml.safe_load_all(imported.stdout)
    followed = document["webhooks"][0]["clientConfig"]["caBundleFrom"]
    assert followed["webhookConfiguration"]["name"] == CONFIGURATION
    assert "manifests --roles-for" in imported.stderr

    hooks = [Hook("validate", name, {}) for name in ("a.followed.test", "b.followed.test")]
    # The account of this kubeconfig exists once its roles are known.
    kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig", token="later")
    settings = {"kubernetes": {"kubeconfig": str(kubeconfig)}}
    setup = Following(cluster, tmp_path, hooks, "followed", gateway=settings)
    setup.webhook = webhook
    setup.sources = {
        "a.followed.test": followed,
        "b.followed.test": {"secret": {"namespace": NAMESPACE, "name": "ca"}},
    }
    setup.write_configuration()
    printed = run_command("manifests", "--config", setup.config, "--roles-for", ACCOUNT)
    assert printed.returncode == 0, printed.stderr
    roles = tmp_path / "roles.yaml"
    roles.write_text(printed.stdout)

    versions = itertools.count(2)

    def write(*authorities: trustme.CA) -> None:
        """Have both objects hold *authorities*, and wait until the gateway follows."""
        lines = 2 * next(versions)
        inject(cluster, encoded(*authorities))
        found = cluster.api.get(f"{SECRETS}/ca").document
        found["data"]["ca.crt"] = encoded(*authorities)
        assert cluster.api.update(f"{SECRETS}/ca", found).status == 200
        eventually(lambda: setup.gateway.log.count("in force for new connections") == lines)

    def state(name: str) -> float:
        return setup.gateway.metric("admission_gateway_ca_bundles", state=name)

    def called(answer: Any) -> str:
        return "" if answer.warnings == ("called",) else f"warnings: {answer.warnings}"

    with contextlib.ExitStack() as stack:
        stack.enter_context(webhook)
        stack.enter_context(deployed_account(cluster, tmp_path, str(roles)))
        stack.enter_context(setup)
        with Load(cluster.api, PODS_PATH, check=called) as load:
            for before, after in ((old, new), (new, old)):
                write(before, after)
                load.flows()
                webhook.use(after)
                load.flows()
                write(after)
                load.flows()
            inject(cluster, base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode())
            cluster.api.delete(f"{SECRETS}/ca")
            load.until(lambda: state("kept") == 2)
        assert not load.failures
        checked = run_command("check", "--config", setup.config, "--cluster", "--kubeconfig", admin)
        assert (
            f"error: caBundleFrom: Secret {NAMESPACE}/ca, key ca.crt: there is no such object"
            in checked.stdout
        )
        assert "error: caBundleFrom: ValidatingWebhookConfiguration original, webhook a.f" in checked.stdout

        # A gateway that starts now has no bundle, and says so to the user.
        setup.gateway.stop()
        setup.start_gateway()
        refused = cluster.api.create(PODS_PATH, pod("refused-"))
        assert refused.status == 500
        assert f"CA bundle of Secret {NAMESPACE}/ca, key ca.crt cannot be used" in refused.message
        assert state("missing") == 2
        inject(cluster, encoded(old))
        assert cluster.api.create(SECRETS, {**secret, "data": {"ca.crt": encoded(old)}}).status == 201
        eventually(lambda: cluster.api.create(PODS_PATH, pod("called-")).status == 201)
        assert "forbidden" not in setup.gateway.log
        assert "Traceback" not in setup.gateway.log
