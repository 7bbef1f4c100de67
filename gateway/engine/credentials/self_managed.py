"""The gateway's own CA and serving certificate, as they are kept in a Secret, and their next state.

All replicas use the same Secret. A new CA is first published beside the old one, in the ``caBundle`` of the
registration; only then does it sign a serving certificate; and the old CA is removed when no replica can
serve a certificate of it. The times are those in the certificates, so that there is no other state.
"""

from __future__ import annotations

import base64
import datetime
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gateway.engine.credentials.issuing import CLOCKS_DIFFER, Issued, issue_authority, issue_server

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTHORITY_LIFETIME: Final = datetime.timedelta(days=5 * 365)
SERVER_LIFETIME: Final = datetime.timedelta(days=90)
RENEW_AT: Final = 2 / 3
"""Part of a lifetime after which a certificate is replaced."""
PUBLISHED_FOR: Final = datetime.timedelta(minutes=10)
"""How long a new CA is in the Secret before it signs a serving certificate: API servers have its
registration by then."""
KEPT_FOR: Final = datetime.timedelta(days=1)
"""How long the old CA stays after a serving certificate of the new one was made."""
_MAX_AUTHORITIES: Final = 8
_NAME: Final = "admission-gateway"


@dataclass(frozen=True, slots=True)
class TlsState:
    """The content of the Secret."""

    authorities: tuple[x509.Certificate, ...]
    """The CAs that API servers trust, the newest first."""
    authority_key: ec.EllipticCurvePrivateKey
    """Key of the newest CA."""
    server: Issued
    """The serving certificate."""

    @property
    def ca_bundle(self) -> bytes:
        """The certificates of all CAs, PEM."""
        key = self.authority_key
        return b"".join(Issued(certificate, key).certificate_pem for certificate in self.authorities)

    def data(self) -> dict[str, str]:
        """Return ``data`` of the Secret: base64 by key."""
        authority = Issued(self.authorities[0], self.authority_key)
        content = {
            "ca.crt": self.ca_bundle,
            "ca.key": authority.key_pem,
            "tls.crt": self.server.certificate_pem,
            "tls.key": self.server.key_pem,
        }
        return {name: base64.b64encode(value).decode() for name, value in content.items()}


def read_state(data: Mapping[str, object]) -> TlsState | None:
    """Return the state in *data* of a Secret; None if it is incomplete or cannot be used."""
    try:
        content = {name: base64.b64decode(str(data[name]), validate=True) for name in _KEYS}
        authorities = tuple(x509.load_pem_x509_certificates(content["ca.crt"]))[:_MAX_AUTHORITIES]
        server = x509.load_pem_x509_certificate(content["tls.crt"])
        authority_key, server_key = (
            load_pem_private_key(content[name], password=None) for name in ("ca.key", "tls.key")
        )
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    for key, certificate in ((authority_key, authorities[0]), (server_key, server)):
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            return None
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    assert isinstance(server_key, ec.EllipticCurvePrivateKey)
    return TlsState(authorities, authority_key, Issued(server, server_key))


_KEYS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")


def next_state(
    state: TlsState | None,
    dns_names: tuple[str, ...],
    now: datetime.datetime,
    *,
    is_published: bool,
) -> TlsState | None:
    """Return the state that replaces *state*, which may be missing; None if it is right.

    Args:
        state: The present state.
        dns_names: Names that the serving certificate must have.
        now: The present time.
        is_published: Whether the registration has all CAs of *state*.
    """
    if state is None:
        authority = issue_authority(f"{_NAME} CA", AUTHORITY_LIFETIME, now)
        return TlsState((authority.certificate,), authority.key, _server(dns_names, now, authority))
    valid = tuple(one for one in state.authorities if one.not_valid_after_utc > now)
    if not valid or valid[0] != state.authorities[0]:
        return next_state(None, dns_names, now, is_published=False)
    following = replace(state, authorities=valid)
    if _is_due(valid[0], now):
        authority = issue_authority(f"{_NAME} CA", AUTHORITY_LIFETIME, now)
        kept = (authority.certificate, *valid)[:_MAX_AUTHORITIES]
        following, is_published = TlsState(kept, authority.key, state.server), False
    following = _next_server(following, dns_names, now, is_published=is_published) or following
    return None if following == state else following


def _next_server(
    state: TlsState, dns_names: tuple[str, ...], now: datetime.datetime, *, is_published: bool
) -> TlsState | None:
    newest, server = state.authorities[0], state.server.certificate
    is_trusted = server.not_valid_after_utc > now and any(
        _is_signed_by(server, authority) for authority in state.authorities
    )
    is_newest = _is_signed_by(server, newest)
    # A new CA that nobody knows yet must not sign, unless the certificate in use is no better.
    may_sign = not is_trusted or len(state.authorities) == 1
    may_sign |= is_published and now - _made_at(newest) >= PUBLISHED_FOR
    if not (is_trusted and is_newest and not _is_due(server, now) and _names(server) == set(dns_names)):
        if not may_sign:
            return None
        return replace(state, server=_server(dns_names, now, Issued(newest, state.authority_key)))
    if len(state.authorities) > 1 and now - _made_at(server) >= KEPT_FOR:
        return replace(state, authorities=state.authorities[:1])
    return None


def _server(dns_names: tuple[str, ...], now: datetime.datetime, authority: Issued) -> Issued:
    return issue_server(_NAME, dns_names, (), SERVER_LIFETIME, now, authority)


def _is_due(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now >= certificate.not_valid_before_utc + lifetime * RENEW_AT


def _made_at(certificate: x509.Certificate) -> datetime.datetime:
    return certificate.not_valid_before_utc + CLOCKS_DIFFER


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    return set(found.get_values_for_type(x509.DNSName))


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
