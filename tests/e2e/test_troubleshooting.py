"""The page about troubleshooting quotes what API servers say of a webhook that they cannot call."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import re
import socket
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.docs.pages import DOCS
from tests.e2e.objects import config_map
from tests.kit import ThreadingServer, serving
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

QUOTED: Final = re.findall(
    r"^(failed calling webhook .*)$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE
)
CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
NAME: Final = "troubleshooting.example.com"
LOOPBACK: Final = "127.0.0.1"
DAY: Final = datetime.timedelta(days=1)


class Certificate(NamedTuple):
    file: Path
    ca_bundle: str


def certificate(folder: Path, name: str, end: datetime.timedelta = DAY) -> Certificate:
    """Return a self-signed certificate for the host *name*, which ends after *end*."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    host = x509.IPAddress(ipaddress.ip_address(name)) if name == LOOPBACK else x509.DNSName(name)
    serial = x509.random_serial_number()
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), serial, now - 9 * DAY, now + end)
        .add_extension(x509.SubjectAlternativeName([host]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    pem, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file = folder / f"{serial}.pem"
    file.write_bytes(made + key.private_bytes(serialization.Encoding.PEM, pem, plain))
    return Certificate(file, base64.b64encode(made).decode())


@contextmanager
def server(given: Certificate, status: int) -> Iterator[str]:
    """Serve HTTPS: *status* answers each request, and 0 is no answer. Yields the URL."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if status:
                self.send_error(status)
            else:
                ended.wait()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(given.file)
    listener = ThreadingServer(Handler, LOOPBACK, context)
    with serving(listener):
        try:
            yield f"https://{LOOPBACK}:{listener.server_port}/"
        finally:
            ended.set()


@contextmanager
def cause(subject: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the ``clientConfig`` of a webhook that fails for the reason *subject*."""
    good = certificate(folder, LOOPBACK)
    if subject == "no Service":
        service = {"namespace": "default", "name": "absent"}
        yield {"service": service, "caBundle": good.ca_bundle}
        return
    if subject == "refused":
        with socket.socket() as unused:
            unused.bind((LOOPBACK, 0))
            yield {"url": f"https://{LOOPBACK}:{unused.getsockname()[1]}/", "caBundle": good.ca_bundle}
        return
    served = {
        "wrong name": lambda: certificate(folder, "other.example.com"),
        "expired": lambda: certificate(folder, LOOPBACK, -DAY),
    }.get(subject, lambda: good)()
    trusted = certificate(folder, LOOPBACK) if subject == "unknown authority" else served
    with server(served, 404 if subject == "not found" else 0) as url:
        named = url.replace(LOOPBACK, "localhost") if subject == "wrong name" else url
        yield {"url": named, "caBundle": trusted.ca_bundle}


CAUSES: Final = (
    *("unknown authority", "wrong name", "expired"),
    *("no answer", "refused", "no Service", "not found"),
)


def pattern(quoted: str) -> str:
    return ".+".join(map(re.escape, quoted.split("…")))


def test_every_quoted_text_has_a_cause_here() -> None:
    assert len(QUOTED) == len(CAUSES)


@pytest.mark.parametrize(("subject", "quoted"), list(zip(CAUSES, QUOTED, strict=True)), ids=CAUSES)
def test_an_api_server_says_what_the_page_quotes(
    cluster: Cluster, namespace: str, tmp_path: Path, subject: str, quoted: str
) -> None:
    rules = [
        {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    ]
    maps = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
    with cause(subject, tmp_path) as client_config:
        webhook = {
            "name": NAME,
            "clientConfig": client_config,
            "rules": rules,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "timeoutSeconds": 2,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        document = {"metadata": {"generateName": "troubleshooting-"}, "webhooks": [webhook]}
        made = cluster.api.create(CONFIGURATIONS, document)
        assert made.status == 201, made
        try:
            said = eventually(
                lambda: cluster.api.create(maps, config_map("x")).document.get("message", ""),
                "the webhook is called",
            )
            assert re.search(pattern(quoted), said), said
        finally:
            cluster.api.delete(f"{CONFIGURATIONS}/{made.document['metadata']['name']}")
