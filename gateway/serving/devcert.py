"""A self-signed certificate for development."""

from __future__ import annotations

import datetime
import fcntl
import ipaddress
import os
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gateway.config.credential_files import certificates
from gateway.errors import ConfigError
from gateway.serving.files import read_as

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEVELOPMENT_DNS_NAMES = ("localhost", "admission-gateway.admission-gateway.svc")
DEVELOPMENT_ADDRESSES = ("127.0.0.1", "::1")
_LIFETIME = datetime.timedelta(days=90)
_LEFT_AT_LEAST = datetime.timedelta(days=1)


def make_development_certificate(folder: Path) -> tuple[Path, Path]:
    """Return the files of a self-signed ECDSA P-256 certificate and of its key, both PEM, in *folder*.

    They are made if there are none, or if they expire within a day. Several processes that call this at once
    get the same files. Only the owner can read the key.

    Raises:
        OSError: The folder cannot be made or written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    cert_file, key_file = folder / "tls.crt", folder / "tls.key"
    with _locked(folder / ".lock"):
        if not _is_usable(cert_file, key_file):
            key = ec.generate_private_key(ec.SECP256R1())
            _replace(key_file, _key_pem(key))
            _replace(cert_file, _certificate(key).public_bytes(serialization.Encoding.PEM))
    return cert_file, key_file


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_usable(cert_file: Path, key_file: Path) -> bool:
    try:
        expiry = read_as(certificates, cert_file, "tls.certFile")[0].not_valid_after_utc
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, password="")
    except (ConfigError, OSError):  # ssl.SSLError is an OSError
        return False
    return expiry - datetime.datetime.now(datetime.UTC) > _LEFT_AT_LEAST


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admission-gateway development")])
    now = datetime.datetime.now(datetime.UTC)
    public = key.public_key()
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in DEVELOPMENT_ADDRESSES]
    names = [*map(x509.DNSName, DEVELOPMENT_DNS_NAMES), *addresses]
    usage = {
        "digital_signature": True,
        "content_commitment": False,
        "key_encipherment": False,
        "data_encipherment": False,
        "key_agreement": False,
        "key_cert_sign": False,
        "crl_sign": False,
        "encipher_only": False,
        "decipher_only": False,
    }
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


def _replace(path: Path, content: bytes) -> None:
    """Put *content* at *path* at once and whole, readable by the owner only from the start."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    new.replace(path)
