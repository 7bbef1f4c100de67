"""Authentication changes while a client has an open connection: the next request is checked again."""

from __future__ import annotations

import http.client
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.faults.rotating import Client, pems, settings_document
from tests.kit import PATIENCE_S, REVIEWS, pool_document, webhook_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults.kit import StartWorker
    from tests.kit import GatewayProcess, StartGateway

pytestmark = pytest.mark.process

BODY = (REVIEWS / "pod-create-validate.json").read_bytes()
TOKEN = {"Authorization": "Bearer the-token"}
RELOADED = "configuration reloaded"
REVOKED = "all credentials of a file are revoked: .*authentication"


class RevokedFiles:
    """A gateway, and the files that a test changes."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.config = folder / "config"
        self.config.mkdir()
        self.clients = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.authority = authority
        self.ca_file, self.tokens, self.passwords = folder / "ca.crt", folder / "tokens", folder / "passwords"
        self.ca_file.write_bytes(pems(self.clients))
        self.tokens.write_text("the-token\n")
        self.passwords.write_text("api:password\n")

    def set(self, tls: dict[str, Any] | None = None, authentication: dict[str, Any] | None = None) -> None:
        """Write the GatewayConfiguration."""
        settings = {"tls": tls or {}, "authentication": authentication or {}}
        (self.config / "g.yaml").write_text(settings_document(**settings))

    def connect(self, gateway: GatewayProcess) -> http.client.HTTPSConnection:
        """Return a connection that presents a certificate if the gateway requests one."""
        leaf = self.clients.issue_cert(common_name="kube-apiserver", key_type=trustme.KeyType.ECDSA)
        context = Client(gateway, self.authority, shows=leaf).client_context
        connection = http.client.HTTPSConnection(
            "127.0.0.1", gateway.port, context=context, timeout=PATIENCE_S
        )
        connection.connect()
        return connection

    def tls(self, *names: str) -> dict[str, Any]:
        return {"clientCAFile": str(self.ca_file), **({"clientNames": list(names)} if names else {})}


def ask(connection: http.client.HTTPSConnection, headers: dict[str, str]) -> tuple[int, str | None]:
    """Return status and ``Connection`` of the answer to a review."""
    assert connection.sock is not None
    head = {"Content-Type": "application/json", **headers}
    connection.request("POST", "/validate", BODY, head)
    response = connection.getresponse()
    response.read()
    return response.status, response.getheader("Connection")


@pytest.fixture
def revoked(tmp_path: Path, authority: trustme.CA, start_worker: StartWorker) -> RevokedFiles:
    made = RevokedFiles(tmp_path, authority)
    documents = pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", {})
    (made.config / "c.yaml").write_text(documents)
    return made


@pytest.mark.parametrize(
    ("before", "change", "message", "headers"),
    [
        (
            lambda revoked: revoked.set(tls=revoked.tls("other", "kube-apiserver")),
            lambda revoked: revoked.set(tls=revoked.tls("other")),
            RELOADED,
            {},
        ),
        (
            lambda revoked: revoked.set(tls=revoked.tls()),
            lambda revoked: revoked.set(tls=revoked.tls("other")),
            RELOADED,
            {},
        ),
        (
            lambda revoked: revoked.set(tls=revoked.tls(), authentication={"tokenFile": str(revoked.tokens)}),
            lambda revoked: revoked.set(authentication={"tokenFile": str(revoked.tokens)}),
            RELOADED,
            {},
        ),
        (
            lambda revoked: revoked.set(tls=revoked.tls()),
            lambda revoked: revoked.ca_file.write_bytes(pems(trustme.CA(key_type=trustme.KeyType.ECDSA))),
            "TLS files reloaded",
            {},
        ),
        (
            lambda revoked: revoked.set(tls=revoked.tls()),
            lambda revoked: revoked.ca_file.unlink(),
            "all client certificates are revoked",
            {},
        ),
        (
            lambda revoked: revoked.set(),
            lambda revoked: revoked.set(authentication={"tokenFile": str(revoked.tokens)}),
            RELOADED,
            {},
        ),
        (lambda revoked: revoked.set(), lambda revoked: revoked.set(tls=revoked.tls()), RELOADED, {}),
        (
            lambda revoked: revoked.set(authentication={"tokenFile": str(revoked.tokens)}),
            lambda revoked: revoked.tokens.write_text("another-token\n"),
            "credentials reloaded",
            TOKEN,
        ),
        (
            lambda revoked: revoked.set(authentication={"tokenFile": str(revoked.tokens)}),
            lambda revoked: revoked.tokens.unlink(),
            REVOKED,
            TOKEN,
        ),
        (
            lambda revoked: revoked.set(authentication={"basicAuthFile": str(revoked.passwords)}),
            lambda revoked: revoked.passwords.write_text(""),
            REVOKED,
            {"Authorization": "Basic YXBpOnBhc3N3b3Jk"},
        ),
        (
            lambda revoked: revoked.set(authentication={"tokenFile": str(revoked.tokens)}),
            lambda revoked: revoked.set(authentication={"basicAuthFile": str(revoked.passwords)}),
            RELOADED,
            TOKEN,
        ),
    ],
    ids=[
        "a name is withdrawn",
        "names are required",
        "certificates are not accepted any more",
        "another client CA",
        "no client CA",
        "tokens are required",
        "certificates are required",
        "another token",
        "no token file",
        "an empty password file",
        "another way",
    ],
)
def test_the_next_request_on_an_open_connection_is_refused(
    revoked: RevokedFiles,
    start_gateway: StartGateway,
    before: Callable[[RevokedFiles], None],
    change: Callable[[RevokedFiles], None],
    message: str,
    headers: dict[str, str],
) -> None:
    before(revoked)
    gateway = start_gateway(revoked.config)
    with closing(revoked.connect(gateway)) as connection:
        assert ask(connection, headers) == (200, None)
        seen = len(gateway.log)
        change(revoked)
        gateway.expect(message, after=seen)
        assert ask(connection, headers) == (401, "close")
    assert gateway.metric("admission_gateway_review_duration_seconds_count") == 1


def test_a_change_that_keeps_a_client_authorized_closes_only_its_connection(
    revoked: RevokedFiles, start_gateway: StartGateway
) -> None:
    revoked.set(tls=revoked.tls("kube-apiserver", "other"), authentication={"tokenFile": str(revoked.tokens)})
    gateway = start_gateway(revoked.config)

    def change_tokens() -> None:
        revoked.tokens.write_text("the-token\nanother-token\n")

    def change_names() -> None:
        revoked.set(tls=revoked.tls("kube-apiserver"), authentication={"tokenFile": str(revoked.tokens)})

    for change, message in ((change_tokens, "credentials reloaded"), (change_names, RELOADED)):
        with closing(revoked.connect(gateway)) as by_certificate, closing(gateway.connect()) as by_token:
            assert ask(by_certificate, {}) == ask(by_token, TOKEN) == (200, None)
            seen = len(gateway.log)
            change()
            gateway.expect(message, after=seen)
            assert ask(by_certificate, {}) == ask(by_token, TOKEN) == (200, "close")


def test_a_revoked_file_shows_in_the_metrics(revoked: RevokedFiles, start_gateway: StartGateway) -> None:
    metric = "admission_gateway_config_last_reload_successful"
    revoked.set(authentication={"tokenFile": str(revoked.tokens)})
    gateway = start_gateway(revoked.config)
    assert gateway.metric(metric) == 1
    revoked.tokens.unlink()
    gateway.expect(REVOKED)
    assert gateway.metric(metric) == 0
    seen = len(gateway.log)
    revoked.tokens.write_text("the-token\n")
    gateway.expect("credentials reloaded", after=seen)
    assert gateway.metric(metric) == 1
    with closing(gateway.connect()) as connection:
        assert ask(connection, TOKEN) == (200, None)
