"""Self-issued server certificates: subject and issuer have the same name. Go verifies them, OpenSSL does not.

OpenSSL treats a certificate whose subject equals its issuer as self-signed, does not look for an issuer, and
ends the handshake. knative.dev/pkg makes such certificates for its webhooks: the CA has the server's name.
This module verifies the signature with the CA's key and, if it is valid, adds the certificate to the trusted
ones of the context. The next handshake checks name, validity and purpose, and that the server has the key.

Source: OpenSSL crypto/x509/{v3_purp,x509_vfy}.c (EXFLAG_SS, X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT); RFC 5280
section 6.1; crypto/x509/verify.go of Go; knative.dev/pkg webhook/certificates/resources/certs.go.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

SELF_SIGNED: Final = 18
"""OpenSSL's X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT."""

_UNDERSTOOD: Final = frozenset(
    {ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE, ExtensionOID.EXTENDED_KEY_USAGE}
)


def unverified(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return a context that verifies nothing, to get the certificate of a server that *context* is for."""
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.minimum_version = context.minimum_version
    bare.check_hostname = False
    bare.verify_mode = ssl.CERT_NONE
    return bare


def trust(context: ssl.SSLContext, certificate: bytes) -> bool:
    """Make *context* trust *certificate*, DER, if a valid CA of it with the same subject has signed it.

    Returns:
        Whether it has.
    """
    try:
        leaf = x509.load_der_x509_certificate(certificate)
        if any(isinstance(one.value, x509.BasicConstraints) and one.value.ca for one in leaf.extensions):
            # The CA may not allow a subordinate CA.
            return False
        for content in context.get_ca_certs(binary_form=True):
            root = x509.load_der_x509_certificate(content)
            if root.subject == leaf.subject == leaf.issuer and _is_signed(leaf, root):
                context.load_verify_locations(cadata=certificate)
                return True
    except (ValueError, ssl.SSLError):
        # A certificate cannot be parsed.
        return False
    return False


def _is_signed(leaf: x509.Certificate, root: x509.Certificate) -> bool:
    if not root.not_valid_before_utc <= datetime.now(UTC) <= root.not_valid_after_utc:
        return False
    extensions = root.extensions
    for extension in extensions:
        if extension.oid not in _UNDERSTOOD and (
            extension.critical or extension.oid == ExtensionOID.NAME_CONSTRAINTS
        ):
            return False
        match extension.value:
            case x509.BasicConstraints(ca=False):
                return False
            case x509.KeyUsage(key_cert_sign=False):
                return False
            case x509.ExtendedKeyUsage() as usages:
                if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(
                    usages
                ):
                    return False
    try:
        leaf.verify_directly_issued_by(root)
    except (InvalidSignature, UnsupportedAlgorithm, TypeError, ValueError):
        return False
    return True
