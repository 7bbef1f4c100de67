"""A connection to a worker with one streaming call: joins the event loop and the HTTP/2 state machine."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final, Protocol

from admission_gateway_worker.http2.frames import ENHANCE_YOUR_CALM, Violation
from gateway.engine.dispatch.cpu_budget import MAX_DEBT_S, SLICE_S, SMALL_READ_BYTES, CpuAccount, budget_of
from gateway.engine.dispatch.keepalive import Keepalive
from gateway.engine.dispatch.rpc import CallStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gateway.engine.dispatch.rpc import StreamingCall

_WRITE_BUFFER_BYTES: Final = 256 * 1024
"""Unsent bytes above which no further batch is written; calls made meanwhile share the next one."""
MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
"""Unsent bytes above which the connection is ended: room for a batch of little more than 2 MiB, and for
answers to PING and SETTINGS frames of a worker that does not read them."""

UNMEASURED_S: Final = 0.00002
"""Assumed CPU cost of a small read that answers no call."""

CLOSE_TIMEOUT_S: Final = 0.2
MAX_PROBES: Final = 2
"""Pings ahead of the keepalive time without a message in between: gRPC servers end connections with more."""
TCP_USER_TIMEOUT_MS: Final = 10_000
"""Time without a TCP acknowledgement after which a connection is lost, see tcp(7)."""


class StreamConnectionOwner(Protocol):
    """Receives the events of a connection once it is settled."""

    def received(self, message: bytes | bytearray) -> Iterator[int] | int | None:
        """Take a message, and return how many calls it has answered; None is none.

        What takes more than a few milliseconds is done in steps, each of which yields that number.
        """

    def writable(self) -> None:
        """There is room for another message."""

    def leaving(self) -> None:
        """The worker accepts no further calls on this connection; may be called more than once."""

    def ended(self, status: CallStatus) -> None:
        """The call has ended. Called once and last, unless the call was ended from this side."""


class StreamConnection(asyncio.Protocol):
    """A connection from its start to the end of its call."""

    def __init__(
        self, call: StreamingCall, owner: StreamConnectionOwner, account: CpuAccount | None = None
    ) -> None:
        """Start *call* for *owner* once connected; *account* is that of the address."""
        self.account = CpuAccount() if account is None else account
        self._call = call
        self._http2 = call.http2
        self._owner: StreamConnectionOwner | None = owner
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._was_blocked = False
        self._loop = loop = asyncio.get_running_loop()
        self.last_received_at = loop.time()
        """When any bytes were last received, in seconds on the loop's clock."""
        self.has_received_message = False
        self.owes_a_pong = False
        """Whether nothing was received since the last ping."""
        self._keepalive: Keepalive | None = None
        self._probes = 0
        self._budget = budget_of(loop)
        self._steps: Iterator[int] | None = None
        """The remaining steps of a message."""
        self._cost_s = 0.0
        """CPU time in this period for input that is not a message and answers no call.

        An answer that is too large counts against its own webhook, not against the other webhooks of its
        worker."""
        self._is_waiting = self._is_held = False
        """Whether the next slice is scheduled, and whether reading from the socket is paused until then."""
        self.settled: asyncio.Future[None] = loop.create_future()
        """Done when the worker's SETTINGS have come; an EOFError if the connection ends before that."""
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when the connection is closed, if there was one."""

    @property
    def can_send(self) -> bool:
        """Whether a message would be sent at once."""
        return not self._is_paused and not self._http2.is_blocked

    def send(self, *message: bytes) -> None:
        """Send a message, which may be in several parts, as far as flow control allows; the rest follows."""
        self._call.send(*message)
        self._was_blocked |= self._http2.is_blocked
        self._write()

    def finish_writing(self) -> None:
        """Half-close: no further message will be sent."""
        self._http2.finish_writing()
        self._write()

    def begin_period(self) -> None:
        """Count input that answers no call from 0 again."""
        self._cost_s = 0.0
        self._http2.begin_period()

    def start_keepalive(self, on_period: Callable[[], None]) -> None:
        """End the call if the worker stops responding.

        *on_period* is called when a new period of this count begins, see :meth:`begin_period`.
        """

        def new_period() -> None:
            self.begin_period()
            on_period()

        self._keepalive = Keepalive(self, new_period, self._time_out)

    def _time_out(self, reason: str) -> None:
        owner = self._owner
        self.abort()
        if owner is not None:
            owner.ended(CallStatus("UNAVAILABLE", reason))

    def ping(self) -> None:
        """Send a PING frame, which the worker must acknowledge."""
        self.owes_a_pong = True
        self._http2.ping()
        self._write()

    def probe(self) -> bool:
        """Ping ahead of the keepalive time; return False if the worker would not allow that."""
        self._probes += 1
        if self._probes > MAX_PROBES:
            return False
        self.ping()
        return True

    def abort(self) -> None:
        """End call and connection from this side; the owner is not notified."""
        self._release()
        self._call.cancel()
        self._steps = None
        self._budget.leave(self)
        self._write()
        self._close_transport()
        if not self.settled.done():
            self.settled.cancel()

    def discard(self) -> None:
        """Release a connection that the loop did not hand over; uvloop has closed it without notice."""
        self._release()
        if self._transport is not None:
            # Nothing can be written to it, not even a GOAWAY.
            self._transport.abort()
        self.settled.cancel()

    async def close(self) -> None:
        """End call and connection, and return when the connection is closed."""
        self.abort()
        if self._transport is not None:
            await self.closed

    # -- called by the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is established, TLS included: start the call."""
        self._transport = transport  # type: ignore[assignment] # uvloop's class derives from none of asyncio's
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            # A lost host sends no acknowledgement.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_MS)
        self._write()

    def data_received(self, data: bytes) -> None:
        """Bytes were received."""
        self.last_received_at = self._loop.time()
        self.owes_a_pong = False
        if self._http2.is_over:
            return
        self._http2.receive(data)
        if not self._is_waiting:
            if self.account.has_credit or self._budget.is_available():
                self.read_slice()
            else:
                self._wait()

    def read_slice(self) -> None:
        """Process received bytes for one slice."""
        self._is_waiting = False
        if self._transport is None:
            return
        budget, account = self._budget, self.account
        has_credit = account.has_credit
        is_measured = not has_credit or self._http2.unread_bytes > SMALL_READ_BYTES
        cpu_s = budget.cpu() if is_measured else 0.0
        is_in_message = self._steps is not None
        end = budget.clock() + SLICE_S
        answered = self._step()
        while (has_more := self._has_more) and budget.clock() < end:
            answered += self._step()
        if answered:
            account.pay(answered)
            self._cost_s = 0.0 if account.has_credit else self._cost_s
            self._http2.begin_period()
        else:
            cost_s = budget.cpu() - cpu_s if is_measured else UNMEASURED_S
            account.charge(cost_s, self._loop.time())
            if not is_in_message:
                self._cost_s += cost_s
            if not has_credit:
                budget.spend(cost_s)
            if self._cost_s > MAX_DEBT_S:
                self._call.fail(
                    Violation(ENHANCE_YOUR_CALM, "too much CPU time for input that answers no call")
                )
                has_more = self._has_more
        self._after_slice(has_more=has_more)

    @property
    def _has_more(self) -> bool:
        return self._steps is not None or self._call.has_more

    def _step(self) -> int:
        """Process one step of the input, and return how many calls it answered."""
        if self._steps is None:
            message = self._call.next_message()
            if message is None:
                return 0
            self.has_received_message = True
            self._probes = 0
            if self._owner is None:
                return 0
            taken = self._owner.received(message)
            if taken is None or isinstance(taken, int):
                return taken or 0
            self._steps = taken
        answered = next(self._steps, -1)
        if answered >= 0:
            return answered
        self._steps = None
        return 0

    def _after_slice(self, *, has_more: bool) -> None:
        """Write the output, schedule the next slice, and notify the owner."""
        call, http2 = self._call, self._http2
        if http2.output:
            self._write()
        if http2.is_settled and not self.settled.done():
            self.settled.set_result(None)
        if has_more:
            self.last_received_at = self._loop.time()
            self._wait()
        elif self._is_held and self._transport is not None:
            self._is_held = False
            self._transport.resume_reading()
        if call.status is not None and not has_more:
            self._end(call.status)
        elif self._owner is not None:
            if http2.is_leaving:
                self._owner.leaving()
            if self._was_blocked and not http2.is_blocked:
                self._was_blocked = False
                self._owner.writable()

    def _wait(self) -> None:
        """Schedule the next slice, and pause reading until then."""
        self._is_waiting = True
        if not self._is_held and self._transport is not None and not self._transport.is_closing():
            self._is_held = True
            self._transport.pause_reading()
        if self.account.has_credit:
            self._loop.call_soon(self.read_slice)
        else:
            self._budget.wait(self)

    def pause_writing(self) -> None:
        """The write buffer is full: the worker reads too slowly."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """The write buffer has room again."""
        self._is_paused = False
        if self._owner is not None and self.settled.done():
            self._owner.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        why = f": {exc}" if exc is not None and str(exc) else ""
        self._transport = None
        self._budget.leave(self)
        if not self.closed.done():
            self.closed.set_result(None)
        self._end(CallStatus("UNAVAILABLE", f"connection to the worker lost{why}"))

    def _write(self) -> None:
        output, transport = self._http2.output, self._transport
        if transport is not None and output and not transport.is_closing():
            # The transport may keep it: a copy would cost more than a new one.
            self._http2.output = bytearray()
            transport.write(output)
            if self._is_paused and transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                # Acknowledgements that the worker keeps requesting and does not read.
                transport.abort()

    def _close_transport(self) -> None:
        # Not twice: asyncio's transport with TLS cannot be aborted after a second close.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            # The worker must read the output first, and with TLS it ends the connection.
            self._loop.call_later(CLOSE_TIMEOUT_S, self._abort_transport)

    def _abort_transport(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _release(self) -> None:
        """Notify the owner of nothing any more."""
        self._owner = None
        if self._keepalive is not None:
            self._keepalive.stop()

    def _end(self, status: CallStatus) -> None:
        owner = self._owner
        self._release()
        if not self.settled.done():
            self.settled.set_exception(EOFError(status.details))
            self.settled.exception()  # the dialer may have been cancelled
        elif owner is not None:
            owner.ended(status)
        self._close_transport()
