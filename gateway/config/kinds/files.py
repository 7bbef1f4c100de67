"""Reads the fields that name files with certificates, keys and credentials, and checks the files.

Relative paths begin in the folder of the document. The files are read again where they are used. Messages
contain nothing of their content.
"""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, NamedTuple

from admission_gateway_worker.text import printable
from gateway.base.certificates import certificate_parts, chain_problem, public_key, roots, roots_problem
from gateway.base.credentials import (
    basic_credentials,
    bearer_tokens,
    check_json_web_keys,
    recording_key,
    request_headers,
)
from gateway.base.files import UnusableFileError, read_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gateway.base.certificates import CertificateParts
    from gateway.config.yaml.fields import Fields


class KeyPair(NamedTuple):
    """The files of a certificate and its key; both or neither."""

    cert_file: Path | None
    key_file: Path | None


def read_ca_file(fields: Fields, name: str) -> Path | None:
    """Return the path of the PEM certificates in the field *name*."""
    found: list[CertificateParts] = []
    path = _checked(fields, name, lambda content: found.extend(certificate_parts(content)))
    if message := roots_problem(found, time.time()):
        fields.problems.warn(fields.at(name), f"{printable(path)} {message}")
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
            fields.problems.warn(fields.at(name), message)
        return content
    return None


def read_token_file(fields: Fields, name: str) -> Path | None:
    """Return the path in the field *name*, of a file with one bearer token per line."""
    return _checked(fields, name, bearer_tokens)


def read_basic_auth_file(fields: Fields, name: str) -> Path | None:
    """Return the path in *name*, of a file with one ``user:password`` per line."""
    return _checked(fields, name, basic_credentials)


def read_headers_file(fields: Fields, name: str) -> Path | None:
    """Return the path in the field *name*, of a file with ``NAME: VALUE`` lines."""
    return _checked(fields, name, request_headers)


def read_recording_key_file(fields: Fields, name: str) -> Path | None:
    """Return the path in the field *name*, of a file with the key of recordings."""
    return _checked(fields, name, recording_key)


def read_json_web_keys(fields: Fields, name: str) -> Path | None:
    """Return the path in the field *name*, of a JSON Web Key Set."""
    return _checked(fields, name, check_json_web_keys)


def read_key_pair(fields: Fields, *, warns: bool = True) -> KeyPair:
    """Return the paths in ``certFile`` and ``keyFile``; they must match.

    *warns* is whether a certificate that is not valid now is a warning.
    """
    public_keys: list[bytes] = []
    chain: list[CertificateParts] = []
    cert_file = _checked(fields, "certFile", lambda content: chain.extend(certificate_parts(content)))
    # The first is the server's; the others are intermediates (RFC 8446 section 4.4.2).
    public_keys += [one.public_key for one in chain[:1]]
    if warns and (message := chain_problem(chain, time.time())):
        fields.problems.warn(fields.at("certFile"), f"{printable(cert_file)} {message}")
    key_file = _checked(fields, "keyFile", lambda content: public_keys.append(public_key(content)))
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


def _checked(fields: Fields, name: str, check: Callable[[bytes], object]) -> Path | None:
    text = fields.string(name, None)
    if text is None:
        return None
    if not text:
        fields.problem(name, "is empty, expected the path of a file")
        return None
    path = fields.problems.resolve(fields.folder, text)
    try:
        check(read_file(path))
    except UnusableFileError as error:
        fields.problem(name, f"{printable(path)} {error}")
    return path
