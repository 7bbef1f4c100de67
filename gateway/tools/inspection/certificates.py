"""Checks of certificates: whether the API server trusts the gateway's, and which ones expire.

The API server's roots are in ``caBundle``, and it expects the name of the Service, or the host of the URL.
Extensions that it does not require are not required here.

Source: k8s.io/apiserver pkg/util/webhook/client.go (server name); Go crypto/x509 verify.go, where a
certificate that is among the roots needs no issuer; RFC 5280 section 6.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID as EKU  # noqa: N814
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from gateway.base.certificates import certificates
from gateway.base.files import UnusableFileError, read_file
from gateway.pure.core.webhook import HttpsClient
from gateway.tools.inspection.model import REGISTER, Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gateway.config.merge.model import Config
    from gateway.tools.inspection.model import ClusterState, RegisteredEntry


_UNREADABLE: Final = (x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError)
"""Raised for invalid extensions."""
SERVING: Final = "GatewayConfiguration: tls.certFile"


@dataclass(frozen=True, slots=True)
class CertificateSet:
    """The certificates in one field or file."""

    place: str
    certificates: tuple[x509.Certificate, ...]
    are_roots: bool
    """Whether one valid certificate is enough; a chain needs all."""


def configured_certificates(config: Config) -> Iterator[CertificateSet | Finding]:
    """Yield the certificates in *config*, and a finding for each file that cannot be read now."""
    tls = config.gateway.tls
    files: list[tuple[str, Path | None, bool]] = [
        (SERVING, tls.cert_file, False),
        ("GatewayConfiguration: tls.clientCAFile", tls.client_ca_file, True),
    ]
    for name, pool in sorted(config.pools.items()):
        if pool.tls is not None:
            if pool.tls.ca_bundle is not None:
                yield from _roots_in(f"WorkerPool {name}: tls.caBundle", pool.tls.ca_bundle)
            files.append((f"WorkerPool {name}: tls.caFile", pool.tls.ca_file, True))
            files.append((f"WorkerPool {name}: tls.certFile", pool.tls.cert_file, False))
    for place, file, are_roots in files:
        if file is not None:
            try:
                yield CertificateSet(f"{place} {file}", tuple(certificates(read_file(file))), are_roots)
            except UnusableFileError as error:
                yield Finding("error", f"{place} {file}", str(error), "put the right file there")
    for hook in config.webhooks:
        for client in hook.clients:
            if isinstance(client, HttpsClient) and client.ca_pem:
                yield from _roots_in(
                    f"{hook.phase} {hook.configuration}/{hook.name}: caBundle", client.ca_pem
                )


def followed_certificates(seen: ClusterState) -> Iterator[CertificateSet | Finding]:
    """Yield the certificates that ``caBundleFrom`` names, or a finding where there are none."""
    for source, found in seen.ca_bundles.items():
        place = f"caBundleFrom: {source}"
        if isinstance(found, UnusableFileError):
            message = f"{found}; a gateway that starts now cannot call the webhook"
            yield Finding("error", place, message, "create the object, or correct caBundleFrom")
        else:
            yield from _roots_in(place, found)


def _roots_in(place: str, pem: bytes) -> Iterator[CertificateSet | Finding]:
    try:
        yield CertificateSet(place, tuple(certificates(pem)), are_roots=True)
    except UnusableFileError as error:
        yield Finding("error", place, f"it {error}", "put the right CA there")


def registered_roots(entries: Sequence[RegisteredEntry]) -> Iterator[CertificateSet | Finding]:
    """Yield the roots in ``caBundle`` of each entry, or a finding about it."""
    for entry in entries:
        if not entry.ca_bundle:
            if entry.service is not None:
                message = "caBundle is empty, and the API server's own roots do not sign names of Services"
                yield Finding("error", entry.place, message, f"{REGISTER} with --ca-file")
            continue
        try:
            content = base64.b64decode(entry.ca_bundle, validate=True)
            yield CertificateSet(f"{entry.place}: caBundle", tuple(certificates(content)), are_roots=True)
        except (binascii.Error, UnusableFileError):
            message = "caBundle holds no PEM certificate that can be read"
            yield Finding("error", entry.place, message, f"{REGISTER} with --ca-file")


def check_expiry(found: CertificateSet, now: datetime.datetime, days: int) -> Iterator[Finding]:
    """Yield the certificates in *found* that have expired at *now*, or expire within *days* days."""
    last = [one.not_valid_after_utc for one in found.certificates]
    # Roots except the last to expire have been replaced.
    decisive = (max if found.are_roots else min)(last)
    soon = now + datetime.timedelta(days=days)
    for one in found.certificates:
        end = one.not_valid_after_utc
        subject = one.subject.rfc4514_string() or "an empty subject"
        if end < now:
            severity: Severity = "error" if decisive < now else "warning"
            yield Finding(
                severity,
                found.place,
                f"the certificate of {subject} has expired on {end:%Y-%m-%d}",
                "renew it",
            )
        elif end < soon and decisive < soon:
            yield Finding(
                "warning", found.place, f"the certificate of {subject} expires on {end:%Y-%m-%d}", "renew it"
            )
        if one.not_valid_before_utc > now:
            begins = f"{one.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
            message = f"the certificate of {subject} is not valid before {begins}"
            yield Finding("error", found.place, message, "check the clocks, or renew it")


def check_trust(
    entry: RegisteredEntry,
    roots: Sequence[x509.Certificate],
    chain: Sequence[x509.Certificate],
    now: datetime.datetime,
) -> Iterator[Finding]:
    """Yield a finding if the API server does not trust the gateway's certificate *chain* for *entry*."""
    message = distrusted(roots, chain, entry.host, now)
    if message:
        advice = "serve a certificate of that CA for that name, or " + REGISTER + " with the right --ca-file"
        yield Finding("error", entry.place, message, advice)


