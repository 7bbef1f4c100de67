"""Which request gets which answer: the table of paths, methods, media types, time and credentials.

Where several refusals apply the first of these is given: credentials 401, path 404, method 405, media type
415, ``timeout`` 400, body 413, bytes in flight 503. Other overload and draining are looked at when the body
is complete, so that the 503 meets a client that has finished writing and reads it.

A review whose time is over when its turn comes (its body came slowly, or it waited behind another on its
connection) is refused with 503 as well, rather than begun for nobody: whatever has not begun may be sent
again, and the kube-apiserver that still has time, though it announced less, does so.

The table from exceptions to statuses exists once, here: ``failure``.

Source: k8s.io/client-go rest/with_retry.go (a 503 with an integer Retry-After is sent again);
k8s.io/apiserver pkg/util/webhook (paths, ``timeout``).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl

from gateway.core.deadline import Deadline
from gateway.core.durations import parse_duration
from gateway.errors import Draining, Overloaded, ReviewError, Unavailable
from gateway.serving.bytes_in_flight import left_to_ignored
from gateway.serving.message import JSON, Cancel, HttpRequest, Response, error_response, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.serving.authentication import ClientAuthenticator

logger = logging.getLogger(__name__)

LONGEST_BUDGET_S = 30.0
"""The longest timeoutSeconds of a webhook, and what a request without ``timeout`` gets."""
API_SERVER = b"kube-apiserver-admission"
"""User-Agent of webhook calls."""
_TARGETS_KEPT = 1024
"""Targets parsed once and remembered: paths times the whole seconds from 1 to 30 stay far below it."""

Selected = TypeVar("Selected")
Found_co = TypeVar("Found_co", covariant=True)


class Paths(Protocol[Found_co]):
    """What there is, by path; a dictionary will do."""

    def __len__(self) -> int: ...

    def get(self, path: str, /) -> Found_co | None:
        """Return what *path* stands for; None if nothing is there."""


class _Target(NamedTuple):
    """A request target that was in order. Times are in seconds."""

    path: str
    timeout_s: float
    fails_open: bool
    budget_s: float
    sure_budget_s: float
    """What there is in any case where ``timeout`` was rounded up."""


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """What of the configuration the routes need."""

    deadline_reserve_s: float = 0.1
    """Kept back of a review's budget, at most a fifth of it."""
    max_concurrent_reviews: int = 4096


def failure(error: BaseException) -> Response:
    """Return the answer to a review that ended in *error*: whose fault it was gives the status."""
    if isinstance(error, ReviewError):
        return error_response(400, str(error))
    if isinstance(error, Unavailable):
        return unavailable(str(error))
    return error_response(500, "internal error: the gateway's log has the details")


