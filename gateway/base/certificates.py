"""Certificates and keys in PEM: their parts, and whether they can be used now.

OpenSSL checks that a certificate can be read, and its parts are found here. ``cryptography`` could do all of
that, but takes 7 MiB of memory in each process; it is imported where more is needed.

Source: RFC 5280 section 4.1; X.690 (DER); RFC 7468 (PEM).
"""

from __future__ import annotations

import base64
import re
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.base.files import UnusableFileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography import x509

_PEM: Final = re.compile(
    rb"-----BEGIN (?:X509 )?CERTIFICATE-----(.*?)-----END (?:X509 )?CERTIFICATE-----", re.DOTALL
)
_CERTIFICATE = re.compile(
    rb"^-----BEGIN CERTIFICATE-----([^-]*)^-----END CERTIFICATE-----[ \t\r]*$", re.MULTILINE
)
"""As crypto/x509 of Go finds them (CertPool.AppendCertsFromPEM)."""
_VERSION, _UTC_TIME = 0xA0, 0x17
"""Tags."""


class CertificateParts(NamedTuple):
    """The parts of a certificate."""

    subject: bytes
    """The name, DER."""
    not_before: float
    """When it begins to be valid, in seconds since 1970."""
    not_after: float
    """When it expires, in seconds since 1970."""
    public_key: bytes
    """SubjectPublicKeyInfo, DER."""


def parts_in(content: bytes) -> list[CertificateParts]:
    """Return the parts of each certificate in the PEM *content*, at least one.

    Raises:
        ValueError: there is none, or one cannot be read.
    """
    found = [
        parts_of(base64.b64decode(b"".join(block[1].split()), validate=True))
        for block in _PEM.finditer(content)
    ]
    if not found:
        raise ValueError("no certificate")
    return found


def parts_of(der: bytes) -> CertificateParts:
    """Return the parts of a certificate.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=der)
        _, begin, end, _ = _element(der, 0)
        _, begin, end, _ = _element(der, begin)
        fields = _elements(der, begin, end)
        # The version is optional; then come serial number, algorithm, issuer, validity, subject and key.
        first = 1 if fields[0][0] == _VERSION else 0
        _, validity, validity_end, _ = fields[first + 3]
        times = _elements(der, validity, validity_end)
        not_before, not_after = (_seconds(tag, der[begin:end]) for tag, begin, end, _ in times)
        _, _, subject_end, subject = fields[first + 4]
        _, _, key_end, key = fields[first + 5]
    except (ssl.SSLError, IndexError, ValueError) as error:
        raise ValueError(f"no certificate: {error}") from None
    return CertificateParts(der[subject:subject_end], not_before, not_after, der[key:key_end])


def chain_problem(certificates: Sequence[CertificateParts], now: float) -> str:
    """Return why a chain, with the leaf first, is not valid at *now* (seconds since 1970). Empty if it is."""
    return next(filter(None, (_problem(one, now) for one in certificates)), "")


def roots_problem(certificates: Sequence[CertificateParts], now: float) -> str:
    """Return why none of several roots is valid at *now* (seconds since 1970). Empty if one is."""
    problems = [_problem(one, now) for one in sorted(certificates, key=lambda one: -one.not_after)]
    return problems[0] if problems and all(problems) else ""


def _problem(certificate: CertificateParts, now: float) -> str:
    if now > certificate.not_after:
        return f"holds a certificate that expired on {_time(certificate.not_after)}"
    if now < certificate.not_before:
        return f"holds a certificate that is not valid before {_time(certificate.not_before)}"
    return ""


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _elements(der: bytes, at: int, end: int) -> list[tuple[int, int, int, int]]:
    found = []
    while at < end:
        found.append(_element(der, at))
        at = found[-1][2]
    return found


def _element(der: bytes, at: int) -> tuple[int, int, int, int]:
    """Return the tag, the content's begin and end, and the begin of the element at *at*."""
    length, begin = der[at + 1], at + 2
    if length & 0x80:
        content = begin + (length & 0x7F)
        length, begin = int.from_bytes(der[begin:content]), content
    return der[at], begin, begin + length, at


def _seconds(tag: int, text: bytes) -> float:
    """Return the time *text*, in seconds since 1970. UTCTime has the years 1950 to 2049."""
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        digits = ("19" if digits >= "50" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def certificates(content: bytes) -> list[x509.Certificate]:
    """Return the certificates in the PEM *content*, at least one.

    Raises:
        UnusableFileError: there is none that can be read.
    """
    # Imported late: see above.
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise UnusableFileError("holds no PEM certificate that can be read") from error


def certificate_parts(content: bytes) -> list[CertificateParts]:
    """Return the parts of each certificate in the PEM *content*, at least one.

    Raises:
        UnusableFileError: there is none that can be read.
    """
    try:
        return parts_in(content)
    except ValueError as error:
        raise UnusableFileError("holds no PEM certificate that can be read") from error


def roots(content: bytes) -> list[CertificateParts]:
    """Return the parts of the PEM *content*, with which a peer's certificate can be verified.

    Raises:
        UnusableFileError: there is no certificate, or OpenSSL does not accept it: neither headers, nor text
            before ``-----BEGIN`` on the same line.
    """
    parts = certificate_parts(content)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=content.decode("ascii", "ignore")
        )
    except ssl.SSLError as error:
        raise UnusableFileError("holds no PEM certificate that OpenSSL accepts") from error
    return parts


def roots_among(content: bytes) -> tuple[bytes, int]:
    """Return the readable certificates in the PEM *content*, as PEM, and the number of unreadable ones.

    Raises:
        UnusableFileError: there is none, or OpenSSL does not accept one.
    """
    found, others = [], 0
    for block in _CERTIFICATE.finditer(content):
        try:
            der = base64.b64decode(b"".join(block[1].split()), validate=True)
            parts_of(der)
        except ValueError:
            others += 1
        else:
            found.append(ssl.DER_cert_to_PEM_cert(der).encode())
    pem = b"".join(found)
    roots(pem)
    return pem, others


def public_key(content: bytes) -> bytes:
    """Return the public key, DER, of the PEM private key in *content*.

    Raises:
        UnusableFileError: there is none, or it needs a password.
    """
    # Imported late: see above.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    try:
        key = load_pem_private_key(content, None)
    except TypeError as error:
        raise UnusableFileError("holds an encrypted key, expected one without a password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnusableFileError("holds no PEM private key that can be read") from error
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
