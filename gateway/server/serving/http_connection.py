"""One HTTP/1.1 connection: requests in, answers out, in order.

No task, future or timer per request: the loop's read callback reads requests and calls the service, and an
answer is one write. The sweep of ``gateway.server.serving.connection_table`` enforces the time limits.

Laws:
1. Answers leave in the order of their requests, however the bytes of the requests are split.
2. The service gets one request at a time, when its body is complete. Reading pauses while a request is being
   answered and another one waits; at most ``Bounds.pipelined`` requests wait.
3. After a request that was not read to its end, the connection ends with its answer.
4. Only the idle bound closes an idle connection; an old connection ends by ``Connection: close`` on an
   answer.

Source: RFC 9112 section 9 (connection management).
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

from gateway.server.serving.message import (
    CLOSING_IDLE,
    CONTINUE,
    REVIEWED,
    Cancel,
    Exchange,
    Response,
    encode,
    error_response,
    unavailable,
)
from gateway.server.serving.reader import RequestReader
from gateway.server.serving.sockets import has_unread
from gateway.server.serving.tls import verifying_authorities

if TYPE_CHECKING:
    from gateway.server.serving.connection_table import ConnectionTable


class HttpConnection(asyncio.BufferedProtocol):
    """The connection of one client, from the end of the TLS handshake on."""

    def __init__(self, connections: ConnectionTable) -> None:
        self._connections = connections
        self._service = connections.service
        self._buffer = connections.buffer
        self._clock = connections.clock
        self._reader = RequestReader(self, connections)
        self._transport: asyncio.Transport | None = None
        self.retire_at = 0.0
        self.is_made = False
        """Whether the handshake has succeeded."""
        self.requests = 0
        """Answered so far."""
        self.is_trusted = False
        """Whether the client needs no credentials."""
        self._certificate: dict[str, Any] | None = None
        self._authorities: frozenset[bytes] = frozenset()
        """The client CAs that verified the certificate."""

        self._current: Exchange | None = None
        self._cancel: Cancel | None = None
        self._queue: deque[Exchange] = deque()
        self._advancing = self._owes_continue = False

        self._since = 0.0  # when the state that check() looks at began
        self._unsent_bytes = self._refusals = 0
        self._closing = self._reading_paused = self._writing_paused = self._has_completed_request = False

    @property
    def state(self) -> str:
        """One of ``closing``, ``sending``, ``answering``, ``reading`` and ``idle``."""
        if self._closing:
            return "closing"
        if self._writing_paused:
            return "sending"
        if self._current is not None:
            return "answering"
        return "idle" if self._reader.received_at is None else "reading"

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
            self._authorities = verifying_authorities(transport.get_extra_info("ssl_object"))
        self.check_client()
        self._since = self._clock()
        self.retire_at = self._since + self._connections.lifetime_s()
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        exchange, cancel = self._current, self._cancel
        self._closing = True
        self._current = self._cancel = None
        self._drop_queue()
        self._reader.close()
        self._connections.discard(self)
        # Breaks a reference cycle with uvloop's transport: 60 KB that would wait for the garbage collector.
        self._transport = None
        if exchange is not None:
            exchange.release()
            if cancel is not None:
                cancel()

    def check_client(self) -> None:
        """Check the client's certificate against the client CAs and client names that are trusted now."""
        is_verified = self._authorities <= self._connections.authorities
        self.is_trusted = (
            is_verified
            and self._transport is not None
            and self._service.is_trusted_client(self._certificate, self._transport)
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into: the one of the listener, see READ_BUFFER_BYTES."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """*nbytes* bytes were read into the buffer."""
        reader = self._reader
        if reader.is_stopped:
            return
        reader.feed(self._buffer[:nbytes])
        if reader.received_at is not None:
            if self._current is not None or self._writing_paused:
                self._pause_reading()
            else:
                self._since = max(self._since, reader.received_at)

    def pause_writing(self) -> None:
        """The client reads more slowly than answers are written."""
        self._writing_paused = True
        self._unsent_bytes = self._transport.get_write_buffer_size()  # type: ignore[union-attr] # made
        self._pause_reading()

    def resume_writing(self) -> None:
        """The client has read enough of the answers."""
        self._writing_paused = False
        self._since = self._clock()
        self._advance()

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self._closing and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    # -- answering --------------------------------------------------------------------------------

    def submit(self, exchange: Exchange) -> None:
        """Have a request answered after those before it."""
        self._owes_continue = False  # the client did not wait for it
        if self._current is None and not self._queue and not self._writing_paused:
            self._begin(exchange)
        elif not self._closing:
            if len(self._queue) >= self._connections.bounds.pipelined:
                exchange.request.body, exchange.keep_alive = b"", False
                exchange.refusal = unavailable("too many requests wait on this connection")
                self._reader.stop()
            self._queue.append(exchange)
            self._pause_reading()
        else:
            exchange.release()

    def promise_continue(self) -> None:
        """Send ``100 Continue``, once the requests before are answered."""
        if self._current is None and not self._queue:
            self._write(CONTINUE)
        else:
            self._owes_continue = True

    def _begin(self, exchange: Exchange) -> None:
        self._current = exchange
        if exchange.client_checks != self._connections.client_checks:
            exchange.refusal = exchange.refusal or self._service.authenticate(
                exchange.request, is_trusted=self.is_trusted
            )
        if exchange.refusal is not None:
            exchange.reply(exchange.refusal)
            return
        if not self._has_completed_request:
            self._has_completed_request = True
            self._connections.note_completed_request(self)
        cancel = self._service.answer(exchange, self._clock())
        if self._current is exchange:
            self._cancel = cancel

    def reply_ok(self, exchange: Exchange, body: bytes) -> None:
        """Write *body* as JSON with status 200: the short path, for nearly every answer."""
        now = self._clock()
        if not exchange.keep_alive or now >= self.retire_at or self._service.draining or self._closing:
            self.reply(exchange, Response(200, body))
            return
        self._since = now
        self._refusals = 0
        self._current = self._cancel = None
        self.requests += 1
        self._connections.requests += 1
        self._transport.write(REVIEWED % (len(body), body))  # type: ignore[union-attr] # made, and not closing
        if self._reading_paused or self._owes_continue:
            self._advance()

    def reply(self, exchange: Exchange, response: Response) -> None:
        """Write *response*, and begin the next request."""
        self._since = now = self._clock()
        close = response.close or not exchange.keep_alive or now >= self.retire_at or self._service.draining
        self._refusals = self._refusals + 1 if response.status != 200 else 0
        if self._refusals:
            self._connections.refused[response.status] += 1
            if self._connections.on_refused is not None:
                self._connections.on_refused(exchange.request, response)
            close = close or self._refusals >= self._connections.bounds.refusals
        self._current = self._cancel = None
        self.requests += 1
        self._connections.requests += 1
        self._write(encode(response, close=close, head_only=exchange.request.method == b"HEAD"))
        if close:
            self.close()
        elif self._reading_paused or self._owes_continue:
            self._advance()

    def _write(self, payload: bytes) -> None:
        if self._transport is not None and not self._closing:
            self._transport.write(payload)

    def _advance(self) -> None:
        """Begin the next waiting request; where none waits, resume reading."""
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
        """Enforce the time limits at *now*, in monotonic seconds."""
        bounds, lasted_s = self._connections.bounds, now - self._since
        full_idle_s = bounds.full_idle_s if self._connections.idle_closes_left else None
        idle_s = bounds.drain_idle_s if self._service.draining else full_idle_s or bounds.idle_s
        match self.state:
            case "closing" if lasted_s > (full_idle_s or bounds.answer_s):
                self.abort()
            case "sending":
                self._check_sending(now)
            case "reading":
                self._check_reading(now, lasted_s)
            case "idle" if lasted_s > idle_s:
                self._close_idle()

    def _check_reading(self, now: float, lasted_s: float) -> None:
        reader, longest_s = self._reader, self._connections.bounds.request_s
        if reader.received_at is None:
            return
        budget_s = inf if reader.exchange is None else reader.exchange.route.budget_s
        # After its budget the request cannot be answered in time, and its body only takes room.
        if lasted_s > longest_s or now - reader.received_at >= budget_s:
            text = f"request not complete {min(longest_s, budget_s):g} seconds after its first byte"
            reader.refuse(error_response(408, text))

    def _close_idle(self) -> None:
        # Timers run before reads. On a busy loop an unread request may have arrived, and would be lost.
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None or not has_unread(sock):
            if self._service.draining or self._connections.idle_closes_left:
                self._write(CLOSING_IDLE)
            self._connections.idle_closes_left = max(self._connections.idle_closes_left - 1, 0)
            self.close()

    def _check_sending(self, now: float) -> None:
        unsent_bytes = self._transport.get_write_buffer_size()  # type: ignore[union-attr] # made
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._since = unsent_bytes, now
        elif now - self._since > self._connections.bounds.answer_s:
            self.abort()

    def close(self) -> None:
        """Send the answers that are written, then end the connection. Nothing more is read."""
        if not self._closing and self._transport is not None:
            self._closing = True
            self._reader.stop()
            self._since = self._clock()
            self._drop_queue()
            if self._reading_paused:
                self._transport.resume_reading()  # to read the close_notify that ends TLS
            self._transport.close()

    def discard(self) -> None:
        """Free the parser, since the handshake has failed."""
        self._reader.close()

    def abort(self) -> None:
        """End the connection at once; a request in flight is cancelled."""
        if self._transport is not None:
            self._closing = True
            self._reader.stop()
            self._transport.abort()
