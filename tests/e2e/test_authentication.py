"""The API server authenticates by ``--admission-control-config-file``; other callers get no review.

The control plane's admission configuration holds a client certificate for the Service ``mtls`` and a bearer
token for the Service ``token``. A gateway registered as ``stranger`` is called with neither.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme

from tests.e2e.cluster import NAMESPACE
from tests.e2e.objects import config_map, within
from tests.e2e.setups import REGISTRATIONS, BehindGateway, Hook, rule
from tests.kit import PATIENCE_S, REVIEWS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

CONFIG_MAPS: Final = within("configmaps")
REVIEW: Final = (REVIEWS / "pod-create-mutate.json").read_bytes()
STRANGER: Final = "stranger"
"""A Service for whose name the API server has no credentials."""
MARK: Final = Hook("mutate", "mark.policy.test", {"label": "reviewed"}, (rule("configmaps", "CREATE"),))


class AuthenticatingGateway(BehindGateway):
    """A gateway that authenticates callers, at a port for which the API server has credentials."""

    def __init__(self, cluster: Cluster, folder: Path, name: str, *, certificate: bool, token: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.token_file = folder / "tokens"
        self.token_file.write_text(f"a-token-of-another-api-server\n{cluster.webhook_token}\n")
        gateway: dict[str, Any] = {}
        if certificate:
            gateway["tls"] = {
                "clientCAFile": str(cluster.callers_ca_file),
                "clientNames": ["kube-apiserver"],
            }
        if token:
            gateway["authentication"] = {"tokenFile": str(self.token_file)}
        port = cluster.credentials_ports[name]
        super().__init__(cluster, folder, [MARK], name, gateway=gateway, port=port)
        names = [f"{service}.{NAMESPACE}.svc" for service in (name, STRANGER)]
        self.certificate = cluster.issue(folder, *names, "localhost", "127.0.0.1")

    def create(self, namespace: str, name: str, **labels: str) -> Answer:
        path = CONFIG_MAPS.format(namespace=namespace)
        return self.cluster.api.create(path, config_map(name, labels))

    def call(self, shown: trustme.LeafCert | None = None, authorization: str | None = None) -> int:
        """Return the status of a call with these credentials."""
        context = ssl.create_default_context()
        self.cluster.authority.configure_trust(context)
        if shown is not None:
            shown.configure_cert(context)
        headers = {"Content-Type": "application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=PATIENCE_S)
        try:
            connection.request("POST", "/mutate", REVIEW, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    @contextmanager
    def registered_as_stranger(self) -> Iterator[None]:
        """Register the gateway once more, by the Service ``stranger``, for objects labelled ``by`` it."""
        self.cluster.add_service(STRANGER)
        (document,) = [each for each in self.manifests() if each["kind"].startswith("Mutating")]
        document["metadata"]["name"] = STRANGER
        for entry in document["webhooks"]:
            entry["clientConfig"]["service"]["name"] = STRANGER
            entry["objectSelector"] = {"matchLabels": {"by": STRANGER}}
        path = f"{REGISTRATIONS}/mutatingwebhookconfigurations"

        def is_in_force() -> bool:
            answer = self.cluster.api.create(
                f"{CONFIG_MAPS.format(namespace='default')}?dryRun=All",
                config_map("probe-", {"by": STRANGER}),
            )
            return answer.status != 201

        answer = self.cluster.api.create(path, document)
        assert answer.status == 201, answer
        try:
            eventually(is_in_force)
            yield
        finally:
            self.cluster.api.delete(f"{path}/{STRANGER}")
            eventually(lambda: not is_in_force())


@pytest.fixture(scope="module")
def callers(cluster: Cluster) -> dict[str, trustme.LeafCert | None]:
    """Client certificates of callers."""
    elsewhere = trustme.CA(key_type=trustme.KeyType.ECDSA)
    return {
        "none": None,
        "api server": cluster.callers.issue_cert(common_name="kube-apiserver"),
        "wrong name": cluster.callers.issue_cert(common_name="somebody"),
        "wrong CA": elsewhere.issue_cert(common_name="kube-apiserver"),
    }


def assert_accepted(setup: AuthenticatingGateway, namespace: str) -> None:
    answer = setup.create(namespace, "welcome")
    assert answer.status == 201, answer
    assert answer.document["metadata"]["labels"] == {"reviewed": "set"}


def assert_refused(setup: AuthenticatingGateway, namespace: str) -> None:
    """Assert that an API server without credentials gets no review, and that the user gets a reason."""
    answer = setup.create(namespace, "unwelcome", by=STRANGER)
    assert (answer.status, answer.document["reason"]) == (500, "InternalError"), answer
    assert answer.message.endswith(
        "failed to call webhook: the server has asked for the client to provide credentials"
    )
    assert setup.cluster.api.get(f"{CONFIG_MAPS.format(namespace=namespace)}/unwelcome").status == 404
    shown = setup.cluster.kubectl(
        *("create", "--namespace", namespace, "--filename=-"),
        stdin=json.dumps(config_map("unwelcome", {"by": STRANGER})),
    )
    assert shown.returncode == 1
    assert shown.stderr.startswith("Error from server (InternalError): error when creating")
    assert "asked for the client to provide credentials" in shown.stderr


def test_the_api_server_authenticates_by_certificate_and_others_are_refused(
    cluster: Cluster, namespace: str, tmp_path: Path, callers: dict[str, trustme.LeafCert | None]
) -> None:
    setup = AuthenticatingGateway(cluster, tmp_path, "mtls", certificate=True, token=False)
    with setup:
        assert_accepted(setup, namespace)
        assert setup.call(callers["api server"]) == 200
        assert setup.call(callers["none"]) == 401
        assert setup.call(callers["wrong name"]) == 401
        assert setup.call(callers["none"], f"Bearer {cluster.webhook_token}") == 401
        with pytest.raises((ssl.SSLError, ConnectionError)):
            setup.call(callers["wrong CA"])
        with setup.registered_as_stranger():
            assert_refused(setup, namespace)


def test_the_api_server_authenticates_by_token_and_others_are_refused(
    cluster: Cluster, namespace: str, tmp_path: Path, callers: dict[str, trustme.LeafCert | None]
) -> None:
    setup = AuthenticatingGateway(cluster, tmp_path, "token", certificate=False, token=True)
    right = f"Bearer {cluster.webhook_token}"
    basic = base64.b64encode(f"kube-apiserver:{cluster.webhook_token}".encode()).decode()
    with setup:
        assert_accepted(setup, namespace)
        assert setup.call(authorization=right) == 200
        for wrong in (
            None,
            "",
            "Bearer",
            "Bearer ",
            "Bearer somebody-else",
            right[:-1],
            right + "x",
            f"Basic {basic}",
        ):
            assert setup.call(authorization=wrong) == 401, wrong
        # The gateway requests no client certificate, so it does not count.
        assert setup.call(callers["api server"]) == 401
        with setup.registered_as_stranger():
            assert_refused(setup, namespace)


@pytest.mark.parametrize("name", ["mtls", "token"])
def test_either_certificate_or_token_is_enough(
    cluster: Cluster, namespace: str, tmp_path: Path, callers: dict[str, trustme.LeafCert | None], name: str
) -> None:
    setup = AuthenticatingGateway(cluster, tmp_path, name, certificate=True, token=True)
    right = f"Bearer {cluster.webhook_token}"
    with setup:
        assert_accepted(setup, namespace)
        assert setup.call(callers["api server"]) == 200
        assert setup.call(callers["api server"], "Bearer somebody-else") == 200
        assert setup.call(callers["none"], right) == 200
        assert setup.call(callers["wrong name"], right) == 200
        assert setup.call(callers["wrong name"], "Bearer somebody-else") == 401
        assert setup.call(callers["none"]) == 401
        with pytest.raises((ssl.SSLError, ConnectionError)):
            setup.call(callers["wrong CA"], right)


def test_a_token_is_rotated_without_a_refused_call(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """A rotation first adds the new token to the gateway, and then to its callers."""
    setup = AuthenticatingGateway(cluster, tmp_path, "token", certificate=False, token=True)

    def write(*tokens: str) -> None:
        unfinished = setup.token_file.with_suffix(".unfinished")
        unfinished.write_text("".join(f"{token}\n" for token in tokens))
        unfinished.rename(setup.token_file)

    old, new = cluster.webhook_token, "the-token-to-come"
    with setup:
        assert setup.call(authorization=f"Bearer {new}") == 401
        write(old, new)
        eventually(lambda: setup.call(authorization=f"Bearer {new}") == 200)
        assert_accepted(setup, namespace)
        write(new)
        eventually(lambda: setup.call(authorization=f"Bearer {old}") == 401)
        assert setup.call(authorization=f"Bearer {new}") == 200
        refused = setup.create(namespace, "too-late")
        assert refused.status == 500
        assert refused.message.endswith("the server has asked for the client to provide credentials")
        write(new, old)
        eventually(lambda: setup.call(authorization=f"Bearer {old}") == 200)
        assert setup.create(namespace, "too-late").status == 201


def test_unauthenticated_clients_learn_nothing_of_the_configuration(cluster: Cluster, tmp_path: Path) -> None:
    setup = AuthenticatingGateway(cluster, tmp_path, "token", certificate=False, token=True)
    with setup:
        for path in ("/mutate", "/mutate/policies", "/mutate/absent", "/"):
            status, body = setup.gateway.exchange(path, b"{}")
            assert status == 401, path
            assert b"a bearer token" in body
