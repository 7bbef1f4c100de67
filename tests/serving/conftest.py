"""Fixtures of the front end's tests: event loops, and certificates made by trustme."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import uvloop

from gateway.config.kinds.serving_settings import ServerTls
from gateway.server.serving.tls import ServerCertificate

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from tests.serving.kit import Run


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine to its end, on each of the two event loops."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def run_until_complete(coroutine: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(coroutine)

    return run_until_complete


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    """The certificate authority of the server and of trusted clients."""
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


@pytest.fixture
def tls_files(ca: trustme.CA, tmp_path: Path) -> ServerTls:
    """A certificate for localhost with its key, in files."""
    leaf = ca.issue_cert("localhost", key_type=trustme.KeyType.ECDSA)
    cert_file, key_file = tmp_path / "tls.crt", tmp_path / "tls.key"
    leaf.cert_chain_pems[0].write_to_path(cert_file)
    leaf.private_key_pem.write_to_path(key_file)
    return ServerTls(cert_file, key_file)


@pytest.fixture
def certificate(tls_files: ServerTls) -> ServerCertificate:
    """The loaded certificate for localhost."""
    return ServerCertificate(tls_files)


@pytest.fixture
def client_tls(ca: trustme.CA) -> ssl.SSLContext:
    """The TLS context of a client that trusts the authority and has no certificate."""
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context
