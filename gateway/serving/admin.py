"""The admin port: /livez, /readyz and /metrics over plain HTTP, for kubelets and Prometheus."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

from gateway.errors import Unavailable
from gateway.serving.connection_table import Bounds
from gateway.serving.message import Cancel, HttpRequest, Response, error_response
from gateway.text import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

_TEXT = b"text/plain; charset=utf-8"
_OK = Response(200, b"ok\n", content_type=_TEXT)
_PATHS = (b"/livez", b"/readyz", b"/metrics")

ADMIN_BOUNDS = Bounds(
    connections=256,
    unproven=160,
    unproven_s=0.0,
    crowded_part=1,
    request_s=5.0,
    body_bytes=16 * 1024,
    bytes_in_flight=1024 * 1024,
)
"""Who asks here is a few, at once, and without a body. What else comes takes no files or memory that reviews
need, and makes room within seconds: a kubelet that is kept out has the gateway started again."""

Exposition = tuple[bytes, str]
"""Metrics as bytes, and their media type."""


class AdminRoutes:
    """The routes of the admin port."""

    def __init__(
        self,
        ready: Callable[[], str | None],
        metrics: Callable[[], Exposition | Awaitable[Exposition]],
    ) -> None:
        """Take what is asked for each request.

        Args:
            ready: Returns None where reviews can be answered, otherwise the reason why not.
            metrics: Returns the exposition, or something to await for it. Raises Unavailable where it would
                not be whole, which is answered 503: for a counter a gap is right and a smaller number wrong.
        """
        self._ready = ready
        self._metrics = metrics
        self._tasks: set[asyncio.Task[None]] = set()
        self.draining = False

    def is_trusted_certificate(self, certificate: dict[str, Any] | None) -> bool:
        """Return True: every client that reaches the port is allowed."""
        return certificate is None

    def screen(self, request: HttpRequest) -> Response | None:
        """Return the refusal for a path or method that is not served."""
        if request.target.partition(b"?")[0] not in _PATHS:
            return error_response(404, "expected /livez, /readyz or /metrics")
        if request.method not in {b"GET", b"HEAD"}:
            return error_response(405, "expected GET", headers=b"Allow: GET, HEAD\r\n")
        return None

    def authenticate(self, request: HttpRequest) -> Response | None:
        """Return None: every client that reaches the port is allowed."""

    def answer(self, request: HttpRequest) -> Cancel | None:
        """Answer *request*, at once or when the metrics have been gathered."""
        path = request.target.partition(b"?")[0]
        try:
            if path == b"/livez":
                request.reply(_OK)
            elif path == b"/readyz":
                reason = self._ready()
                request.reply(_OK if reason is None else error_response(503, printable(reason, None)))
            else:
                return self._answer_metrics(request)
        except Exception as error:
            _fail(request, error)
        return None

    def _answer_metrics(self, request: HttpRequest) -> Cancel | None:
        exposition = self._metrics()
        if not inspect.isawaitable(exposition):
            _expose(request, exposition)
            return None
        task = asyncio.get_running_loop().create_task(_expose_later(request, exposition))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task.cancel


def _expose(request: HttpRequest, exposition: Exposition) -> None:
    body, content_type = exposition
    request.respond(200, body, content_type=content_type.encode("latin-1"))


async def _expose_later(request: HttpRequest, exposition: Awaitable[Exposition]) -> None:
    try:
        _expose(request, await exposition)
    except Exception as error:
        _fail(request, error)


def _fail(request: HttpRequest, error: Exception) -> None:
    if isinstance(error, Unavailable):
        request.reply(error_response(503, printable(error, None)))
        return
    logger.error("%s failed: internal error", request, exc_info=error)
    request.reply(error_response(500, "internal error: the gateway's log has the details"))
