"""The HTTPS front end of a process: its listener, its routes, and the credentials of both sides."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gateway.server.serving.authentication import ClientAuthenticator
from gateway.server.serving.bounds import Bounds
from gateway.server.serving.connection_table import ConnectionTable
from gateway.server.serving.listener import Listener
from gateway.server.serving.routes import Router, RouterSettings
from gateway.server.serving.sockets import FRONT_END, affordable_connections
from gateway.server.serving.tls import ServerCertificate

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.kinds.gateway_configuration import GatewaySettings
    from gateway.engine.credentials.webhook_tokens import WebhookTokens
    from gateway.pure.core.deadline import Deadline
    from gateway.pure.core.matching import Selection
    from gateway.server.serving.listener import SharedSockets
    from gateway.server.serving.message import Cancel, Exchange, HttpRequest
    from gateway.server.serving.routes import PathTable


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of the gateway, and those that its clients must have."""

    authenticator: ClientAuthenticator
    certificate: ServerCertificate
    has_same_clients: bool
    """Whether the clients of the credentials before are all accepted too."""


class FrontEnd:
    """Serves the reviews of a process. Nothing listens before :meth:`start`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """*clock* is that of the deadlines of reviews, in seconds."""
        self.router: Router[Selection] = Router(
            lambda *_: None, {}, fails_open=lambda selection: selection.fails_open
        )
        self.connections = ConnectionTable(
            self.router, Bounds.of(affordable_connections(Bounds().connections)), clock=clock
        )
        self.tokens: WebhookTokens | None = None
        """The tokens of API servers that are accepted. None if none are."""
        self.refused_tokens: Counter[str] = Counter()
        """Refused webhook tokens by reason."""
        self._listener: Listener | None = None
        self._credentials: Credentials | None = None
        self._settings: GatewaySettings | None = None

    @property
    def port(self) -> int:
        """The port that is served."""
        assert self._listener is not None
        return self._listener.port

    @property
    def is_current(self) -> bool:
        """Whether the credentials in force are those in the files."""
        credentials = self._credentials
        return credentials is None or (
            credentials.authenticator.is_current and credentials.certificate.is_current
        )

    def api_group(self, request: HttpRequest) -> str | None:
        """Return the API group that the webhook token of *request* is for, or None for any or no token."""
        if self.tokens is None or self._credentials is None:
            return None
        return self._credentials.authenticator.api_group(request.headers.get(b"authorization"))

    @property
    def certificate_expiry(self) -> float | None:
        """When the serving certificate expires, in seconds since 1970."""
        return None if self._credentials is None else self._credentials.certificate.not_after

    def stage(self, settings: GatewaySettings) -> Credentials:
        """Return the credentials of *settings*.

        Raises:
            ConfigError: a file cannot be used.
        """
        old, old_settings = self._credentials, self._settings
        authenticator = ClientAuthenticator(
            settings.authentication,
            settings.tls,
            before=None if old is None else old.authenticator,
            refused_tokens=self.refused_tokens,
        )
        if old is None or old_settings is None:
            return Credentials(authenticator, ServerCertificate(settings.tls), has_same_clients=True)
        # A certificate with the same settings reloads its files by itself.
        is_same = settings.tls == old_settings.tls
        certificate = old.certificate if is_same else ServerCertificate(settings.tls)
        has_same_clients = authenticator.has_same_clients(old.authenticator)
        return Credentials(authenticator, certificate, has_same_clients)

    def activate(
        self,
        settings: GatewaySettings,
        credentials: Credentials | None,
        app: Callable[[Exchange, Selection, Deadline], Cancel | None],
        paths: PathTable[Selection],
    ) -> None:
        """Serve with *settings* from now on; *credentials* None: those in force stay.

        It cannot fail halfway, see ``Engine.activate``.
        """
        bounds = replace(
            self.connections.bounds,
            body_bytes=settings.max_request_bytes,
            bytes_in_flight=settings.max_bytes_in_flight,
        )
        limits = RouterSettings(settings.deadline_reserve_s, settings.max_concurrent_reviews)
        self._settings = settings
        if credentials is not None:
            self._credentials = credentials
            self.router.authenticator = credentials.authenticator
            self.tokens = credentials.authenticator.tokens
            if self._listener is not None:
                self._listener.tls = credentials.certificate
        self.router.replace(app, paths, limits)
        self.connections.use(bounds)

    def check_clients(self, credentials: Credentials) -> None:
        """End the connections of clients that *credentials*, which are in force now, do not accept."""
        if not credentials.has_same_clients:
            self.connections.check_clients()

    async def start(self, address: str, check: Callable[[], None], shared: SharedSockets | None) -> None:
        """Listen at *address*, with the sockets *shared* if there are, and call *check* about once a second.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        assert self._credentials is not None
        self._listener = Listener(
            address,
            self.connections,
            self._credentials.certificate,
            shared=shared,
            checks=(self._refresh, check),
            role=FRONT_END,
        )
        await self._listener.start()

    async def drain(self, drain_s: float) -> None:
        """Answer the requests in flight, for up to *drain_s* seconds, and close everything."""
        if self._listener is not None:
            await self._listener.drain(drain_s)

    def _refresh(self) -> None:
        if self._credentials is not None and self._credentials.authenticator.refresh():
            self.connections.check_clients()
