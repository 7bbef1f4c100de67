"""The answer to each request: the table of paths, methods, media types, timeouts and credentials.

Where several refusals apply the first of these is given: credentials 401, path 404, method 405, media type
415, ``timeout`` 400, body 413, bytes in flight 503. Other overload and draining are checked when the body is
complete, so that the client has finished writing and reads the 503.

A review whose time is over when its turn comes (its body came slowly, or it waited behind another on its
connection) is refused with 503 as well. It has not begun, so it may be sent again. kube-apiserver does that
if it has time left, which can be more than it announced.

``failure`` is the only table from exceptions to statuses.

Source: k8s.io/client-go rest/with_retry.go (a 503 with an integer Retry-After is sent again);
k8s.io/apiserver pkg/util/webhook (paths, ``timeout``).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl

from gateway.base.errors import Draining, NotAttested, Overloaded, ReviewError, Unavailable
from gateway.pure.core.deadline import Deadline
from gateway.pure.core.durations import parse_duration
from gateway.server.serving.bytes_in_flight import limit_when_failing_open
from gateway.server.serving.message import (
    JSON,
    Cancel,
    Exchange,
    HttpRequest,
    Response,
    Route,
    error_response,
    unavailable,
)

if TYPE_CHECKING:
    from asyncio import BaseTransport
    from collections.abc import Callable

    from gateway.server.serving.authentication import ClientAuthenticator

logger = logging.getLogger(__name__)

LONGEST_BUDGET_S = 30.0
"""The longest timeoutSeconds of a webhook, and the budget of a request without ``timeout``."""
API_SERVER = b"kube-apiserver-admission"
"""User-Agent of webhook calls."""
_TARGETS_KEPT = 1024
"""Parsed targets that are kept: paths times the whole seconds from 1 to 30 stay far below it."""


Selection = TypeVar("Selection")
Found_co = TypeVar("Found_co", covariant=True)


class PathTable(Protocol[Found_co]):
    """``gateway.engine.paths.Paths``, as the router uses it; a dictionary has the same methods."""

    def __len__(self) -> int: ...

    def get(self, path: str, /) -> Found_co | None:
        """Return what *path* selects; None if there is no such path."""


class _Target(NamedTuple):
    """A valid request target."""

    path: str
    timeout_s: float
    route: Route
    sure_route: Route
    """With the budget that there is in any case if ``timeout`` was rounded up."""


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """The part of the configuration that the router uses."""

    deadline_reserve_s: float = 0.1
    """Reserved of a review's budget for the way back, at most a fifth of it."""
    max_concurrent_reviews: int = 4096


def failure(error: BaseException) -> Response:
    """Return the answer to a review that ended with *error*."""
    if isinstance(error, NotAttested):
        return error_response(403, str(error))
    if isinstance(error, ReviewError):
        return error_response(400, str(error))
    if isinstance(error, Unavailable):
        return unavailable(str(error))
    return error_response(500, "internal error: the gateway's log has the details")


