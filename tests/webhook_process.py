"""An HTTPS webhook server in a separate process, with scripted answers."""

from __future__ import annotations

import base64
import datetime
import http.client
import json
import ssl
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import trustme

from gateway.pure.core.webhook import HttpsClient
from tests.fakes.https_webhook import path_of
from tests.kit import ROOT

if TYPE_CHECKING:
    from pathlib import Path


class WebhookProcess:
    """The running server. ``ports`` are its listeners by name."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.other_ca = trustme.CA()
        long_ago = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
        certificates = {
            "good": self.ca.issue_cert("localhost", "127.0.0.1"),
            "other_name": self.ca.issue_cert("elsewhere.example"),
            "expired": self.ca.issue_cert("localhost", not_after=long_ago),
            "asking": self.ca.issue_cert("localhost"),
        }
        self.own_pem = certificates["good"].cert_chain_pems[0].bytes()
        arguments = []
        for name, certificate in certificates.items():
            certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))
            arguments.append(f"{name}={folder / name}.pem")
        self.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        arguments[-1] += f"={folder / 'ca.pem'}"
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.https_webhook", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.child.stdout is not None
        self.ports: dict[str, int] = json.loads(self.child.stdout.readline())

    @property
    def ca_pem(self) -> bytes:
        return self.ca.cert_pem.bytes()

    def client(self, script: dict[str, Any] | None = None, name: str = "good") -> HttpsClient:
        """Return the client of a webhook that answers by *script*."""
        return HttpsClient(f"https://localhost:{self.ports[name]}{path_of(script or {})}", self.ca_pem)

    def client_config(self, script: dict[str, Any], name: str = "good") -> dict[str, Any]:
        """Return ``clientConfig`` of a webhook that answers by *script*."""
        return {"url": self.client(script, name).url, "caBundle": base64.b64encode(self.ca_pem).decode()}

    def report(self) -> dict[str, Any]:
        context = ssl.create_default_context(cadata=self.ca_pem.decode())
        connection = http.client.HTTPSConnection("localhost", self.ports["good"], context=context)
        with closing(connection):
            connection.request("GET", "/")
            found: dict[str, Any] = json.loads(connection.getresponse().read())
        return found

    def requests(self, client: HttpsClient) -> list[dict[str, Any]]:
        """Return the requests of *client*."""
        path = "/" + client.url.split("/", 3)[3]
        return [each for each in self.report()["requests"] if each["target"].partition("?")[0] == path]

    def stop(self) -> None:
        assert self.child.stdout is not None
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()
