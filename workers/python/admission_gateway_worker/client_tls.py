"""TLS contexts of a client: how the server is verified, and which certificate the client presents.

As in Go, any certificate among the roots is trusted, also an intermediate one or the server's own, and a
certificate's common name is ignored.

Source: k8s.io/client-go transport/transport.go; crypto/x509/verify.go of Go.
"""

from __future__ import annotations

import ssl
import tempfile
from functools import lru_cache
from pathlib import Path


def tls_context(ca_pem: bytes, certificate_pem: bytes = b"", key_pem: bytes = b"") -> ssl.SSLContext:
    """Return a context that verifies servers by *ca_pem*, or by the system's roots where that is empty.

    Raises:
        ssl.SSLError, ValueError: a certificate or the key cannot be used.
    """
    if not certificate_pem:
        return _without_certificate(ca_pem)
    context = _make_context(ca_pem)
    _load_pair(context, certificate_pem, key_pem)
    return context


def insecure_tls_context(certificate_pem: bytes = b"", key_pem: bytes = b"") -> ssl.SSLContext:
    """Return a context that verifies no server (``insecure-skip-tls-verify``).

    Raises:
        ssl.SSLError, ValueError: the certificate or the key cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate_pem:
        _load_pair(context, certificate_pem, key_pem)
    return context


@lru_cache(maxsize=256)
def _without_certificate(ca_pem: bytes) -> ssl.SSLContext:
    """Return a context that servers share: loading the system's roots takes some milliseconds."""
    return _make_context(ca_pem)


def _make_context(ca_pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if ca_pem:
        context.load_verify_locations(cadata=ca_pem.decode("ascii", errors="ignore"))
    else:
        context.set_default_verify_paths()
    return context


def _load_pair(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes) -> None:
    # OpenSSL reads them from files only; nobody else may read the folder.
    with tempfile.TemporaryDirectory(prefix="admission-gateway-") as folder:
        path = Path(folder, "pair.pem")
        path.write_bytes(key_pem + b"\n" + certificate_pem)
        context.load_cert_chain(path, password="")