def distrusted(
    roots: Sequence[x509.Certificate], chain: Sequence[x509.Certificate], host: str, now: datetime.datetime
) -> str:
    """Return why a client with *roots* rejects *chain*, leaf first, for *host*; empty if it does not."""
    leaf = chain[0]
    names = _names(leaf)
    if not _has_name(names, host):
        found = ", ".join(map(str, names)) or "no name"
        return f"the serving certificate is not for {host}: it has {found}"
    if not _is_for_servers(leaf):
        return "the serving certificate is not for servers: its extendedKeyUsage lacks serverAuth"
    if leaf in roots:
        # Its validity is checked for every certificate.
        return ""
    built = PolicyBuilder().store(Store(list(roots))).time(now)
    built = built.extension_policies(
        ca_policy=ExtensionPolicy.permit_all().require_present(
            x509.BasicConstraints, Criticality.AGNOSTIC, None
        ),
        ee_policy=ExtensionPolicy.permit_all().require_present(
            x509.SubjectAlternativeName, Criticality.AGNOSTIC, None
        ),
    )
    try:
        # Not the server verifier, which checks the name again and rejects names with an underscore.
        built.build_client_verifier().verify(leaf, list(chain[1:]))
    except (VerificationError, ValueError) as error:
        if _is_signed_with_ed25519(chain, roots, now):
            return ""
        reason = str(error).removeprefix("validation failed: ").partition(" (encountered")[0]
        return f"caBundle does not verify the serving certificate: {reason}"
    return ""


def _is_signed_with_ed25519(
    chain: Sequence[x509.Certificate], roots: Sequence[x509.Certificate], now: datetime.datetime
) -> bool:
    """Whether signatures lead from *chain* to *roots*, some of them with Ed25519, which Go accepts."""
    signed, found = chain[0], False
    others = list(chain[1:])
    while True:
        if not signed.not_valid_before_utc <= now <= signed.not_valid_after_utc:
            return False
        found = found or isinstance(signed.public_key(), ed25519.Ed25519PublicKey)
        for root in roots:
            if root.not_valid_before_utc <= now <= root.not_valid_after_utc and _has_issued(root, signed):
                return found or isinstance(root.public_key(), ed25519.Ed25519PublicKey)
        issuer = next((one for one in others if _has_issued(one, signed)), None)
        if issuer is None:
            return False
        others.remove(issuer)
        signed = issuer


def _has_issued(issuer: x509.Certificate, signed: x509.Certificate) -> bool:
    try:
        signed.verify_directly_issued_by(issuer)
        return issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (InvalidSignature, UnsupportedAlgorithm, TypeError, x509.ExtensionNotFound, *_UNREADABLE):
        return False


def _is_for_servers(leaf: x509.Certificate) -> bool:
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return True
    return not {EKU.SERVER_AUTH, EKU.ANY_EXTENDED_KEY_USAGE}.isdisjoint(usages)


def _names(leaf: x509.Certificate) -> list[str | ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return []
    # Without networks, which only certificates of CAs have.
    addresses = [
        one
        for one in names.get_values_for_type(x509.IPAddress)
        if isinstance(one, ipaddress.IPv4Address | ipaddress.IPv6Address)
    ]
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def _has_name(names: Sequence[object], host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in names
    except ValueError:
        pass
    wanted = host.lower().rstrip(".")
    wild = f"*.{wanted.partition('.')[2]}"
    return any(isinstance(one, str) and one.lower().rstrip(".") in (wanted, wild) for one in names)