class Router(Generic[Selection]):
    """The routes of reviews.

    The application is called with each exchange whose request is complete and valid, with the selection that
    ``paths`` has for the path, and with the deadline. It answers with ``exchange.respond`` at once or later,
    or with ``Router.fail``, or raises; it returns a function that cancels the review, or None.
    """

    def __init__(
        self,
        app: Callable[[Exchange, Selection, Deadline], Cancel | None],
        paths: PathTable[Selection],
        settings: RouterSettings | None = None,
        authenticator: ClientAuthenticator | None = None,
        *,
        fails_open: Callable[[Selection], bool] = lambda selection: False,
    ) -> None:
        """Route to *app*, see the class.

        *fails_open* returns whether all webhooks of a selection have failurePolicy Ignore. Such reviews leave
        the last eighth of all bounds to the others, whose refusal may fail users' requests.
        """
        self._fails_open = fails_open
        self.authenticator = authenticator
        self.in_flight = 0
        """Reviews given to the application and not answered."""
        self.draining = False
        """While True new reviews are refused with 503, and every answer ends its connection."""
        self.replace(app, paths, settings or RouterSettings())

    def __repr__(self) -> str:
        draining = ", draining" if self.draining else ""
        return f"<Router {len(self._paths)} paths, {self.in_flight} in flight{draining}>"

    def replace(
        self,
        app: Callable[[Exchange, Selection, Deadline], Cancel | None],
        paths: PathTable[Selection],
        settings: RouterSettings,
    ) -> None:
        """Route with *paths* to *app* from the next request on; requests whose head is read keep the old
        ones.
        """
        self._app = app
        self._paths = paths
        self._settings = settings
        self._failing_open_limit = limit_when_failing_open(settings.max_concurrent_reviews)
        self._targets: dict[bytes, _Target] = {}
        """Valid targets. They hold no selection: clients make targets up, and ``paths`` bounds what it
        keeps."""
        self._longest: dict[str, float] = {}
        """By path, the longest ``timeout`` that the API server has announced there."""

    # -- called by the connections ----------------------------------------------------------------

    def is_trusted_client(self, certificate: dict[str, Any] | None, _: BaseTransport) -> bool:
        """Whether a client's verified *certificate* alone is enough to be let in."""
        return self.authenticator is not None and self.authenticator.is_trusted_certificate(certificate)

    def screen(self, exchange: Exchange, *, is_trusted: bool) -> Response | None:
        """Return the refusal if the head of the request is refused; None, and the exchange is routed, if
        not.
        """
        request = exchange.request
        headers = request.headers
        refusal = self.authenticate(request, is_trusted=is_trusted)
        if refusal is not None:
            return refusal
        target = self._targets.get(request.target)
        if target is None or request.method != b"POST" or headers.get(b"content-type") != JSON:
            refusal = self._screen_slowly(request)
            if refusal is not None:
                return refusal
            target = self._targets[request.target]
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return error_response(415, "Content-Encoding is not supported, send plain JSON")
        is_rounded_up = headers.get(b"user-agent") == API_SERVER and self._is_rounded_up(target)
        exchange.route = target.sure_route if is_rounded_up else target.route
        exchange.selection = self._paths.get(target.path)
        exchange.app = self._app
        return None

    def authenticate(self, request: HttpRequest, *, is_trusted: bool) -> Response | None:
        """Return the refusal of a client that is not let in by the credentials in force; None if it is."""
        authenticator = self.authenticator
        if authenticator is None or is_trusted or not authenticator.is_required:
            return None
        return authenticator.challenge(request.headers.get(b"authorization"), request.target)

    def answer(self, exchange: Exchange, now: float) -> Cancel | None:
        """Give the request to the application, unless there is no room for it or its time is over."""
        try:
            budget_s, fails_open = exchange.route
            limit = self._failing_open_limit if fails_open else self._settings.max_concurrent_reviews
            if self.draining or self.in_flight >= limit:
                raise self._no_room(limit)
            deadline = exchange.request.received_at + budget_s
            if now >= deadline:
                raise Overloaded(f"the {budget_s:g} seconds for the review were over before it began")
            self.in_flight += 1
            exchange.request_counter = self
            cancel: Cancel | None = exchange.app(exchange, exchange.selection, Deadline(deadline, budget_s))
            return cancel
        except Exception as error:
            self.fail(exchange, error)
            return None

    def fail(self, exchange: Exchange, error: Exception) -> None:
        """Answer with the response to *error*; an internal error is logged, once."""
        response = failure(error)
        if response.status == 500:
            logger.error("internal error: %s failed", exchange.request, exc_info=error)
        exchange.reply(response)

    # -- deciding ---------------------------------------------------------------------------------

    def _no_room(self, limit: int) -> Unavailable:
        if self.draining:
            return Draining("this replica is about to stop, try again")
        allowed = "as many as limits.maxConcurrentReviews allows"
        if limit == self._failing_open_limit < self._settings.max_concurrent_reviews:
            allowed += " for reviews that only webhooks with failurePolicy Ignore decide"
        return Overloaded(f"{limit} reviews are in flight, {allowed}")

    def _is_rounded_up(self, target: _Target) -> bool:
        """Whether the API server may have less time left than it announces.

        It announces the time left for a request, rounded up to whole seconds. Usually that is exactly the
        timeoutSeconds of the registration, the longest that it ever announces. A shorter time is what other
        webhooks, or the timeout of the client, leave, and may be up to a second too long.
        """
        longest = self._longest.get(target.path, 0.0)
        if target.timeout_s < longest:
            return True
        if target.timeout_s > longest:
            self._longest[target.path] = target.timeout_s
        return False

    def _screen_slowly(self, request: HttpRequest) -> Response | None:
        path, _, query = _origin_form(request.target).partition("?")
        selection = self._paths.get(path)
        if selection is None:
            return error_response(404, f'nothing is configured at "{path[:200]}"')
        if request.method != b"POST":
            method = request.method.decode("ascii")
            return error_response(
                405, f"{method} is not possible here, expected POST", headers=b"Allow: POST\r\n"
            )
        content_type = request.headers.get(b"content-type", b"")
        if content_type.partition(b";")[0].strip().lower() != JSON:
            found = content_type.decode("latin-1")[:200] or "none"
            return error_response(415, f"expected Content-Type application/json, found {found}")
        try:
            timeout_s = _timeout_s(query)
        except ValueError as error:
            return error_response(400, f"timeout: {error}")
        if len(self._targets) >= _TARGETS_KEPT:
            self._targets.clear()
            self._longest.clear()
        fails_open, sure_s = self._fails_open(selection), max(timeout_s - 1, timeout_s / 2)
        self._targets[request.target] = _Target(
            path,
            timeout_s,
            Route(self._budget_s(timeout_s), fails_open),
            Route(self._budget_s(sure_s), fails_open),
        )
        return None

    def _budget_s(self, timeout_s: float) -> float:
        """Return the seconds for a review, without the reserve."""
        budget_s = min(timeout_s, LONGEST_BUDGET_S)
        return budget_s - min(self._settings.deadline_reserve_s, budget_s / 5)


def _timeout_s(query: str) -> float:
    """Return ``timeout`` in seconds.

    Raises:
        ValueError: it is not a positive duration.
    """
    texts = [value for name, value in parse_qsl(query, keep_blank_values=True) if name == "timeout"]
    timeout_s = parse_duration(texts[0]) if texts else LONGEST_BUDGET_S
    if timeout_s <= 0:
        raise ValueError(f'"{texts[0][:40]}" is not a positive duration')
    return timeout_s


def _origin_form(target: bytes) -> str:
    """Return path and query of *target*, which may name scheme and host too (RFC 9112, 3.2.2)."""
    text = target.decode("latin-1")
    if text.startswith("/"):
        return text
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() not in {"http", "https"}:
        return text
    return "/" + rest.partition("/")[2]
