"""A connection to a worker and the one call on it, between the event loop and the bytes of HTTP/2."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final, Protocol

from gateway.dispatch.cpu_budget import MOST_DEBT_S, SLICE_S, SMALL_READ_BYTES, Account, share_of
from gateway.dispatch.http2 import ENHANCE_YOUR_CALM, Violation
from gateway.dispatch.rpc import CallStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.dispatch.rpc import StreamingCall

_WRITE_BUFFER_BYTES: Final = 256 * 1024
"""Unsent bytes past which nothing new is written: what is asked meanwhile goes out in one batch."""
MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
"""Unsent bytes past which a connection is ended: a batch, which has little more than 2 MiB, and answers to
pings and settings of a worker that does not read them."""

UNMEASURED_S: Final = 0.00002
"""What a small read that answers no call is taken to cost."""

KEEPALIVE_TIME_S: Final = 30.0
"""Of silence on a connection; servers must allow that, see protos/README.md."""
KEEPALIVE_TIMEOUT_S: Final = 10.0
CLOSE_WITHIN_S: Final = 0.2
MAX_PROBES: Final = 2
"""Without a message from the worker: gRPC's servers hang up on whoever pings more often than that."""
UNHEARD_MS: Final = 10_000
"""After which a connection is lost on which what was sent is not acknowledged, tcp(7)."""


class StreamConnectionOwner(Protocol):
    """Whom a wire reports to, from when it has settled on."""

    def received(self, message: bytes | bytearray) -> Iterator[int] | None:
        """Take a message: as a whole, or in steps that each yield how many calls they have answered.

        A step costs at most a few milliseconds.
        """

    def writable(self) -> None:
        """There is room for another message."""

    def leaving(self) -> None:
        """The worker takes no more calls on this connection; may be said more than once."""

    def ended(self, status: CallStatus) -> None:
        """The call is over. Called once, unless it was ended from this side; nothing comes after it."""


