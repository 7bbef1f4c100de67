"""The address of the gateway for the API server: ``clientConfig`` of the registered entries.

Source: k8s.io/api admissionregistration/v1 types.go (WebhookClientConfig).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.base.certificates import certificates
from gateway.base.files import UnusableFileError
from gateway.base.text import shown
from gateway.config.kinds.client_config import url_problems
from gateway.config.kinds.names import dns_1123_label

if TYPE_CHECKING:
    import datetime

_SERVICE = re.compile(r"([^/:]+)/([^/:]+)(?::([0-9]{1,5}))?")
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


@dataclass(frozen=True, slots=True)
class Backend:
    """Address of the gateway: either ``service`` or ``url``."""

    service: tuple[str, str, int] | None = None
    """Namespace, name and port."""
    url: str = ""
    """Without a trailing slash."""
    ca_bundle: str | None = None
    """Base64. With None, the API server uses the roots of its system."""

    @property
    def namespace(self) -> str | None:
        """The gateway's namespace; None if unknown."""
        return None if self.service is None else self.service[0]

    def client_config(self, path: str) -> dict[str, object]:
        """Return ``clientConfig`` for *path* of the gateway."""
        client_config: dict[str, object] = {}
        if self.service is None:
            client_config["url"] = self.url + path
        else:
            namespace, name, port = self.service
            client_config["service"] = {"namespace": namespace, "name": name, "port": port, "path": path}
        if self.ca_bundle is not None:
            client_config["caBundle"] = self.ca_bundle
        return client_config


def parse_service(text: str) -> Backend:
    """Return the backend of ``NAMESPACE/NAME[:PORT]``; the default port is 443.

    Raises:
        ValueError: *text* has another format.
    """
    match = _SERVICE.fullmatch(text)
    if not match:
        raise ValueError(f"found {shown(text)}, expected NAMESPACE/NAME or NAMESPACE/NAME:PORT")
    for name in match.group(1, 2):
        if message := dns_1123_label(name):
            raise ValueError(message)
    port = int(match[3] or 443)
    if not 1 <= port <= 65535:
        raise ValueError(f"found the port {port}, expected one from 1 to 65535")
    return Backend(service=(match[1], match[2], port))


def parse_url(text: str) -> Backend:
    """Return the backend of the URL *text*, whose path is the prefix of request paths.

    Raises:
        ValueError: the API server would not accept *text*.
    """
    for message in url_problems(text):
        raise ValueError(message)
    return Backend(url=text.rstrip("/?#"))


def ca_bundle(content: bytes, now: datetime.datetime) -> tuple[str, list[str]]:
    """Return ``caBundle`` (base64) of the PEM *content*, and warnings about it at the time *now*.

    Raises:
        UnusableFileError: *content* has no certificate, or has a private key, which must not be published.
    """
    if _PRIVATE_KEY.search(content):
        raise UnusableFileError("contains a private key, which caBundle would publish; expected certificates")
    found = certificates(content)
    warnings = [
        f"the certificate of {certificate.subject.rfc4514_string() or 'an unnamed subject'} expired on "
        f"{certificate.not_valid_after_utc:%Y-%m-%d}"
        for certificate in found
        if certificate.not_valid_after_utc < now
    ]
    return base64.b64encode(content).decode(), warnings
