"""One request to an HTTPS server, with its retries and redirects.

It is retried as by the API server: after status 429, or 500 and above, with a whole number of seconds in
``Retry-After``, and if a reused connection ended before anything was written. It is retried once more if a
reused connection ended before a byte of the answer and the webhook has no side effects: the server closed the
idle connection at that moment, which is not a failure of the webhook. Redirects are followed if they repeat
the request (307, 308) to the same host and port; reviews and credentials are not sent to others.

Source: k8s.io/client-go rest/with_retry.go; net/http transport.go of Go (shouldRetryRequest).
"""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from gateway.base.text import url_without_secrets
from gateway.engine.dispatch.https.connection import MAX_BODY_BYTES, AnswerTooLargeError, ExchangeError
from gateway.engine.dispatch.https.response import retry_after_s

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from gateway.engine.dispatch.https.connection import HttpResponse
    from gateway.engine.dispatch.https.connection_pool import ConnectionPool
    from gateway.engine.dispatch.https.large_answers import LargeAnswerSlot

MAX_RETRIES: Final = 10
MAX_REDIRECTS: Final = 3
MAX_GZIP_MEMBERS: Final = 16
"""Members of a compressed answer, which usually has one. To find the next, the rest is copied."""
_UNPACKED_ON_LOOP_BYTES: Final = 1024
"""Compressed bytes that are unpacked on the event loop: a megabyte at most, in some milliseconds."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_NOT_IN_TARGET: Final = re.compile(r"[^\x21-\x7e]")


class WebhookRequest:
    """A POST request to one server, without its target."""

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
        """Return the request line for *target*, path and query, and the header fields."""
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


async def send(
    request: WebhookRequest,
    timeout_text: str,
    connections: ConnectionPool,
    context: ssl.SSLContext,
    slot: LargeAnswerSlot,
    *,
    may_repeat: bool,
) -> HttpResponse:
    """Return the answer to *request*, with its body unpacked.

    A large answer takes *slot*, which the caller releases. There is no time limit: the caller cancels.

    Args:
        request: What to send.
        timeout_text: The value of ``?timeout=``, by which the server learns how long the gateway waits. Empty
            leaves the parameter out.
        connections: Where to send it.
        context: The TLS context for new connections.
        slot: For a large answer.
        may_repeat: Whether the server may get the request twice.

    Raises:
        ExchangeError: there is no answer.
    """
    target = f"{request.path}?timeout={timeout_text}" if timeout_text else request.path
    retries = redirects = 0
    while True:
        response = await exchange(request, target, connections, context, slot, may_repeat=may_repeat)
        delay_s = retry_after_s(response) if response.status == 429 or response.status >= 500 else None
        if delay_s is not None and retries < MAX_RETRIES:
            retries += 1
            slot.release()
            await asyncio.sleep(max(0, delay_s))
        elif 300 <= response.status < 400 and "location" in response.headers:
            redirects += 1
            slot.release()
            target = _redirected(request.host, target, response, redirects)
        else:
            response.body = await _unpacked(response, slot)
            return response


class GetRequest:
    """A GET request to one server, without its target."""

    __slots__ = ("body", "headers", "host")

    def __init__(self, url: str, headers: Sequence[tuple[str, str]]) -> None:
        """*headers* are sent beside the usual ones."""
        self.host = urlsplit(url).netloc
        self.headers = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.body: Sequence[bytes] = ()

    def head(self, target: str) -> bytes:
        """Return the request line for *target*, path and query, and the header fields."""
        names = {line.partition(":")[0].lower() for line in self.headers.split("\r\n")}
        accept = "" if "accept" in names else "Accept: application/json, */*\r\n"
        head = (
            f"GET {target} HTTP/1.1\r\n"
            f"Host: {self.host}\r\n"
            "User-Agent: admission-gateway\r\n"
            f"{accept}{self.headers}\r\n"
        )
        return head.encode("latin-1")


async def exchange(
    request: WebhookRequest | GetRequest,
    target: str,
    connections: ConnectionPool,
    context: ssl.SSLContext,
    slot: LargeAnswerSlot,
    *,
    may_repeat: bool,
) -> HttpResponse:
    """Return the answer to *request* for *target*, whatever its status. See :func:`send`."""
    is_fresh = False
    while True:
        connection = await connections.acquire(context, is_fresh=is_fresh)
        is_reused = connection.has_answered
        try:
            return await connection.exchange(slot, request.head(target), *request.body)
        except ExchangeError as error:
            if not is_reused or is_fresh or not (error.is_unsent or (error.is_unanswered and may_repeat)):
                raise
            is_fresh = True
        finally:
            connections.release(connection)


def _redirected(host: str, target: str, response: HttpResponse, count: int) -> str:
    """Return the target to which *response* redirects a request for *target*.

    Raises:
        ExchangeError: the redirect is not followed.
    """
    location = response.headers["location"]
    shown = url_without_secrets(location)[:200]
    if response.status not in (307, 308):
        raise ExchangeError(
            f"status {response.status} to {shown}: such a redirect would not repeat the request"
        )
    if count > MAX_REDIRECTS:
        raise ExchangeError(f"stopped after {MAX_REDIRECTS} redirects")
    try:
        parts = urlsplit(urljoin(f"https://{host}{target}", location))
        is_same_server = parts.scheme == "https" and _server(parts.netloc) == _server(host)
    except ValueError:
        is_same_server = False
    if not is_same_server:
        raise ExchangeError(
            f"status {response.status} to {shown}: redirects to other servers are not followed"
        )
    found = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    if _NOT_IN_TARGET.search(found):
        raise ExchangeError(f"status {response.status} to {shown}: not a URL")
    return found


def _server(netloc: str) -> tuple[str | None, int]:
    parts = urlsplit(f"https://{netloc}")
    return parts.hostname, parts.port or 443


async def _unpacked(response: HttpResponse, slot: LargeAnswerSlot) -> bytes:
    """Return the unpacked body.

    Raises:
        ExchangeError: it is not gzip, or too large.
    """
    if response.headers.get("content-encoding", "").lower() != "gzip" or not response.body:
        return response.body
    await slot.acquire()
    if len(response.body) <= _UNPACKED_ON_LOOP_BYTES:
        return _gunzip(response.body)
    # In a thread: zlib releases the interpreter lock.
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
