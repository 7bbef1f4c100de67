"""The routes of the pages: path, query and method to a page, or to the JSON behind it.

Pages are made in one thread (``gateway.server.pages.page_thread``), so that their readers do not delay
reviews.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qsl, unquote, urlencode

from admission_gateway_worker.text import printable
from gateway.base.errors import Unavailable
from gateway.base.text import printable_json
from gateway.observe.decisions.rate import TokenBucket
from gateway.pure.core.decision import uid_in
from gateway.server.pages import rollouts
from gateway.server.pages.acting import Asked, Guard
from gateway.server.pages.documents import ASKS_ALL, asks_all_for, merge, page_of
from gateway.server.pages.page_thread import in_thread
from gateway.server.pages.process import DECISIONS
from gateway.server.pages.state import PageRequest, encoded
from gateway.server.serving.message import Response, error_response
from gateway.server.serving.page_access import is_same_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.server.pages.state import Json
    from gateway.server.serving.message import HttpRequest
    from gateway.server.serving.page_access import PageAccess

WAITING: Final = 32
"""Requests for pages that wait for their turn, or are made; more are refused with 503."""
EXPLAINED_PER_SECOND: Final = 1.0
EXPLAINED_AT_ONCE: Final = 10
"""Reviews that are explained: each calls the workers."""

_MAX_FIELDS: Final = 50
_HTML: Final = b"text/html; charset=utf-8"
_FORM: Final = b"application/x-www-form-urlencoded"
_FORMATS: Final = ("html", "json")
_PART: Final = "process"
"""The format for a supervisor: the part of one process."""
_JSON_HEADERS: Final = b"X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"
_PATHS: Final = (
    "expected /, /webhook, /decisions, /differences, /explain, /namespaces, /rollouts, /configz, /livez, "
    "/readyz or /metrics"
)
_NO_DECISION: Final = (
    "there is no such decision: it was not kept, or not for long enough, or another replica had it"
)


_NO_WEBHOOK: Final = "there is no such webhook in the configuration in force"
_NO_PLAN: Final = "there is no such plan: the webhook has none, or is gone"


class Source(Protocol):
    """The gateway whose pages are served: one process, or several."""

    @property
    def processes(self) -> int:
        """The number of processes."""

    async def parts(self, request: PageRequest) -> Sequence[Json]:
        """Return the part of each process that answers, at least one.

        Raises:
            Unavailable: no process answers.
        """


class Pages:
    """The pages of one gateway. ``gateway.server.serving.admin.PageRoutes`` describes the methods."""

    def __init__(
        self,
        source: Source,
        access: Callable[[], PageAccess],
        clock: Callable[[], float] = time.monotonic,
        *,
        is_part: bool = False,
    ) -> None:
        """*access* returns the access check in force.

        *is_part* is whether a supervisor alone is the client, which gathers the parts of all processes and
        has bounded its requests already.
        """
        self._formats = (*_FORMATS, _PART) if is_part else _FORMATS
        self._source = source
        self._access = access
        self._clock = clock
        self._waiting = 0
        self._guard = Guard(clock)
        self._explained = TokenBucket(EXPLAINED_PER_SECOND, EXPLAINED_AT_ONCE)

    def screen(self, request: HttpRequest, *, is_local: bool) -> Response | None:
        """Return the refusal for a path, method or client, by the head of *request*."""
        refusal = self._access().refusal(request, is_local=is_local)
        if refusal is not None:
            return refusal
        page = page_of(_path(request))
        if page is None:
            return error_response(404, _PATHS)
        takes_forms = page == "explain" or (page == "rollout" and self._access().acts)
        methods = (b"GET", b"HEAD", b"POST") if takes_forms else (b"GET", b"HEAD")
        if request.method not in methods:
            allow = b", ".join(methods)
            return error_response(405, f"expected {allow.decode()}", headers=b"Allow: %b\r\n" % allow)
        return None

    def allows_body(self, request: HttpRequest) -> bool:
        """Whether *request*, which was not refused, may have a large body."""
        return request.method == b"POST" and page_of(_path(request)) == "explain"

    async def answer(self, request: HttpRequest) -> Response:
        """Return the page, or the JSON behind it.

        Raises:
            Unavailable: too many pages are waited for, or no process answers.
        """
        if self._waiting >= WAITING:
            raise Unavailable("too many requests for pages, try again")
        self._waiting += 1
        try:
            return await self._answer(request)
        finally:
            self._waiting -= 1

    async def _answer(self, http: HttpRequest) -> Response:
        request, form = await in_thread(_read, http)
        if form not in self._formats:
            return error_response(400, f"format: found {printable(form, 80)}, expected html or json")
        page = page_of(request.path)
        assert page is not None, "screen refuses other paths"
        if page == "rollout" and http.method == b"POST" and form != _PART:
            return await self._change(http, request)
        if page != "explain":
            parts = await self._source.parts(request)
        elif http.method != b"POST":
            parts = []
        elif not request.body:
            return await _refused(request, 400, "expected an AdmissionReview or an object, found nothing")
        elif form != _PART and not self._explained.take(self._clock()):
            return await _refused(request, 429, "too many reviews to explain, try again in a second")
        else:
            parts = await self._source.parts(request)
        if form == _PART:
            return Response(200, encoded(parts[0]))
        if page == "rollout" and form == "html" and self._access().acts:
            asked = Asked.of({"action": request.query.get("action", "")})
            return await in_thread(_plan, request, parts, self._source.processes, asked)
        make = _json if form == "json" else _html
        return await in_thread(make, page, request, parts, self._source.processes)

    async def _change(self, http: HttpRequest, request: PageRequest) -> Response:
        """Do what a form asks for, and return what came of it as a page."""
        if not is_same_origin(http.headers):
            return _unchanged(
                403, "only a form of this page is obeyed; programs use admission-gateway rollout"
            )
        if http.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != _FORM:
            return _unchanged(415, f"expected a form, {_FORM.decode()}")
        fields = await in_thread(_fields, http.body, keep_blank_values=True)
        asked, password = Asked.of(fields), fields.get("password", "")
        refusal = self._guard.refusal(self._access(), asked, password)
        if refusal is not None:
            status, error = refusal
            parts = await self._source.parts(request._replace(body=b""))
            return await in_thread(
                _plan, request, parts, self._source.processes, asked, error=error, status=status
            )
        (result, *_) = await self._source.parts(request._replace(query={}, body=encoded(list(asked))))
        return await in_thread(_result, request, asked, result)


async def _refused(request: PageRequest, status: int, error: str) -> Response:
    """Return the answer to a review that is not explained; a form is shown again with its content."""
    if not request.is_form:
        return error_response(status, error)
    part = {"decisions": [], "notReached": [], "error": error}
    response = await in_thread(_html, "explain", request, [part], 1)
    return replace(response, status=status)


def _unchanged(status: int, error: str) -> Response:
    return error_response(status, f"nothing was changed: {error}", headers=b"Cache-Control: no-store\r\n")


def _plan(
    request: PageRequest,
    parts: Sequence[Json],
    processes: int,
    asked: Asked,
    *,
    error: str = "",
    status: int = 200,
) -> Response:
    """Return the page of a plan that may be changed, or the form for the action that is *asked* for.

    *error* is why *asked* was not done. It is shown beside what was typed, without the password.
    """
    from gateway.server.pages.render import headers_of, render

    found = merge("rollout", request, parts, processes)
    if found is None:
        return _html("rollout", request, parts, processes)
    actions = {one["action"]: one for one in found["plan"]["actions"]}
    found |= {"acts": True, "error": error, "asked": asked._asdict(), "action": actions.get(asked.action)}
    page = "act" if found["action"] else "rollout"
    body = render(page, found, request.query, root=request.root, json_link="?format=json")
    return Response(status, body, headers_of(page, request.query), _HTML)


def _result(request: PageRequest, asked: Asked, result: Json) -> Response:
    """Return the page with the *result* of what was *asked* for."""
    from gateway.server.pages.render import headers_of, render

    name = request.path.removeprefix(rollouts.PATH)
    document = {**result, "name": name, "asked": asked._asdict()}
    body = render("acted", document, {}, root=request.root, json_link="")
    return Response(result.get("status", 200), body, headers_of("acted", {}), _HTML)


def _json(page: str, request: PageRequest, parts: Sequence[Json], processes: int) -> Response:
    found = merge(page, request, parts, processes)
    if found is None:
        return error_response(404, _NO_PLAN if page == "rollout" else _NO_DECISION)
    status = 400 if found.get("error") else 200
    body = encoded(found, is_indented=True)
    if not body.isascii() or b"\x7f" in body:
        # A terminal may show it.
        body = printable_json(body.decode()).encode()
    return Response(status, body, _JSON_HEADERS)


def _html(page: str, request: PageRequest, parts: Sequence[Json], processes: int) -> Response:
    # Imported late: a gateway whose pages nobody reads does not need the template engine.
    from gateway.server.pages.render import headers_of, render

    found = merge(page, request, parts, processes)
    status = 200 if found is None or not found.get("error") else 400
    if found is None and page == "rollout":
        back = {"path": "rollouts", "title": "Rollout plans"}
        found = {
            "message": _NO_PLAN,
            "hint": "To see all plans",
            "command": "admission-gateway rollout status",
        }
        page, found, status = "missing", found | {"back": back}, 404
    elif found is None and page == "webhook":
        back = {"path": "", "title": "Overview"}
        found = {
            "message": _NO_WEBHOOK,
            "hint": "To see all webhooks of all replicas",
            "command": ASKS_ALL.format(command="status"),
        }
        page, found, status = "missing", found | {"back": back}, 404
    elif found is None:
        command = asks_all_for(request.path.removeprefix(DECISIONS))
        back = {"path": "decisions", "title": "Recent decisions"}
        found = {"message": _NO_DECISION, "hint": "To look in all replicas of a cluster", "command": command}
        page, found, status = "missing", found | {"back": back}, 404
    json_link = "?" + urlencode({**request.query, "format": "json"}, errors="replace")
    review = request.body.decode(errors="replace") if request.is_form else ""
    body = render(page, found, request.query, root=request.root, json_link=json_link, review=review)
    return Response(status, body, headers_of(page, request.query), _HTML)


def _read(request: HttpRequest) -> tuple[PageRequest, str]:
    """Return *request* as that for a page, and the format of the answer."""
    sent, _, text = request.target.partition(b"?")
    # As sent: a name may have a slash, which is %2F in a link.
    path, root = _path(request), "../" * (sent.count(b"/") - 1) or "./"
    query = _fields(text)
    if "uid" in query:
        # The field of the form takes a whole refusal, too.
        query["uid"] = uid_in(query["uid"])
    form = query.pop("format", "html")
    body = request.body if request.method == b"POST" else b""
    if request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == _FORM:
        # Not so for programs: `curl --data` adds this type to plain JSON.
        found = _fields(body, keep_blank_values=True)
        if "review" in found:
            review = found.pop("review").encode()
            return PageRequest(path, {**query, **found}, review, is_form=True, root=root), form
    return PageRequest(path, query, body, root=root), form


def _fields(text: bytes, *, keep_blank_values: bool = False) -> dict[str, str]:
    try:
        return dict(parse_qsl(text.decode("latin-1"), keep_blank_values, max_num_fields=_MAX_FIELDS))
    except ValueError:
        return {}


def _path(request: HttpRequest) -> str:
    return unquote(request.target.partition(b"?")[0].decode("latin-1"))