class StreamConnection(asyncio.Protocol):
    """One connection, from its beginning to the end of its call."""

    def __init__(
        self, call: StreamingCall, owner: StreamConnectionOwner, account: Account | None = None
    ) -> None:
        """Begin *call* for *owner* once there is a connection; *account* is the address's."""
        self.account = Account() if account is None else account
        self._call = call
        self._http2 = call.http2
        self._owner: StreamConnectionOwner | None = owner
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._was_blocked = False
        self._loop = loop = asyncio.get_running_loop()
        self.last_received_at = loop.time()
        """When anything came last, in seconds on the loop's clock."""
        self.has_spoken = False
        """Whether a message has come."""
        self.owes_a_pong = False
        """Whether nothing has come since the last ping."""
        self._probes = 0
        self._share = share_of(loop)
        self._steps: Iterator[int] | None = None
        """What is left to do of a message."""
        self._cost_s = 0.0
        """CPU of this connection for what is no message and answered no call, since it was last forgiven.

        An answer that is too large counts against its own webhook, not against others of its worker."""
        self._is_waiting = self._is_held = False
        """Whether the next slice is to come, and whether nothing is read from the socket until then."""
        self.settled: asyncio.Future[None] = loop.create_future()
        """Done when the worker has introduced itself; an EOFError says why it did not."""
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when the connection is gone, if there was one."""

    @property
    def can_send(self) -> bool:
        """Whether a message would leave at once."""
        return not self._is_paused and not self._http2.is_blocked

    def send(self, message: bytes) -> None:
        """Send a message, or as much of it as the worker has room for."""
        self._call.send(message)
        self._write()

    def finish_writing(self) -> None:
        """Say that no further message will come."""
        self._http2.finish_writing()
        self._write()

    def reset_window(self) -> None:
        """Count anew what the worker says for nothing."""
        self._cost_s = 0.0
        self._http2.reset_window()

    def ping(self) -> None:
        """Ask for a sign of life."""
        self.owes_a_pong = True
        self._http2.ping()
        self._write()

    def probe(self) -> bool:
        """Ask for a sign of life ahead of time; return False if the worker would not put up with that."""
        self._probes += 1
        if self._probes > MAX_PROBES:
            return False
        self.ping()
        return True

    def abort(self) -> None:
        """End call and connection from this side; the owner is not told."""
        self._owner = None
        self._call.cancel()
        self._steps = None
        self._share.leave(self)
        self._write()
        self._hang_up()
        if not self.settled.done():
            self.settled.cancel()

    def forsake(self) -> None:
        """Let go of a connection that the loop did not get to hand over; uvloop has closed it, untold."""
        self._owner = None
        if self._transport is not None:
            # Nothing can be written on it, not even a goodbye.
            self._transport.abort()
        self.settled.cancel()

    async def close(self) -> None:
        """End everything, and return when it has ended."""
        self.abort()
        if self._transport is not None:
            await self.closed

    # -- called by the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there, with its TLS: begin the call."""
        self._transport = transport  # type: ignore[assignment] # uvloop's class derives from none of asyncio's
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            # A worker whose host is gone does not even say that it has received anything.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_MS)
        self._write()

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self.last_received_at = self._loop.time()
        self.owes_a_pong = False
        if self._http2.is_over:
            return
        self._http2.receive(data)
        if not self._is_waiting:
            if self.account.has_credit or self._share.may_read():
                self.read_on()
            else:
                self._wait()

    def read_on(self) -> None:
        """Process what has come, for as long as a slice lasts."""
        self._is_waiting = False
        if self._transport is None:
            return
        share, account = self._share, self.account
        has_credit = account.has_credit
        is_measured = not has_credit or self._http2.unread_bytes > SMALL_READ_BYTES
        cpu_s = share.cpu() if is_measured else 0.0
        is_in_message = self._steps is not None
        end = share.clock() + SLICE_S
        answered = self._step()
        while self._has_rest and share.clock() < end:
            answered += self._step()
        if answered:
            account.pay(answered)
            self._cost_s = 0.0 if account.has_credit else self._cost_s
            self._http2.reset_window()
        else:
            cost_s = share.cpu() - cpu_s if is_measured else UNMEASURED_S
            account.charge(cost_s, self._loop.time())
            if not is_in_message:
                self._cost_s += cost_s
            if not has_credit:
                share.spend(cost_s)
            if self._cost_s > MOST_DEBT_S:
                self._call.fail(
                    Violation(ENHANCE_YOUR_CALM, "the worker cost too much CPU with bytes that are no answer")
                )
        self._after_slice()

    @property
    def _has_rest(self) -> bool:
        return self._steps is not None or self._call.has_rest

    def _step(self) -> int:
        """Take a step in what has come, and return how many calls it answered."""
        if self._steps is None:
            message = self._call.next_message()
            if message is None:
                return 0
            self.has_spoken = True
            self._probes = 0
            if self._owner is None:
                return 0
            self._steps = self._owner.received(message)
            if self._steps is None:
                return 0
        answered = next(self._steps, -1)
        if answered >= 0:
            return answered
        self._steps = None
        return 0

    def _after_slice(self) -> None:
        """Write what is to be written, tell the owner what has changed, and see to the rest."""
        call, http2 = self._call, self._http2
        if http2.output:
            self._write()
        if http2.is_settled and not self.settled.done():
            self.settled.set_result(None)
        if self._has_rest:
            self.last_received_at = self._loop.time()
            self._wait()
        elif self._is_held and self._transport is not None:
            self._is_held = False
            self._transport.resume_reading()
        if call.status is not None and not self._has_rest:
            self._end(call.status)
        elif self._owner is not None:
            if http2.is_leaving:
                self._owner.leaving()
            if self._was_blocked and not http2.is_blocked:
                self._was_blocked = False
                self._owner.writable()

    def _wait(self) -> None:
        """Have the next slice come when it is time for it, and read nothing more until then."""
        self._is_waiting = True
        if not self._is_held and self._transport is not None and not self._transport.is_closing():
            self._is_held = True
            self._transport.pause_reading()
        if self.account.has_credit:
            self._loop.call_soon(self.read_on)
        else:
            self._share.wait(self)

    def pause_writing(self) -> None:
        """The worker reads more slowly than it is written to."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """The worker has caught up."""
        self._is_paused = False
        if self._owner is not None and self.settled.done():
            self._owner.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        why = f": {exc}" if exc is not None and str(exc) else ""
        self._transport = None
        self._share.leave(self)
        if not self.closed.done():
            self.closed.set_result(None)
        self._end(CallStatus("UNAVAILABLE", f"the connection to the worker broke{why}"))

    def _write(self) -> None:
        output, transport = self._http2.output, self._transport
        self._was_blocked |= self._http2.is_blocked
        if transport is not None and output and not transport.is_closing():
            transport.write(bytes(output))
            output.clear()
            if self._is_paused and transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                # Answers to what the worker keeps asking for, which it does not read.
                transport.abort()

    def _hang_up(self) -> None:
        # Not twice: after that asyncio's transport with TLS cannot be aborted any more.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            # What is written has to be read first, and with TLS the worker has the last word.
            self._loop.call_later(CLOSE_WITHIN_S, self._drop)

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end(self, status: CallStatus) -> None:
        owner, self._owner = self._owner, None
        if not self.settled.done():
            self.settled.set_exception(EOFError(status.details))
            self.settled.exception()  # read by whoever dials, if still there
        elif owner is not None:
            owner.ended(status)
        self._hang_up()
