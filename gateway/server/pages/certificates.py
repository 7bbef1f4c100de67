"""The certificates of a configuration, without their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.base.certificates import certificates as certificates_in
from gateway.base.files import UnusableFileError, read_file
from gateway.pure.core.webhook import HttpsClient
from gateway.server.pages.state import rfc_3339

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gateway.config.merge.model import Config
    from gateway.server.pages.state import Json


def certificates(config: Config) -> list[Json]:
    """Return each certificate of *config* with its use, names, fingerprint and expiry.

    Those in files are as the files are now. A file that cannot be read has an entry with ``problem``.
    """
    return [entry for use, pem in _sources(config) for entry in _entries(use, pem)]


def _sources(config: Config) -> Iterator[tuple[str, Path | bytes]]:
    """Yield the use of each set of certificates, and the file or the PEM."""
    tls = config.gateway.tls
    for use, file in (("serving", tls.cert_file), ("clients: CA", tls.client_ca_file)):
        if file is not None:
            yield use, file
    for name, pool in sorted(config.pools.items()):
        if pool.tls is not None:
            roots = pool.tls.ca_bundle or pool.tls.ca_file
            if roots is not None:
                yield f"pool {name}: CA", roots
            if pool.tls.cert_file is not None:
                yield f"pool {name}: client", pool.tls.cert_file
    hooks = (*config.mutating, *config.validating)
    clients = {client: None for hook in hooks for client in hook.clients if isinstance(client, HttpsClient)}
    for client in clients:
        if client.ca_pem:
            yield f"{client.url}: CA", client.ca_pem


def _entries(use: str, source: Path | bytes) -> Iterator[Json]:
    # Imported late: see gateway.base.certificates.
    from cryptography.hazmat.primitives.hashes import SHA256

    file = "" if isinstance(source, bytes) else str(source)
    try:
        pem = source if isinstance(source, bytes) else read_file(source)
        found = certificates_in(pem)
    except UnusableFileError as error:
        yield {"use": use, "file": file, "problem": str(error), "notAfter": "", "notAfterSeconds": 0.0}
        return
    for one in found:
        end = one.not_valid_after_utc.timestamp()
        yield {
            "use": use,
            "file": file,
            "subject": one.subject.rfc4514_string(),
            "issuer": one.issuer.rfc4514_string(),
            "sha256": one.fingerprint(SHA256()).hex(),
            "notAfter": rfc_3339(end),
            "notAfterSeconds": end,
            "problem": "",
        }
