"""Self-issued certificates: accepted if the CA has signed them, by Go's rules."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from admission_gateway_worker.client_tls import tls_context
from gateway.engine.dispatch.https.connection import ExchangeError
from gateway.engine.dispatch.https.connection_pool import ConnectionPool
from tests.stream_server import stream_server

if TYPE_CHECKING:
    from pathlib import Path

NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hooks.policies.svc")])
SERVER = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
CLIENT = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
SUBTREES = [x509.IPAddress(ipaddress.ip_network("10.0.0.0/8"))]
ELSEWHERE = x509.NameConstraints(permitted_subtrees=SUBTREES, excluded_subtrees=None)


def builder(key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=3))
        .not_valid_after(now + timedelta(days=days))
    )


class Pair:
    """A CA and a server's certificate with the same subject."""

    def __init__(self, ca: x509.ExtensionType | None = None, days: tuple[int, int] = (1, 1)) -> None:
        """*ca* is a further extension of the CA; *days* until CA and certificate end."""
        self.ca_key = ec.generate_private_key(ec.SECP256R1())
        made = builder(self.ca_key, days[0]).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        if ca is not None:
            made = made.add_extension(ca, critical=isinstance(ca, x509.NameConstraints))
        self.ca_pem = made.sign(self.ca_key, hashes.SHA256()).public_bytes(Encoding.PEM)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.days = days[1]

    def files(self, folder: Path, address: str = "127.0.0.1", *, signer: Pair | None = None) -> Path:
        """Return a file with key and certificate for *address*, signed by *signer*'s CA, else its own."""
        name = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        leaf = builder(self.key, self.days).add_extension(name, critical=False)
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        signed = leaf.sign((signer or self).ca_key, hashes.SHA256())
        file = folder / "pair.pem"
        file.write_bytes(key + signed.public_bytes(Encoding.PEM))
        return file


async def hang_up(*_: object) -> None:
    """Close a connection."""


def connect(file: Path, ca_pem: bytes) -> None:
    """Connect twice to a server with the certificate in *file*, with the roots *ca_pem*."""

    async def test() -> None:
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(file)
        context = tls_context(ca_pem)
        async with stream_server(hang_up, ssl=serving) as port:
            connections = ConnectionPool(("127.0.0.1", port), None)
            try:
                for _ in range(2):
                    (await connections.acquire(context)).abort()
            finally:
                connections.close()

    asyncio.run(test())


@pytest.mark.parametrize("ca", [None, SERVER])
def test_a_self_issued_certificate_of_the_ca_is_accepted(
    tmp_path: Path, ca: x509.ExtensionType | None
) -> None:
    pair = Pair(ca)
    connect(pair.files(tmp_path), pair.ca_pem)


@pytest.mark.parametrize(
    ("pair", "address"),
    [
        (Pair(), "127.0.0.2"),
        (Pair(days=(-1, 1)), "127.0.0.1"),
        (Pair(days=(1, -1)), "127.0.0.1"),
        (Pair(CLIENT), "127.0.0.1"),
        (Pair(ELSEWHERE), "127.0.0.1"),
    ],
    ids=["another name", "CA expired", "expired", "CA of clients", "CA of other names"],
)
def test_name_validity_and_extensions_are_checked(tmp_path: Path, pair: Pair, address: str) -> None:
    with pytest.raises(ExchangeError, match="failed to verify certificate"):
        connect(pair.files(tmp_path, address), pair.ca_pem)


def test_the_name_alone_is_not_enough(tmp_path: Path) -> None:
    """Signed by another CA of the same name, or by the server itself."""
    pair, other = Pair(), Pair()
    with pytest.raises(ExchangeError, match="self-signed certificate"):
        connect(pair.files(tmp_path, signer=other), pair.ca_pem)
    itself = Pair()
    itself.key = itself.ca_key
    with pytest.raises(ExchangeError, match="self-signed certificate"):
        connect(itself.files(tmp_path), pair.ca_pem)
