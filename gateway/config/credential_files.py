"""Checks of the files that a configuration names: certificates, keys, tokens.

The files are read again where they are used. Messages contain nothing of their content.

Source: RFC 7468 for PEM; RFC 7617 for the colon of basic authentication.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission_gateway_worker.text import printable
from gateway.base.files import UnusableFileError, read_file
from gateway.config.certificate_parts import chain_problem, parts_in, parts_of, roots_problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cryptography import x509

    from gateway.config.certificate_parts import CertificateParts
    from gateway.config.fields import Fields

_CERTIFICATE = re.compile(
    rb"^-----BEGIN CERTIFICATE-----([^-]*)^-----END CERTIFICATE-----[ \t\r]*$", re.MULTILINE
)
"""As crypto/x509 of Go finds them (CertPool.AppendCertsFromPEM)."""


_HEADER = re.compile(rb"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")
"""RFC 9110 section 5, in ASCII."""
_OWN_HEADERS = (
    b"host",
    b"content-length",
    b"content-type",
    b"content-encoding",
    b"transfer-encoding",
    b"connection",
)
_LEAST_KEY_BYTES = 16


class NoCredentialError(UnusableFileError):
    """A file can be read and contains no credential."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The files of a certificate and its key; both or neither."""

    cert_file: Path | None
    key_file: Path | None


def read_ca_file(fields: Fields, name: str, folder: Path) -> Path | None:
    """Return the path of the PEM certificates in the field *name*, relative to *folder*."""
    found: list[CertificateParts] = []
    path = _checked(fields, name, folder, lambda content: found.extend(certificate_parts(content)))
    if message := roots_problem(found, time.time()):
        fields.report.warn(fields.at(name), f"{printable(path)} {message}")
    return path


def read_ca_bundle(fields: Fields, name: str) -> bytes | None:
    """Return the PEM certificates in the field *name*, base64."""
    text = fields.string(name, None)
    if text is None:
        return None
    try:
        # Go's decoder ignores line breaks and nothing else.
        content = base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
        message = roots_problem(roots(content), time.time())
    except ValueError:
        fields.problem(name, "is not base64; expected PEM certificates in base64")
    except UnusableFileError as error:
        fields.problem(name, str(error))
    else:
        if message:
            fields.report.warn(fields.at(name), message)
        return content
    return None


def read_token_file(fields: Fields, name: str, folder: Path) -> Path | None:
    """Return the path in the field *name*, relative to *folder*, of a file with one bearer token per line."""
    return _checked(fields, name, folder, bearer_tokens)


def read_basic_auth_file(fields: Fields, name: str, folder: Path) -> Path | None:
    """Return the path in *name*, relative to *folder*, of a file with one ``user:password`` per line."""
    return _checked(fields, name, folder, basic_credentials)


def read_headers_file(fields: Fields, name: str, folder: Path) -> Path | None:
    """Return the path in the field *name*, relative to *folder*, of a file with ``NAME: VALUE`` lines."""
    return _checked(fields, name, folder, request_headers)


def read_recording_key_file(fields: Fields, name: str, folder: Path) -> Path | None:
    """Return the path in the field *name*, relative to *folder*, of a file with the key of recordings."""
    return _checked(fields, name, folder, recording_key)


def read_json_web_keys(fields: Fields, name: str, folder: Path) -> Path | None:
    """Return the path in the field *name*, relative to *folder*, of a JSON Web Key Set."""
    return _checked(fields, name, folder, _json_web_keys)


def read_key_pair(fields: Fields, folder: Path, *, warns: bool = True) -> KeyPair:
    """Return the paths in ``certFile`` and ``keyFile``, relative to *folder*; they must match.

    *warns* is whether a certificate that is not valid now is a warning.
    """
    public_keys: list[bytes] = []
    chain: list[CertificateParts] = []
    cert_file = _checked(fields, "certFile", folder, lambda content: chain.extend(certificate_parts(content)))
    # The first is the server's; the others are intermediates (RFC 8446 section 4.4.2).
    public_keys += [one.public_key for one in chain[:1]]
    if warns and (message := chain_problem(chain, time.time())):
        fields.report.warn(fields.at("certFile"), f"{printable(cert_file)} {message}")
    key_file = _checked(fields, "keyFile", folder, lambda content: public_keys.append(public_key(content)))
    for name, present, other, absent in (
        ("certFile", key_file, "keyFile", cert_file),
        ("keyFile", cert_file, "certFile", key_file),
    ):
        if present and not absent and not fields.has(name):
            fields.problem(name, f"is required together with {other}")
    if len(public_keys) == 2 and public_keys[0] != public_keys[1]:
        place = f"the certificate in {printable(cert_file)}"
        fields.problem("keyFile", f"{printable(key_file)} is not the key of {place}")
    return KeyPair(cert_file, key_file)


