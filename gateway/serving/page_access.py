"""Which requests get the pages of the admin port.

Without credentials the pages are served on loopback only, and only for a loopback name in ``Host``: otherwise
the page of another site could read them, by a name that it resolves to 127.0.0.1 (DNS rebinding). Elsewhere
each request needs a credential of ``GatewayConfiguration.pages``. A POST that a page of another site sends is
refused, because browsers add credentials to it.

Source: Fetch Metadata Request Headers (W3C), RFC 6454 section 7 (Origin).
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from gateway.config.addresses import parse_host_port
from gateway.config.model import ServerTls
from gateway.serving.authentication import ClientAuthenticator
from gateway.serving.message import Response, error_response

if TYPE_CHECKING:
    from gateway.config.model import PageSettings
    from gateway.serving.message import HttpRequest

_WAY_ON = "add tokenFile or basicAuthFile to GatewayConfiguration.pages, or listen on loopback"


class PageAccess:
    """The check of each request for a page."""

    def __init__(self, settings: PageSettings, address: str) -> None:
        """Check by *settings* the requests at the admin port, which listens at *address*.

        Raises:
            ConfigError: a file of credentials cannot be used.
        """
        self._authenticator = ClientAuthenticator(settings.authentication, ServerTls(), "pages")
        # At a unix socket, in a private folder, the supervisor reads the pages of its processes.
        self._needs_credentials = self._authenticator.is_required and not address.startswith("unix:")
        self.why_off = ""
        """Why there are no pages; empty: there are."""
        if not settings.is_enabled:
            self.why_off = "the pages are off: GatewayConfiguration.pages.enabled is false"
        elif not self._needs_credentials and not is_loopback_address(address):
            self.why_off = f"the pages are off: adminListen is not on loopback; {_WAY_ON}"

    @property
    def is_current(self) -> bool:
        """Whether the credentials in force are those in the files."""
        return self._authenticator.is_current

    def refresh(self) -> None:
        """Read the files of credentials again if they have changed."""
        self._authenticator.refresh()

    def refusal(self, request: HttpRequest) -> Response | None:
        """Return the refusal of *request*; None: its client may read pages."""
        headers = request.headers
        if self.why_off:
            return error_response(404, self.why_off)
        if self._needs_credentials:
            refusal = self._authenticator.challenge(headers.get(b"authorization"))
            if refusal is not None:
                return refusal
        elif not _is_loopback_name(_name_of(headers.get(b"host", b"").decode("latin-1"))):
            return error_response(403, "expected a loopback name such as localhost in Host")
        if request.method == b"POST" and _is_cross_site(headers):
            return error_response(403, "a page of another site may not send this request")
        return None


def is_loopback_address(address: str) -> bool:
    """Whether only processes of this machine reach *address*, HOST:PORT or unix:PATH."""
    return address.startswith("unix:") or _is_loopback_name(parse_host_port(address)[0])


def _name_of(host: str) -> str:
    """Return the host of ``HOST[:PORT]`` without the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_loopback_name(name: str) -> bool:
    name = name.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        # Names that resolve to loopback only: RFC 6761 section 6.3.
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_cross_site(headers: dict[bytes, bytes]) -> bool:
    """Whether a browser sent the request for a page of another origin. Other clients send no such header."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site not in (b"same-origin", b"none")
    origin = headers.get(b"origin")
    return origin is not None and origin.partition(b"://")[2] != headers.get(b"host")
