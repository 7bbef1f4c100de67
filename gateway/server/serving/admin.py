"""The admin port over plain HTTP: /livez, /readyz and /metrics for the kubelet and Prometheus, and pages."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from admission_gateway_worker.text import printable
from gateway.base.errors import Unavailable
from gateway.server.serving.bounds import Bounds
from gateway.server.serving.connection_table import ConnectionTable
from gateway.server.serving.listener import Listener
from gateway.server.serving.message import TEXT, Cancel, Exchange, HttpRequest, Response, error_response
from gateway.server.serving.page_access import is_local
from gateway.server.serving.sockets import ADMIN_PORT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from gateway.observe.telemetry.exposition import Exposition

T = TypeVar("T")

logger = logging.getLogger(__name__)

_OK = Response(200, b"ok\n", content_type=TEXT)
_PATHS = (b"/livez", b"/readyz", b"/metrics")

VERBOSE: Final = "verbose"
"""The query of /readyz for a line for each warning."""
WARNING: Final = "warning: "
"""The beginning of such a line."""
_SMALL_BODY_BYTES: Final = 16 * 1024

ADMIN_BOUNDS = Bounds(
    connections=256,
    unproven=160,
    unproven_s=0.0,
    full_divisor=1,
    request_s=5.0,
    body_bytes=4 * 1024 * 1024,
    bytes_in_flight=8 * 1024 * 1024,
)
"""The clients of this port are few, and send no bodies apart from reviews to explain. Others get no files or
memory that reviews need, and make room within seconds: a kubelet that cannot connect restarts the gateway."""


class PageRoutes(Protocol):
    """The pages of the admin port."""

    def screen(self, request: HttpRequest, *, is_local: bool) -> Response | None:
        """Return the refusal for a path, method or client, by the head of *request*.

        *is_local* is whether the client is a process of this machine, or of this pod.
        """

    def allows_body(self, request: HttpRequest) -> bool:
        """Whether *request*, which was not refused, may have a large body."""

    async def answer(self, request: HttpRequest) -> Response:
        """Return the answer to *request*. Raises Unavailable if there is none now."""


class AdminRoutes:
    """The routes of the admin port."""

    def __init__(
        self,
        ready: Callable[[], str | None],
        metrics: Callable[[bytes], Exposition | Awaitable[Exposition]],
        pages: PageRoutes | None = None,
        warnings: Callable[[], Sequence[str] | Awaitable[Sequence[str]]] = tuple,
    ) -> None:
        """Serve *ready*, *metrics* and *warnings*, which are called for each request.

        Args:
            ready: Returns None when reviews can be answered, otherwise the reason why not.
            metrics: Returns the exposition, or an awaitable for it, for the value of the header ``Accept``.
                Raises Unavailable if it would be incomplete; the answer is then 503, since a gap in a counter
                is right and a decrease wrong.
            pages: Serves all other paths. None if there are none.
            warnings: Returns a text for each fault that does not affect readiness, or an awaitable for them.
        """
        self._ready = ready
        self._metrics = metrics
        self._pages = pages
        self._warnings = warnings
        self._tasks: set[asyncio.Task[None]] = set()
        self.draining = False

    def is_trusted_client(self, _: dict[str, Any] | None, transport: asyncio.BaseTransport) -> bool:
        """Return whether the client is a process of this machine, or of this pod: it gets pages."""
        return is_local(transport)

    def screen(self, exchange: Exchange, *, is_trusted: bool) -> Response | None:
        """Return the refusal for a path or method that is not served."""
        request = exchange.request
        if request.target.partition(b"?")[0] in _PATHS:
            if request.method not in {b"GET", b"HEAD"}:
                return error_response(405, "expected GET", headers=b"Allow: GET, HEAD\r\n")
        elif self._pages is None:
            return error_response(404, "expected /livez, /readyz or /metrics")
        elif (refusal := self._pages.screen(request, is_local=is_trusted)) is not None:
            return refusal
        elif self._pages.allows_body(request):
            return None
        # A body in chunks has no length in the head, and no client of the other paths sends one.
        length = int(request.headers.get(b"content-length", 0))
        if length > _SMALL_BODY_BYTES or b"transfer-encoding" in request.headers:
            return error_response(413, f"body over {_SMALL_BODY_BYTES} bytes")
        return None

    def authenticate(self, request: HttpRequest, *, is_trusted: bool) -> Response | None:
        """Return None: every client that reaches the port is allowed."""

    def answer(self, exchange: Exchange, now: float) -> Cancel | None:
        """Answer the request, at once or when the metrics have been gathered."""
        path, _, query = exchange.request.target.partition(b"?")
        try:
            if path == b"/livez":
                exchange.reply(_OK)
            elif path == b"/readyz" and query.partition(b"=")[0] == VERBOSE.encode():
                return self._start(exchange, self._verbose(), exchange.reply)
            elif path == b"/readyz":
                reason = self._ready()
                exchange.reply(_OK if reason is None else error_response(503, printable(reason, None)))
            elif path == b"/metrics":
                return self._answer_metrics(exchange)
            else:
                assert self._pages is not None
                return self._start(exchange, self._pages.answer(exchange.request), exchange.reply)
        except Exception as error:
            _fail(exchange, error)
        return None

    def _answer_metrics(self, exchange: Exchange) -> Cancel | None:
        exposition = self._metrics(exchange.request.headers.get(b"accept", b""))
        if not inspect.isawaitable(exposition):
            _expose(exchange, exposition)
            return None
        return self._start(exchange, exposition, partial(_expose, exchange))

    async def _verbose(self) -> Response:
        """Return the readiness, with a line for each warning."""
        found = self._warnings()
        warnings = await found if inspect.isawaitable(found) else found
        reason = self._ready()
        lines = ["ok" if reason is None else f"not ready: {reason}", *(f"{WARNING}{one}" for one in warnings)]
        body = "".join(f"{printable(line, None)}\n" for line in lines).encode()
        return Response(200 if reason is None else 503, body, content_type=TEXT)

    def _start(self, exchange: Exchange, found: Awaitable[T], reply: Callable[[T], None]) -> Cancel:
        """Answer by *reply* with the result of *found*; return what cancels this."""

        async def run() -> None:
            try:
                reply(await found)
            except Exception as error:
                _fail(exchange, error)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if asyncio.iscoroutine(found):
            # A task that is cancelled before its first step never awaits the coroutine.
            task.add_done_callback(lambda _: found.close())
        return task.cancel


def _expose(exchange: Exchange, exposition: Exposition) -> None:
    body, content_type = exposition
    exchange.respond(200, body, content_type=content_type.encode("latin-1"))


def _fail(exchange: Exchange, error: Exception) -> None:
    if isinstance(error, Unavailable):
        exchange.reply(error_response(503, printable(error, None)))
        return
    logger.error("internal error: %s failed", exchange.request, exc_info=error)
    exchange.reply(error_response(500, "internal error: the gateway's log has the details"))


def admin_listener(
    address: str,
    routes: AdminRoutes,
    check: Callable[[], object],
    clock: Callable[[], float] = time.monotonic,
) -> Listener:
    """Return the listener of the admin port at *address*, which has not started.

    *check* is called about once a second. *clock* is that of the bounds, in seconds.
    """
    table = ConnectionTable(routes, ADMIN_BOUNDS, clock=clock)
    return Listener(address, table, checks=(check,), role=ADMIN_PORT)
