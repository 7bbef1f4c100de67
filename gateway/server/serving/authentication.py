"""Authentication of clients: bearer tokens, webhook tokens of API servers, passwords, client certificates.

Any of the configured ways is enough; without one all clients are let in. TLS itself ends the handshake of a
certificate that the CA did not sign. Credentials are compared as SHA-256 digests, each with all, so that the
time reveals neither length nor position.

After a change, open connections are checked again (``gateway.server.serving.connection_table``). A file of
credentials that is deleted or empty revokes all that it held. A file that is malformed, or cannot be read
for another reason, changes nothing.

Source: RFC 6750 section 2.1 (Bearer), RFC 7617 (Basic), RFC 9110 section 11.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from gateway.base.credentials import NoCredentialError, basic_credentials, bearer_tokens
from gateway.base.errors import ConfigError, Problem
from gateway.base.file_changes import FileChanges, file_error, fingerprint
from gateway.base.files import MissingFileError, UnusableFileError, read_file
from gateway.server.serving.message import Response, error_response, unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.kinds.serving_settings import Authentication, ServerTls
    from gateway.config.kinds.webhook_token_settings import WebhookTokenSettings
    from gateway.engine.credentials.webhook_tokens import WebhookTokens

logger = logging.getLogger(__name__)

_REALM = b' realm="admission-gateway"'
_READERS = {
    b"bearer": (bearer_tokens, "tokenFile"),
    b"basic": (basic_credentials, "basicAuthFile"),
}


class ClientAuthenticator:
    """The clients that are let in, from ``authentication`` and ``tls`` of the GatewayConfiguration."""

    def __init__(
        self,
        authentication: Authentication,
        tls: ServerTls,
        field: str = "authentication",
        *,
        before: ClientAuthenticator | None = None,
        refused_tokens: Counter[str] | None = None,
    ) -> None:
        """Read the credentials. *field* of the GatewayConfiguration names their files.

        The keys of webhook tokens are those of *before* if their settings are the same. *refused_tokens*
        counts refused tokens by reason.

        Raises:
            ConfigError: A file cannot be read, has no credential, or a malformed one.
        """
        self._field = field
        self._requests_certificate = tls.client_ca_file is not None
        self._names = frozenset(tls.client_names)
        self._schemes: dict[bytes, Path] = {}
        if authentication.token_file is not None:
            self._schemes[b"bearer"] = authentication.token_file
        if authentication.basic_auth_file is not None:
            self._schemes[b"basic"] = authentication.basic_auth_file
        self.tokens = _webhook_tokens(authentication.webhook_tokens, before, refused_tokens)
        """The tokens of API servers that are accepted. None if none are."""
        keys_file = None if self.tokens is None else self.tokens.settings.jwks_file
        self._files = [*self._schemes.values(), *([keys_file] if keys_file is not None else [])]
        self._changes = FileChanges(lambda: fingerprint(self._files))
        self.credentials, revoked = self._read()
        """Digests by scheme; another object whenever the files were read again."""
        if revoked:
            raise ConfigError(revoked)
        self._is_revoked = False
        self._refusal = self._make_refusal()
        self.is_required = bool(self._schemes) or self._requests_certificate or self.tokens is not None
        """Whether any way is configured, so that clients have to authenticate."""

    @property
    def is_current(self) -> bool:
        """False while the files are unusable and the earlier credentials are in force.

        Also False while a file is deleted or empty, which takes effect but may be a mistake.
        """
        return not (self._changes.is_refused or self._is_revoked)

    def has_same_clients(self, other: ClientAuthenticator) -> bool:
        """Whether it lets in the same clients as *other*."""
        mine = self._requests_certificate, self._names, self.credentials, self.tokens
        return mine == (other._requests_certificate, other._names, other.credentials, other.tokens)

    def is_trusted_certificate(self, certificate: dict[str, Any] | None) -> bool:
        """Whether a client with this verified *certificate* is let in without other credentials.

        Args:
            certificate: As ``ssl.SSLSocket.getpeercert`` returns it, or None if the client has none.
        """
        if not self._requests_certificate or not certificate:
            return False
        return not self._names or not self._names.isdisjoint(_names_of(certificate))

    def challenge(self, authorization: bytes | None, target: bytes = b"") -> Response | None:
        """Return the refusal unless *authorization*, the value of that header, is a known credential.

        It is 401, or 503 while the keys of webhook tokens are read. A webhook token has to be for *target*,
        the path and query of the request. None if no authentication is configured.
        """
        if not self.is_required:
            return None
        scheme, _, credential = (authorization or b"").partition(b" ")
        scheme, credential = scheme.lower(), credential.strip()
        known = self.credentials.get(scheme)
        if known is not None and _is_among(_decode(scheme, credential), known):
            return None
        if self.tokens is None or scheme != b"bearer":
            return self._refusal
        return self._check_token(self.tokens, credential, target)

    def api_group(self, authorization: bytes | None) -> str | None:
        """Return the API group of the webhook token in *authorization*, or None for any or no token."""
        scheme, _, credential = (authorization or b"").partition(b" ")
        if self.tokens is None or scheme.lower() != b"bearer":
            return None
        return self.tokens.api_group(credential.strip())

    def _check_token(self, tokens: WebhookTokens, token: bytes, target: bytes) -> Response | None:
        from gateway.engine.credentials.webhook_tokens import KeysNotReadError, TokenError

        try:
            tokens.check(token, target)
        except KeysNotReadError as error:
            return unavailable(str(error))
        except TokenError as error:
            challenge = b'WWW-Authenticate: Bearer%b, error="invalid_token"\r\n' % _REALM
            return error_response(401, f"not authenticated: {error}", headers=challenge)
        return None

    def refresh(self) -> bool:
        """Check the files, and read them if they have changed; return whether new credentials are in force.

        Unusable files are logged once, and the old credentials stay in force.
        """
        if not self._changes.is_due():
            return False
        state = self._changes.state()
        try:
            credentials, revoked = self._read()
        except ConfigError as error:
            if self._changes.refused(state, str(error)):
                logger.error("changed credentials are unusable, the old ones stay in force: %s", error)
            return False
        if revoked and not (self._changes.is_stable and self._changes.state() == state):
            # A file is empty for a moment while it is written, and may be missing while it is replaced.
            return False
        self._changes.accepted(state)
        self.credentials, self._is_revoked = credentials, bool(revoked)
        for problem in revoked:
            logger.warning("all credentials of a file are revoked: %s", problem)
        logger.info("credentials reloaded")
        return True

    def _read(self) -> tuple[dict[bytes, tuple[bytes, ...]], list[Problem]]:
        """Return the digests by scheme, and the files that are missing or empty.

        Raises:
            ConfigError: A file cannot be used for another reason.
        """
        digests, revoked = {}, []
        for scheme, path in self._schemes.items():
            reader, name = _READERS[scheme]
            field = f"{self._field}.{name}"
            entries: list[bytes] = []
            try:
                entries = reader(read_file(path))
            except (MissingFileError, NoCredentialError) as error:
                revoked.append(Problem(str(path), field, str(error)))
            except UnusableFileError as error:
                raise file_error(path, field, str(error)) from None
            digests[scheme] = tuple(sha256(entry).digest() for entry in entries)
        if self.tokens is not None and self.tokens.settings.jwks_file is not None:
            _read_keys(self.tokens, self.tokens.settings.jwks_file, f"{self._field}.webhookTokens.jwksFile")
        return digests, revoked

    def _make_refusal(self) -> Response:
        ways = {b"bearer": (b"Bearer", "a bearer token"), b"basic": (b"Basic", "a user name with password")}
        challenges = [ways[scheme][0] + _REALM for scheme in self._schemes]
        wanted = [ways[scheme][1] for scheme in self._schemes]
        if self.tokens is not None:
            wanted.append("a token of an API server")
            challenges = challenges or [b"Bearer" + _REALM]
        if self._requests_certificate:
            wanted.append("a client certificate with an allowed name")
        # RFC 9110 requires a challenge in every 401, and there is no registered one for certificates.
        header = b", ".join(challenges or [b"ClientCertificate" + _REALM])
        return error_response(
            401,
            "not authenticated, expected " + " or ".join(wanted),
            headers=b"WWW-Authenticate: %b\r\n" % header,
        )


def _webhook_tokens(
    settings: WebhookTokenSettings | None, before: ClientAuthenticator | None, refused: Counter[str] | None
) -> WebhookTokens | None:
    if settings is None:
        return None
    if before is not None and before.tokens is not None and before.tokens.settings == settings:
        return before.tokens
    # Imported late: PyJWT takes 0.2 s to load, and most gateways need none of it.
    from gateway.engine.credentials.webhook_tokens import WebhookTokens

    return WebhookTokens(settings, Counter() if refused is None else refused)


def _read_keys(tokens: WebhookTokens, file: Path, field: str) -> None:
    """Use the keys in *file*.

    Raises:
        ConfigError: it cannot be read, or has none; the keys stay.
    """
    from gateway.engine.credentials.webhook_tokens import read_keys

    try:
        tokens.use_keys(read_keys(read_file(file)))
    except UnusableFileError as error:
        raise file_error(file, field, str(error)) from None


def _names_of(certificate: dict[str, Any]) -> set[str]:
    common = {value for rdn in certificate.get("subject", ()) for key, value in rdn if key == "commonName"}
    return common | {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}


def _decode(scheme: bytes, credential: bytes) -> bytes:
    if scheme.lower() != b"basic":
        return credential
    try:
        return base64.b64decode(credential, validate=True)
    except binascii.Error:
        return b""


def _is_among(credential: bytes, known: tuple[bytes, ...]) -> bool:
    digest = sha256(credential).digest()
    found = False
    for other in known:
        found |= hmac.compare_digest(digest, other)
    return found
