"""A self-signed certificate for development."""

from __future__ import annotations

import datetime
import fcntl
import ssl
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.base.certificates import certificate_parts
from gateway.base.errors import ConfigError
from gateway.base.file_changes import read_as

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEVELOPMENT_DNS_NAMES = ("localhost", "admission-gateway.admission-gateway.svc")
DEVELOPMENT_ADDRESSES = ("127.0.0.1", "::1")
_NAME = "admission-gateway development"
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
            # Imported late: see gateway.base.certificates.
            from gateway.engine.credentials.issuing import issue_server, write_private

            now = datetime.datetime.now(datetime.UTC)
            made = issue_server(_NAME, DEVELOPMENT_DNS_NAMES, DEVELOPMENT_ADDRESSES, _LIFETIME, now)
            write_private(key_file, made.key_pem)
            write_private(cert_file, made.certificate_pem)
    return cert_file, key_file


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_usable(cert_file: Path, key_file: Path) -> bool:
    try:
        not_after = read_as(certificate_parts, cert_file, "tls.certFile")[0].not_after
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, password="")
    except (ConfigError, OSError):  # ssl.SSLError is an OSError
        return False
    return not_after - time.time() > _LEFT_AT_LEAST.total_seconds()
