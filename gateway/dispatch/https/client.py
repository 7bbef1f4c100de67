"""One question to an HTTPS server, asked until there is an answer: when it is sent again, and to where.

It is sent again where the API server would (an answer of status 429 or from 500 on with a whole number of
seconds in ``Retry-After``; a kept connection that ended before anything was written), and once more where a
kept connection ends before a byte of the answer and the webhook has no side effects: the server has closed it
just then, which is no failure of the webhook. Redirects are followed where they repeat the request (307, 308)
at the same host and port: to others a review, and the credentials, are not sent on.

Source: k8s.io/client-go rest/with_retry.go; net/http transport.go of Go (shouldRetryRequest).
"""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from gateway.dispatch.https.connection import MAX_BODY_BYTES, AnswerTooLargeError, ExchangeError
from gateway.text import url_without_secrets

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from gateway.dispatch.https.connection import HttpResponse
    from gateway.dispatch.https.connection_pool import ConnectionPool
    from gateway.dispatch.https.large_answers import LargeAnswerSlot

MAX_REPEATS: Final = 10
MAX_REDIRECTS: Final = 3
MAX_GZIP_MEMBERS: Final = 16
"""Of a packed answer, where one is usual: each is found by copying what follows it."""
_UNPACKED_AT_ONCE_BYTES: Final = 1024
"""Packed bytes that are unpacked on the event loop. They become a megabyte at most, in some milliseconds."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_SECONDS: Final = re.compile(r"[+-]?[0-9]{1,9}")
_NOT_IN_TARGET: Final = re.compile(r"[^\x21-\x7e]")


class HttpRequest:
    """A request to one server, but for its target."""

    __slots__ = ("body", "headers", "host", "path")

    def __init__(
        self, url: str, headers: Sequence[tuple[str, str]], body: Sequence[bytes | memoryview]
    ) -> None:
        """*url* has no query. *headers* are sent beside the usual ones."""
        parts = urlsplit(url)
        self.host, self.path = parts.netloc, parts.path
        self.headers = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.body = body

    def head(self, target: str) -> bytes:
        """Return what is written before the body to ask for *target*, path and query."""
        head = (
            f"POST {target} HTTP/1.1\r\n"
            f"Host: {self.host}\r\n"
            "User-Agent: kube-apiserver-admission\r\n"
            f"Content-Length: {sum(map(len, self.body))}\r\n"
            "Accept: application/json, */*\r\n"
            "Content-Type: application/json\r\n"
            f"{self.headers}"
            "Accept-Encoding: gzip\r\n\r\n"
        )
        return head.encode("latin-1")


async def ask(
    question: HttpRequest,
    announced: str,
    connections: ConnectionPool,
    context: ssl.SSLContext,
    room: LargeAnswerSlot,
    *,
    may_repeat: bool,
) -> HttpResponse:
    """Return the answer to *question*, its body unpacked; *announced* is the time that the server is told.

    A large answer has its *room*, which is the caller's to give up.
    *may_repeat* says whether the server may see the question twice. Takes as long as the server does: whoever
    asks cancels it.

    Raises:
        ExchangeError: there is none.
    """
    target = f"{question.path}?timeout={announced}"
    repeats = redirects = 0
    while True:
        response = await _exchange(question, target, connections, context, room, may_repeat=may_repeat)
        delay_s = _retry_after_s(response)
        if delay_s is not None and repeats < MAX_REPEATS:
            repeats += 1
            room.leave()
            await asyncio.sleep(delay_s)
        elif 300 <= response.status < 400 and "location" in response.headers:
            redirects += 1
            room.leave()
            target = _redirected(question.host, target, response, redirects)
        else:
            response.body = await _unpacked(response, room)
            return response


async def _exchange(
    question: HttpRequest,
    target: str,
    connections: ConnectionPool,
    context: ssl.SSLContext,
    room: LargeAnswerSlot,
    *,
    may_repeat: bool,
) -> HttpResponse:
    is_fresh = False
    while True:
        connection = await connections.take(context, is_fresh=is_fresh)
        was_kept = connection.has_answered
        try:
            return await connection.exchange(room, question.head(target), *question.body)
        except ExchangeError as error:
            if not was_kept or is_fresh or not (error.is_unsent or (error.is_unheard and may_repeat)):
                raise
            is_fresh = True
        finally:
            connections.give_back(connection)


def _retry_after_s(response: HttpResponse) -> int | None:
    """Return after how many seconds the server wants to be asked again; None: it does not say so."""
    text = response.headers.get("retry-after", "")
    if (response.status != 429 and response.status < 500) or not _SECONDS.fullmatch(text):
        return None
    return max(0, int(text))


def _redirected(host: str, target: str, response: HttpResponse, count: int) -> str:
    """Return the target that *response* sends a request for *target* to.

    Raises:
        ExchangeError: it is not followed.
    """
    location = response.headers["location"]
    shown = url_without_secrets(location)[:200]
    if response.status not in (307, 308):
        raise ExchangeError(f"status {response.status} to {shown}, which would not repeat the request")
    if count > MAX_REDIRECTS:
        raise ExchangeError(f"stopped after {MAX_REDIRECTS} redirects")
    try:
        parts = urlsplit(urljoin(f"https://{host}{target}", location))
        is_here = parts.scheme == "https" and _place(parts.netloc) == _place(host)
    except ValueError:
        is_here = False
    if not is_here:
        raise ExchangeError(f"status {response.status} to {shown}, and no other server is asked")
    found = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    if _NOT_IN_TARGET.search(found):
        raise ExchangeError(f"status {response.status} to {shown}, which is no URL")
    return found


def _place(netloc: str) -> tuple[str | None, int]:
    parts = urlsplit(f"https://{netloc}")
    return parts.hostname, parts.port or 443


async def _unpacked(response: HttpResponse, room: LargeAnswerSlot) -> bytes:
    """Return the body without its compression.

    Raises:
        ExchangeError: it is not what it says, or too large.
    """
    if response.headers.get("content-encoding", "").lower() != "gzip" or not response.body:
        return response.body
    await room.enter()
    if len(response.body) <= _UNPACKED_AT_ONCE_BYTES:
        return _gunzip(response.body)
    # zlib lets go of the interpreter meanwhile.
    return await asyncio.to_thread(_gunzip, response.body)


def _gunzip(packed: bytes) -> bytes:
    unpacked = bytearray()
    try:
        for _ in range(MAX_GZIP_MEMBERS):
            member = zlib.decompressobj(_GZIP)
            unpacked += member.decompress(packed, MAX_BODY_BYTES + 1 - len(unpacked))
            if len(unpacked) > MAX_BODY_BYTES:
                raise AnswerTooLargeError(f"an answer with more than {MAX_BODY_BYTES} bytes once unpacked")
            if not member.eof:
                raise ExchangeError("gzip: unexpected EOF")
            packed = member.unused_data
            if not packed:
                return bytes(unpacked)
    except zlib.error as error:
        raise ExchangeError(f"gzip: {error}") from None
    raise AnswerTooLargeError(f"gzip: more than {MAX_GZIP_MEMBERS} members")
