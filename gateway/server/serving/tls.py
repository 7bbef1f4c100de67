"""The serving certificate: loaded, checked, and loaded again when its files change.

Connections that are accepted afterwards use the new context. Open ones keep theirs, and their clients are
checked against the new client CA. A client CA file that is deleted or empty revokes all client certificates.
"""

from __future__ import annotations

import logging
import ssl
import time
from _ssl import ENCODING_DER
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.base import files
from gateway.base.certificates import certificate_parts, chain_problem, parts_of
from gateway.base.errors import ConfigError, Problem
from gateway.base.file_changes import FileChanges, file_error, fingerprint, read_as

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.kinds.serving_settings import ServerTls

logger = logging.getLogger(__name__)

_TLS12_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Forward secrecy and authenticated encryption: what Go's client offers first too. TLS 1.3 has its own."""


NO_CERTIFICATE: Final = (
    "expected the path of a PEM file, found none: serve needs a certificate. Set tls.certFile and "
    "tls.keyFile of the GatewayConfiguration, or use --tls-cert and --tls-key; --dev makes a certificate "
    "for development"
)


def server_context(settings: ServerTls, *, trusts_clients: bool = True) -> ssl.SSLContext:
    """Return the context of a server that shows the certificate of *settings*.

    With ``client_ca_file`` a client may show a certificate; one that this CA did not sign ends the handshake.
    Without *trusts_clients* the file is not read, and the handshake of each client with a certificate ends.

    Raises:
        ConfigError: A file is missing or unusable, or certificate and key do not belong together.
    """
    if settings.cert_file is None or settings.key_file is None:
        missing = "tls.certFile" if settings.cert_file is None else "tls.keyFile"
        raise ConfigError([Problem("GatewayConfiguration", missing, NO_CERTIFICATE)])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_TLS12_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0  # the API server never resumes a session
    context.set_alpn_protocols(["http/1.1"])
    _load_pair(context, settings.cert_file, settings.key_file)
    if settings.client_ca_file is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        if trusts_clients:
            _load_client_ca(context, settings.client_ca_file)
    return context


def authorities_of(context: ssl.SSLContext) -> frozenset[bytes]:
    """Return the client CAs of *context*, each by its name and public key."""
    return frozenset(map(_authority, context.get_ca_certs(binary_form=True)))


def verifying_authorities(connection: ssl.SSLObject) -> frozenset[bytes]:
    """Return the client CAs that verified the client of *connection*, as ``authorities_of`` returns them."""
    authorities = authorities_of(connection.context)
    # Public from Python 3.13 on, as SSLObject.get_verified_chain.
    chain = connection._sslobj.get_verified_chain() or ()  # type: ignore[attr-defined] # noqa: SLF001
    # A resumed session has no chain: any of the CAs may have verified it.
    return authorities & {_authority(link.public_bytes(ENCODING_DER)) for link in chain} or authorities


@lru_cache(maxsize=1024)
def _authority(der: bytes) -> bytes:
    """Return name and public key of a certificate, which make up a trust anchor (RFC 5280, 6.1.1).

    A CA certificate that was issued again for the same key is the same authority.
    """
    try:
        certificate = parts_of(der)
    except ValueError:
        return der
    return certificate.subject + certificate.public_key


def _load_pair(context: ssl.SSLContext, cert_file: Path, key_file: Path) -> None:
    read_as(bytes, key_file, "tls.keyFile")
    read_as(certificate_parts, cert_file, "tls.certFile")
    try:
        # An empty password, since OpenSSL would ask for one on the terminal.
        context.load_cert_chain(cert_file, key_file, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message = f"is not the key of the certificate in {cert_file}"
        else:
            message = (
                f"expected an unencrypted private key in PEM, found something else ({error.reason or error})"
            )
        raise file_error(key_file, "tls.keyFile", message) from None


def _load_client_ca(context: ssl.SSLContext, path: Path) -> None:
    read_as(certificate_parts, path, "tls.clientCAFile")
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise file_error(path, "tls.clientCAFile", f"cannot be used: {error.reason or error}") from None


class ServerCertificate:
    """The TLS context for new connections, kept up to date with its files."""

    def __init__(self, settings: ServerTls) -> None:
        """Load the files of *settings*.

        Raises:
            ConfigError: As ``server_context``.
        """
        self._settings = settings
        self._changes = FileChanges(self._fingerprint)
        self._is_revoked = False
        self._load()

    def __repr__(self) -> str:
        return f"<ServerCertificate {self._settings.cert_file}, {self.reloads} reloads>"

    @property
    def is_current(self) -> bool:
        """False while the files are unusable and their earlier content is in force.

        Also False while the client CA file is deleted or empty, which takes effect but may be a mistake.
        """
        return not (self._changes.is_refused or self._is_revoked)

    reloads = 0
    """How often changed files were loaded."""

    def _load(self) -> None:
        settings = self._settings
        context = server_context(settings, trusts_clients=not self._is_revoked)
        assert settings.cert_file is not None
        chain = read_as(certificate_parts, settings.cert_file, "tls.certFile")
        self.not_after = chain[0].not_after
        """When the certificate expires, in seconds since 1970."""
        self.context = context
        self.client_authorities = authorities_of(context)
        if message := chain_problem(chain, time.time()):
            # It may be renewed, which takes effect without a restart.
            logger.error("API servers refuse the serving certificate: %s %s", settings.cert_file, message)

    def _fingerprint(self) -> object:
        return fingerprint((self._settings.cert_file, self._settings.key_file, self._settings.client_ca_file))

    def refresh(self) -> bool:
        """Look at the files, and load them if they have changed; return whether they were loaded.

        Unusable files are logged once, and the old certificate stays in force.
        """
        if not self._changes.is_due():
            return False
        state = self._changes.state()
        client_ca_file, was_revoked = self._settings.client_ca_file, self._is_revoked
        self._is_revoked = client_ca_file is not None and _is_gone(client_ca_file)
        if self._is_revoked and not (self._changes.is_stable and self._changes.state() == state):
            # A file is empty for a moment while it is written, and may be missing while it is replaced.
            self._is_revoked = was_revoked
            return False
        try:
            self._load()
        except ConfigError as error:
            self._is_revoked = was_revoked
            if self._changes.refused(state, str(error)):
                logger.error("changed TLS files are unusable, the old ones stay in force: %s", error)
            return False
        self._changes.accepted(state)
        self.reloads += 1
        if self._is_revoked:
            logger.warning(
                "all client certificates are revoked: client CA file %s is deleted or empty", client_ca_file
            )
        logger.info("TLS files reloaded: %s", self._settings.cert_file)
        return True


def _is_gone(path: Path) -> bool:
    """Whether the file at *path* does not exist or is blank."""
    try:
        return not files.read_file(path).strip()
    except files.MissingFileError:
        return True
    except files.UnusableFileError:
        return False
