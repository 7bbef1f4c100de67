"""Which requests get the pages of the admin port.

Without credentials the pages are served over loopback only, whatever address the port listens on: to
processes of this machine or, in a pod, of this pod, which ``kubectl port-forward`` is too. ``Host`` has to be
a loopback name: otherwise the page of another site could read them, by a name that it resolves to 127.0.0.1
(DNS rebinding). With credentials in ``GatewayConfiguration.pages`` each request needs one. A POST that a page
of another site sends is refused, because browsers add credentials to it.

Source: Fetch Metadata Request Headers (W3C), RFC 6454 section 7 (Origin).
"""

from __future__ import annotations

import base64
import socket
from typing import TYPE_CHECKING, Final

from gateway.config.kinds.addresses import is_loopback_host
from gateway.config.kinds.serving_settings import Authentication, ServerTls
from gateway.server.serving.authentication import ClientAuthenticator
from gateway.server.serving.message import Response, error_response

if TYPE_CHECKING:
    from asyncio import BaseTransport
    from collections.abc import Mapping

    from gateway.config.kinds.serving_settings import PageSettings
    from gateway.server.serving.message import HttpRequest

_OFF: Final = "the pages are off: GatewayConfiguration.pages.enabled is false"
_ELSEWHERE: Final = (
    "the pages are served over loopback only: use kubectl port-forward, or add tokenFile or basicAuthFile to "
    "GatewayConfiguration.pages"
)


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
        self._actors = (
            None
            if settings.actions is None
            else ClientAuthenticator(
                Authentication(basic_auth_file=settings.actions.basic_auth_file),
                ServerTls(),
                "pages.actions",
            )
        )
        self.are_on = settings.is_enabled
        """Whether there are pages."""

    @property
    def is_current(self) -> bool:
        """Whether the credentials in force are those in the files."""
        return self._authenticator.is_current and (self._actors is None or self._actors.is_current)

    @property
    def acts(self) -> bool:
        """Whether pages may change rollout plans."""
        return self._actors is not None

    def may_act(self, user: str, password: str) -> bool:
        """Whether *user*, who gives *password*, may change rollout plans."""
        credential = base64.b64encode(f"{user}:{password}".encode(errors="replace"))
        return self._actors is not None and self._actors.challenge(b"Basic " + credential) is None

    def refresh(self) -> None:
        """Read the files of credentials again if they have changed."""
        self._authenticator.refresh()
        if self._actors is not None:
            self._actors.refresh()

    def refusal(self, request: HttpRequest, *, is_local: bool) -> Response | None:
        """Return the refusal of *request*, or None if its client may read pages.

        *is_local* is what :func:`is_local` says of its connection.
        """
        headers = request.headers
        if not self.are_on:
            return error_response(404, _OFF)
        if self._needs_credentials:
            refusal = self._authenticator.challenge(headers.get(b"authorization"))
            if refusal is not None:
                return refusal
        elif not is_local:
            return error_response(403, _ELSEWHERE)
        elif not is_loopback_host(_name_of(headers.get(b"host", b"").decode("latin-1"))):
            return error_response(403, "expected a loopback name such as localhost in Host")
        if request.method == b"POST" and _is_cross_site(headers):
            return error_response(403, "a page of another site may not send this request")
        return None


def is_local(transport: BaseTransport) -> bool:
    """Whether both ends of a connection are on this machine's loopback interface, or it has a unix socket.

    The address of one end would not be enough: a packet from elsewhere can have been redirected to loopback.
    """
    found = transport.get_extra_info("socket")
    if found is not None and found.family == socket.AF_UNIX:
        return True
    ends = [transport.get_extra_info(name) for name in ("peername", "sockname")]
    return all(isinstance(end, tuple) and is_loopback_host(end[0]) for end in ends)


def is_same_origin(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser says that a page of this origin sent the request.

    Every browser has sent Origin with POST for years. So a request without both headers is not obeyed.
    """
    says_so = headers.get(b"sec-fetch-site") == b"same-origin" or b"origin" in headers
    return says_so and not _is_cross_site(headers) and headers.get(b"sec-fetch-site") != b"none"


def _name_of(host: str) -> str:
    """Return the host of ``HOST[:PORT]`` without the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_cross_site(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser sent the request for a page of another origin. Other clients send no such header."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site not in (b"same-origin", b"none")
    origin = headers.get(b"origin")
    return origin is not None and origin.partition(b"://")[2] != headers.get(b"host")
