"""How the Locust users reach a gateway or an API server: TLS, credentials, and questions before the run."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from argparse import Namespace

AGENT: Final = "admission-gateway-loadtest"
PATIENCE_S: Final = 10.0
"""For a question before the run."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and how to show oneself to it."""

    host: str
    """``https://HOST:PORT``, perhaps with the beginning of a path."""
    verify: bool
    tls: ssl.SSLContext
    """One for all users: made for each, it reads the system's roots, and the first requests wait for that."""
    headers: dict[str, str]

    @classmethod
    def of(cls, options: Namespace) -> Self:
        """Return the target that the command line *options* name.

        A gateway's certificate is checked only if there is an authority to check it against: it is measured,
        and trusted with nothing. An API server gets credentials, and so is checked, unless by ``--insecure``.

        Raises:
            ValueError: the host is missing, or a certificate, key or token cannot be read.
        """
        if not options.host:
            raise ValueError("expected --host https://HOST:PORT")
        if bool(options.client_cert) != bool(options.client_key):
            raise ValueError("expected --client-cert and --client-key together")
        if options.ca_file and options.insecure:
            raise ValueError("expected --ca-file or --insecure, found both")
        verify = not options.insecure and bool(options.ca_file or options.via == "apiserver")
        headers = {"User-Agent": AGENT, "Content-Type": "application/json", "Accept": "application/json"}
        if options.token_file:
            headers["Authorization"] = f"Bearer {_token(options.token_file)}"
        return cls(options.host.rstrip("/"), verify, _tls(options, verify=verify), headers)

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at *path*.

        Raises:
            ValueError: the answer is none, or there is no answer.
        """
        request = urllib.request.Request(self.host + path, headers=self.headers)
        # Proxies of the environment are not used for the load, either.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.tls)
        )
        try:
            with opener.open(request, timeout=PATIENCE_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(f"GET {self.host}{path}: HTTP status {error.code}") from None
        except (OSError, ValueError) as error:
            raise ValueError(f"GET {self.host}{path}: {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"GET {self.host}{path}: expected a JSON object")
        return found


def _token(file: str) -> str:
    try:
        token = Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        raise ValueError(f"--token-file: {error}") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"--token-file {file}: expected one bearer token")
    return token


def _tls(options: Namespace, *, verify: bool) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    try:
        if options.ca_file:
            tls.load_verify_locations(options.ca_file)
        elif verify:
            tls.load_default_certs()
    except OSError as error:
        raise ValueError(f"--ca-file {options.ca_file}: {error}") from None
    try:
        if options.client_cert:
            tls.load_cert_chain(options.client_cert, options.client_key)
    except OSError as error:
        raise ValueError(f"--client-cert {options.client_cert}: {error}") from None
    return tls