class Router(Generic[Selected]):
    """The routes of reviews; ``selected`` is what ``paths`` holds for a request's path.

    The application is called with each request whose head is in order, complete with body, ``budget_s`` and
    ``deadline``. It answers with ``request.respond`` at once or later, or with ``Router.fail``, or raises; it
    returns what withdraws the review when the client goes away, or None.
    """

    def __init__(
        self,
        app: Callable[[HttpRequest, Selected], Cancel | None],
        paths: Paths[Selected],
        settings: RouterSettings | None = None,
        authenticator: ClientAuthenticator | None = None,
        *,
        fails_open: Callable[[Selected], bool] = lambda selected: False,
    ) -> None:
        """Route to *app* what *paths* knows; see the class.

        *fails_open* says of what a path stands for whether all its webhooks have failurePolicy Ignore: such
        reviews leave the last eighth of all bounds to the others, whose refusal may fail users' requests.
        """
        self._app = app
        self._is_ignored = fails_open
        self.authenticator = authenticator
        self.in_flight = 0
        """Reviews given to the application and not answered."""
        self.draining = False
        """While True new reviews are refused with 503, and every answer ends its connection."""
        self.replace(paths, settings or RouterSettings())

    def __repr__(self) -> str:
        draining = ", draining" if self.draining else ""
        return f"<Router {len(self._paths)} paths, {self.in_flight} in flight{draining}>"

    def replace(self, paths: Paths[Selected], settings: RouterSettings) -> None:
        """Use *paths* and *settings* from the next request on; those read already keep what they have."""
        self._paths = paths
        self._settings = settings
        self._ignored_limit = left_to_ignored(settings.max_concurrent_reviews)
        self._targets: dict[bytes, _Target] = {}
        """Those that were in order. What a path stands for is left to ``paths`` to keep: targets are made by
        clients, and hold on to nothing that may grow."""
        self._longest: dict[str, float] = {}
        """By path, the longest ``timeout`` that the API server has announced there."""

    # -- what the connections call ----------------------------------------------------------------

    def is_trusted_certificate(self, certificate: dict[str, Any] | None) -> bool:
        """Whether a client's verified *certificate* alone lets it in."""
        return self.authenticator is not None and self.authenticator.is_trusted_certificate(certificate)

    def screen(self, request: HttpRequest) -> Response | None:
        """Return the refusal that the head of *request* earns; None, with path and budget set, if none."""
        headers = request.headers
        refusal = self.authenticate(request)
        if refusal is not None:
            return refusal
        known = self._targets.get(request.target)
        if known is None or request.method != b"POST" or headers.get(b"content-type") != JSON:
            refusal = self._screen_slowly(request)
            if refusal is not None:
                return refusal
            known = self._targets[request.target]
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return error_response(415, "Content-Encoding is not understood, send the JSON as it is")
        request.fails_open = known.fails_open
        request.budget_s = known.budget_s
        if headers.get(b"user-agent") == API_SERVER and self._is_rounded_up(known):
            request.budget_s = known.sure_budget_s
        request.selected = self._paths.get(known.path)
        return None

    def authenticate(self, request: HttpRequest) -> Response | None:
        """Return the refusal of a client that is not let in by what is in force now; None if it is."""
        authenticator = self.authenticator
        if authenticator is None or not authenticator.is_required or request.trusted:
            return None
        return authenticator.challenge(request.headers.get(b"authorization"))

    def answer(self, request: HttpRequest) -> Cancel | None:
        """Give *request* to the application, unless there is no room for it."""
        try:
            limit = self._ignored_limit if request.fails_open else self._settings.max_concurrent_reviews
            if self.draining or self.in_flight >= limit:
                raise self._no_room(limit)
            request.deadline = Deadline.after(request.budget_s, request.received_at)
            if request.deadline.has_passed(request.begun_at):
                raise Overloaded(f"the {request.budget_s:g} seconds for the review were over before it began")
            self.in_flight += 1
            request.tally = self
            return self._app(request, request.selected)
        except Exception as error:
            self.fail(request, error)
            return None

    def fail(self, request: HttpRequest, error: Exception) -> None:
        """Answer *request* with what *error* stands for; an internal error is logged, once."""
        response = failure(error)
        if response.status == 500:
            logger.error("%s failed: internal error", request, exc_info=error)
        request.reply(response)

    # -- deciding ---------------------------------------------------------------------------------

    def _no_room(self, limit: int) -> Unavailable:
        if self.draining:
            return Draining("this replica is about to stop, try again")
        allowed = "as many as limits.maxConcurrentReviews allows"
        if limit == self._ignored_limit < self._settings.max_concurrent_reviews:
            allowed += " where no webhook with failurePolicy Fail is asked"
        return Overloaded(f"{limit} reviews are in flight, {allowed}")

    def _is_rounded_up(self, target: _Target) -> bool:
        """Whether the API server may have less time left than it says.

        It announces what is left of a request, rounded up to whole seconds. As a rule that is exactly the
        timeoutSeconds of the registration, which is the longest it ever announces. Anything less is what
        other webhooks, or an impatient client, have left over: anything down to a second less.
        """
        longest = self._longest.get(target.path, 0.0)
        if target.timeout_s < longest:
            return True
        if target.timeout_s > longest:
            self._longest[target.path] = target.timeout_s
        return False

    def _screen_slowly(self, request: HttpRequest) -> Response | None:
        path, _, query = _origin_form(request.target).partition("?")
        selected = self._paths.get(path)
        if selected is None:
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
        sure_s = max(timeout_s - 1, timeout_s / 2)
        self._targets[request.target] = _Target(
            path, timeout_s, self._is_ignored(selected), self._budget_s(timeout_s), self._budget_s(sure_s)
        )
        return None

    def _budget_s(self, timeout_s: float) -> float:
        """Return the seconds that a review gets, without the reserve for the way back."""
        budget_s = min(timeout_s, LONGEST_BUDGET_S)
        return budget_s - min(self._settings.deadline_reserve_s, budget_s / 5)


def _timeout_s(query: str) -> float:
    """Return ``timeout`` in seconds.

    Raises:
        ValueError: it is no duration, or not a positive one.
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
