"""Fixtures of the front end's tests: certificates made by trustme."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
import trustme

from gateway.config.kinds.serving_settings import ServerTls
from gateway.server.serving.tls import ServerCertificate

if TYPE_CHECKING:
    from pathlib import Path


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