def _checked(fields: Fields, name: str, folder: Path, check: Callable[[bytes], object]) -> Path | None:
    text = fields.string(name, None)
    if text is None:
        return None
    if not text:
        fields.problem(name, "is empty, expected the path of a file")
        return None
    path = fields.report.resolve(folder, text)
    try:
        check(read_file(path))
    except UnusableFileError as error:
        fields.problem(name, f"{printable(path)} {error}")
    return path


def certificates(content: bytes) -> list[x509.Certificate]:
    """Return the certificates in the PEM *content*, at least one.

    Raises:
        UnusableFileError: there is none that can be read.
    """
    # Imported late: see gateway.config.certificate_parts.
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


def _json_web_keys(content: bytes) -> None:
    """Check that *content* has a list of keys; those that cannot verify tokens are found where they are used.

    Raises:
        UnusableFileError: it has none.
    """
    try:
        match json.loads(content):
            case {"keys": [_, *_]}:
                return
    except (ValueError, RecursionError):
        pass
    raise UnusableFileError("holds no JSON Web Key Set")


def bearer_tokens(content: bytes) -> list[bytes]:
    """Return the tokens in *content*, one per line; blank lines and lines with a leading # are skipped.

    Raises:
        UnusableFileError: there is none, or a line has several words.
    """
    return _credentials(content, lambda line: len(line.split()) == 1, "one token")


def basic_credentials(content: bytes) -> list[bytes]:
    """Return the ``user:password`` pairs in *content*, one per line, as :func:`bearer_tokens` does.

    Raises:
        UnusableFileError: there is none, or a line has no user.
    """
    return _credentials(content, lambda line: line.find(b":") > 0, "USER:PASSWORD")


def request_headers(content: bytes) -> dict[str, str]:
    """Return the headers in *content*, one ``NAME: VALUE`` per line, as :func:`bearer_tokens` does.

    Raises:
        UnusableFileError: there is none, or a line is no header that a request may have besides its own.
    """

    def is_right(line: bytes) -> bool:
        found = _HEADER.fullmatch(line)
        return found is not None and found[1].lower() not in _OWN_HEADERS

    lines = _credentials(content, is_right, "NAME: VALUE of a header that may be set")
    pairs = (line.decode("ascii").split(":", 1) for line in lines)
    return {name: value.strip() for name, value in pairs}


def recording_key(content: bytes) -> bytes:
    """Return the key of the hashes in recordings: *content* without white space around it.

    Raises:
        UnusableFileError: it is too short to be a secret.
    """
    key = content.strip()
    if len(key) < _LEAST_KEY_BYTES:
        raise UnusableFileError(f"holds {len(key)} bytes, expected at least {_LEAST_KEY_BYTES} random ones")
    return key


def public_key(content: bytes) -> bytes:
    """Return the public key, DER, of the PEM private key in *content*.

    Raises:
        UnusableFileError: there is none, or it needs a password.
    """
    # Imported late: see gateway.config.certificate_parts.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    try:
        key = load_pem_private_key(content, None)
    except TypeError as error:
        raise UnusableFileError("holds an encrypted key, expected one without a password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnusableFileError("holds no PEM private key that can be read") from error
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _credentials(content: bytes, is_right: Callable[[bytes], bool], expected: str) -> list[bytes]:
    found = []
    for number, line in enumerate(map(bytes.strip, content.splitlines()), 1):
        if line and not line.startswith(b"#"):
            if not is_right(line):
                raise UnusableFileError(f"line {number} is not {expected}")
            found.append(line)
    if not found:
        raise NoCredentialError("holds no credential")
    return found
