"""One connection: requests in, answers out, in order.

No task, future or timer per request: requests are read in the loop's read callback, the service is called
from there, and an answer is one write. What has to end for its age is found by the sweep of
``gateway.serving.connection_table``.

Laws:
1. Answers leave in the order of their requests, whatever the splitting of the bytes that carried these.
2. A request is given to the service when its body is complete, one at a time; reading pauses while one is
   being answered and more than a read buffer waits behind it. So many as ``Bounds.pipelined`` may wait.
3. After a request that was not read to its end, the connection ends with that answer.
4. An idle connection is closed only by the idle bound; age shows as ``Connection: close`` on an answer.

Source: RFC 9112 section 9 (connection management).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from gateway.serving.message import (
    CONTINUE,
    FAREWELL,
    REVIEWED,
    Cancel,
    HttpRequest,
    Response,
    encode,
    error_response,
    unavailable,
)
from gateway.serving.reader import RequestReader
from gateway.serving.sockets import has_unread
from gateway.serving.tls import vouchers_of

if TYPE_CHECKING:
    from gateway.serving.connection_table import ConnectionTable


class HttpConnection(asyncio.BufferedProtocol):
    """One client, from the end of the TLS handshake to the end of the connection."""

    def __init__(self, connections: ConnectionTable) -> None:
        self._connections = connections
        self._service = connections.service
        self._buffer = connections.buffer
        self._clock = connections.clock
        self._reader = RequestReader(self, connections)
        self._transport: asyncio.Transport | None = None
        self.retire_at = 0.0
        self.is_made = False
        """Whether the handshake has ended well."""
        self.requests = 0
        """Answered so far."""
        self.trusted = False
        """Whether the client's certificate alone lets it in."""
        self._certificate: dict[str, Any] | None = None
        self._vouchers: frozenset[bytes] = frozenset()

        self._current: HttpRequest | None = None
        self._cancel: Cancel | None = None
        self._queue: deque[HttpRequest] = deque()
        self._advancing = self._owes_continue = False

        self._since = 0.0  # when the state that check() judges began
        self._unsent_bytes = self._refusals = 0
        self._closing = self._reading_paused = self._writing_paused = self._is_proven = False

    @property
    def state(self) -> str:
        """One of ``closing``, ``sending``, ``answering``, ``reading`` and ``idle``."""
        if self._closing:
            return "closing"
        if self._writing_paused:
            return "sending"
        if self._current is not None:
            return "answering"
        return "idle" if self._reader.request is None else "reading"

    def __repr__(self) -> str:
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "local"
        return f"<HttpConnection {address}, HTTP/1.1, {self.state}, {self.requests} requests>"

    # -- called by the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TLS handshake is over."""
        self._transport = transport  # type: ignore[assignment] # uvloop's class derives from none of asyncio's
        assert self._transport is not None
        self.is_made = True
        self._transport.set_write_buffer_limits(high=self._connections.bounds.write_bytes)
        self._certificate = transport.get_extra_info("peercert")
        if self._certificate:
            self._vouchers = vouchers_of(transport.get_extra_info("ssl_object"))
        self.judge()
        self._since = self._clock()
        self.retire_at = self._since + self._connections.lifetime_s()
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, for whatever reason."""
        request, cancel = self._current, self._cancel
        self._closing = True
        self._current = self._cancel = None
        self._drop_queue()
        self._reader.close()
        self._connections.discard(self)
        # Its side of a cycle with uvloop's transport: 60 KB that would wait for the garbage collector.
        self._transport = None
        if request is not None:
            request.release()
            if cancel is not None:
                cancel()

    def judge(self) -> None:
        """Find out whether the client's certificate lets it in: now by its CA, and by its names."""
        is_verified = self._vouchers <= self._connections.authorities
        self.trusted = is_verified and self._service.is_trusted_certificate(self._certificate)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to: the listener's one buffer, see READ_BUFFER_BYTES."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        reader = self._reader
        if reader.deaf:
            return
        reader.feed(self._buffer[:nbytes])
        if reader.request is not None:
            if self._current is not None or self._writing_paused:
                self._pause_reading()
            else:
                self._since = max(self._since, reader.request.received_at)

    def pause_writing(self) -> None:
        """More is written than the client reads."""
        self._writing_paused = True
        self._unsent_bytes = self._transport.get_write_buffer_size()  # type: ignore[union-attr] # made
        self._pause_reading()

    def resume_writing(self) -> None:
        """The client has read."""
        self._writing_paused = False
        self._since = self._clock()
        self._advance()

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self._closing and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    # -- answering --------------------------------------------------------------------------------

    def submit(self, request: HttpRequest) -> None:
        """Have *request* answered once those before it are."""
        self._owes_continue = False  # the body has come unasked
        if self._current is None and not self._queue and not self._writing_paused:
            self._begin(request)
        elif not self._closing:
            if len(self._queue) >= self._connections.bounds.pipelined:
                request.body, request.keep_alive = b"", False
                request.refusal = unavailable("too many requests wait on this connection")
                self._reader.stop()
            self._queue.append(request)
            self._pause_reading()
        else:
            request.release()

    def promise_continue(self) -> None:
        """Send ``100 Continue``, once the requests before are answered."""
        if self._current is None and not self._queue:
            self._write(CONTINUE)
        else:
            self._owes_continue = True

    def _begin(self, request: HttpRequest) -> None:
        self._current = request
        if request.judgement != self._connections.judgements:
            request.trusted = self.trusted
            request.refusal = request.refusal or self._service.authenticate(request)
        if request.refusal is not None:
            request.reply(request.refusal)
            return
        if not self._is_proven:
            self._is_proven = True
            self._connections.prove(self)
        request.begun_at = self._clock()
        cancel = self._service.answer(request)
        if self._current is request:
            self._cancel = cancel

    def reply_ok(self, request: HttpRequest, body: bytes) -> None:
        """Write *body* as JSON with status 200: what nearly every answer is, without a detour."""
        now = self._clock()
        if not request.keep_alive or now >= self.retire_at or self._service.draining or self._closing:
            self.reply(request, Response(200, body))
            return
        self._since = now
        self._refusals = 0
        self._current = self._cancel = None
        self.requests += 1
        self._connections.requests += 1
        self._transport.write(REVIEWED % (len(body), body))  # type: ignore[union-attr] # made, and not closing
        if self._reading_paused or self._owes_continue:
            self._advance()

    def reply(self, request: HttpRequest, response: Response) -> None:
        """Write *response*, the answer to *request*, and turn to the next."""
        self._since = now = self._clock()
        close = response.close or not request.keep_alive or now >= self.retire_at or self._service.draining
        self._refusals = self._refusals + 1 if response.status != 200 else 0
        if self._refusals:
            self._connections.refused[response.status] += 1
            close = close or self._refusals >= self._connections.bounds.refusals
        self._current = self._cancel = None
        self.requests += 1
        self._connections.requests += 1
        self._write(encode(response, close=close, head_only=request.method == b"HEAD"))
        if close:
            self.close()
        elif self._reading_paused or self._owes_continue:
            self._advance()

    def _write(self, payload: bytes) -> None:
        if self._transport is not None and not self._closing:
            self._transport.write(payload)

    def _advance(self) -> None:
        """Begin what waits, until something is in flight; then read on."""
        if self._advancing:
            return
        self._advancing = True
        while self._queue and self._current is None and not self._writing_paused:
            self._begin(self._queue.popleft())
        self._advancing = False
        if self._queue or self._current is not None or self._closing or self._transport is None:
            return
        if self._owes_continue:
            self._owes_continue = False
            self._write(CONTINUE)
        if self._reading_paused and not self._writing_paused:
            self._reading_paused = False
            self._transport.resume_reading()

    def _drop_queue(self) -> None:
        while self._queue:
            self._queue.popleft().release()

    # -- ending -----------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """End whatever has lasted too long at *now*, in monotonic seconds."""
        bounds, lasted_s = self._connections.bounds, now - self._since
        crowded_s = bounds.crowded_idle_s if self._connections.crowd else None
        idle_s = bounds.drain_idle_s if self._service.draining else crowded_s or bounds.idle_s
        match self.state:
            case "closing" if lasted_s > (crowded_s or bounds.answer_s):
                self.abort()
            case "sending":
                self._check_sending(now)
            case "reading":
                self._check_reading(now, lasted_s)
            case "idle" if lasted_s > idle_s:
                self._close_idle()

    def _check_reading(self, now: float, lasted_s: float) -> None:
        request, longest_s = self._reader.request, self._connections.bounds.request_s
        # Past its budget there is nothing left to decide, and the body only takes room.
        if request and (lasted_s > longest_s or now - request.received_at >= request.budget_s):
            text = f"request not complete {min(longest_s, request.budget_s):g} seconds after its first byte"
            self._reader.refuse(error_response(408, text))

    def _close_idle(self) -> None:
        # Timers run before what has arrived is read: on a busy loop that may be a request, and would be lost.
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None or not has_unread(sock):
            if self._service.draining or self._connections.crowd:
                self._write(FAREWELL)
            self._connections.crowd = max(self._connections.crowd - 1, 0)
            self.close()

    def _check_sending(self, now: float) -> None:
        unsent_bytes = self._transport.get_write_buffer_size()  # type: ignore[union-attr] # made
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._since = unsent_bytes, now
        elif now - self._since > self._connections.bounds.answer_s:
            self.abort()

    def close(self) -> None:
        """Send what is written, then end the connection. Nothing more is read."""
        if not self._closing and self._transport is not None:
            self._closing = True
            self._reader.stop()
            self._since = self._clock()
            self._drop_queue()
            if self._reading_paused:
                self._transport.resume_reading()  # else TLS is not ended: the peer's word for it is unread
            self._transport.close()

    def forget(self) -> None:
        """Let go of everything, since the handshake has failed."""
        self._reader.close()

    def abort(self) -> None:
        """End the connection at once; a request in flight is withdrawn."""
        if self._transport is not None:
            self._closing = True
            self._reader.stop()
            self._transport.abort()
