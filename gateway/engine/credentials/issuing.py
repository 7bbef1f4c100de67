"""Makes certificates: ECDSA P-256, signed with SHA-256. Source: RFC 5280."""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CLOCKS_DIFFER: Final = datetime.timedelta(hours=1)
"""A certificate is valid from so long before it was made."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate, PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key without a password, PKCS #8 in PEM."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def issue_authority(name: str, lifetime: datetime.timedelta, now: datetime.datetime) -> Issued:
    """Return a CA called *name* that is valid for *lifetime* from *now* on."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), key, lifetime, now)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(is_authority=True), critical=True)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False).issuer_name(_name(name))
    return Issued(builder.sign(key, hashes.SHA256()), key)


def issue_server(
    name: str,
    dns_names: Iterable[str],
    addresses: Iterable[str],
    lifetime: datetime.timedelta,
    now: datetime.datetime,
    authority: Issued | None = None,
) -> Issued:
    """Return the certificate of a server.

    Args:
        name: Common name.
        dns_names: Names that clients may use.
        addresses: IP addresses that clients may use.
        lifetime: For how long it is valid from *now* on.
        now: The present time.
        authority: The CA that signs it. None for a certificate that signs itself.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    signer, issuer = (
        (key, _name(name)) if authority is None else (authority.key, authority.certificate.subject)
    )
    names: list[x509.GeneralName] = [*map(x509.DNSName, dns_names)]
    names += [x509.IPAddress(ipaddress.ip_address(text)) for text in addresses]
    certificate = (
        _builder(_name(name), key, lifetime, now)
        .issuer_name(issuer)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return Issued(certificate, key)


def write_private(path: Path, content: bytes) -> None:
    """Replace *path* by *content* at once and whole, readable by the owner only from the start."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    new.replace(path)


def _builder(
    name: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    lifetime: datetime.timedelta,
    now: datetime.datetime,
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
