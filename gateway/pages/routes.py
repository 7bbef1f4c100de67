"""The routes of the pages: path, query and method to a page, or to the JSON behind it.

Rendering runs in a thread, and at most ``AT_ONCE`` pages are made at a time, so that readers of pages do not
delay reviews.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qsl, unquote

import orjson

from gateway.errors import Unavailable
from gateway.pages import overview
from gateway.serving.message import Response, error_response
from gateway.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.pages.state import Json
    from gateway.serving.message import HttpRequest
    from gateway.serving.page_access import PageAccess

AT_ONCE: Final = 4
WAITING: Final = 32
"""Requests for pages that wait for their turn; more are refused with 503."""

_HTML: Final = b"text/html; charset=utf-8"
_PATHS: Final = "expected /, /decisions, /explain, /namespaces, /configz, /livez, /readyz or /metrics"


class Source(Protocol):
    """The gateway whose pages are served: one process, or several."""

    @property
    def processes(self) -> int:
        """The number of processes."""

    async def parts(self, target: str, body: bytes = b"") -> Sequence[Json]:
        """Return the part of each process that answers for *target*, path and query.

        Raises:
            Unavailable: no process answers.
        """


class Pages:
    """The pages of one gateway. ``gateway.serving.admin.PageRoutes`` describes the methods."""

    def __init__(self, source: Source, access: Callable[[], PageAccess]) -> None:
        """*access* returns the access check in force."""
        self._source = source
        self._access = access
        self._waiting = 0
        self._turn = asyncio.Semaphore(AT_ONCE)

    def screen(self, request: HttpRequest) -> Response | None:
        """Return the refusal for a path, method or client, by the head of *request*."""
        refusal = self._access().refusal(request)
        if refusal is not None:
            return refusal
        path = _path(request)
        if _name(path) is None:
            return error_response(404, _PATHS)
        methods = (b"GET", b"HEAD", b"POST") if path == "/explain" else (b"GET", b"HEAD")
        if request.method not in methods:
            allow = b", ".join(methods)
            return error_response(405, f"expected {allow.decode()}", headers=b"Allow: %b\r\n" % allow)
        return None

    def allows_body(self, request: HttpRequest) -> bool:
        """Whether *request*, which was not refused, may have a large body."""
        return request.method == b"POST"

    async def answer(self, request: HttpRequest) -> Response:
        """Return the page, or the JSON behind it.

        Raises:
            Unavailable: too many pages are waited for, or no process answers.
        """
        if self._waiting >= WAITING:
            raise Unavailable("too many requests for pages, try again")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._answer(request)
        finally:
            self._waiting -= 1

    async def _answer(self, request: HttpRequest) -> Response:
        path = _path(request)
        query = dict(parse_qsl(request.target.partition(b"?")[2].decode("latin-1"), max_num_fields=50))
        form = query.pop("format", "html")
        if form not in ("html", "json", "process"):
            return error_response(400, f"format: found {printable(form, 80)}, expected html or json")
        parts = await self._source.parts(request.target.decode("latin-1"), request.body)
        if form == "process":
            # Internal: what a process answers to its supervisor.
            return Response(200, orjson.dumps(parts[0]))
        found = overview.merge(parts, self._source.processes)
        if form == "json":
            return Response(200, orjson.dumps(found, option=orjson.OPT_INDENT_2))
        # Imported late: a gateway whose pages nobody reads does not need the template engine.
        from gateway.pages.render import HEADERS, render

        body = await asyncio.to_thread(render, _name(path) or "", found)
        return Response(200, body, HEADERS, _HTML)


def _path(request: HttpRequest) -> str:
    return unquote(request.target.partition(b"?")[0].decode("latin-1"))


def _name(path: str) -> str | None:
    """Return the name of the page at *path*; None if there is none."""
    return {"/": "overview"}.get(path)
