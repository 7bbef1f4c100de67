"""The generator of all loads but Locust's: it sends requests over connections that are kept alive.

- Closed loop: each connection sends its next request as soon as it has the answer to the last.
- Open loop: requests are due by the clock, and latency counts from the moment at which a request was due. A
  server that stalls is therefore slow for all requests that were due meanwhile, as it would be for an API
  server, and not only for those in flight (coordinated omission).

It behaves like kube-apiserver's client: an answer with ``Connection: close`` is the last of its connection,
a connection that the server has closed is not used again, and a POST on a connection that is being closed is
lost, because Go's ``net/http`` does not repeat requests that are not idempotent. A request refused with 503
and ``Retry-After`` is sent again after that time, up to ``max_retries`` times, as ``client-go`` does.

What is sent comes from an iterator, and what becomes of it goes to ``Outcomes``. Once an answer was right,
answers with the same bytes are right, too, if all requests are equal: then their check is one comparison.

Source: Gil Tene, "How NOT to Measure Latency", for coordinated omission; timerfd_create(2).
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import time
from array import array
from collections import Counter, deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Generic

from loadtest.http_client import Connection, R, connect, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadtest.http_client import Address, Answer, CloseMode

MIN_TICK_S: Final = 0.0002
"""Shortest time between two wake-ups of an open loop; shorter ones would cost more CPU than the requests."""
LEAD_S: Final = 0.01
"""From the start to the first request of an open loop."""
RECONNECT_AFTER_S: Final = 0.05
"""Prevents a tight loop if there is no server."""
CLOSE_TIMEOUT_S: Final = 1.0
"""How long a server may take to answer the close_notify of connections that are no longer needed."""
MAX_HANDSHAKES: Final = 64
"""At the same time, when the connections are opened."""
REFUSED: Final = 503


class Outcomes(Generic[R]):
    """Is called when requests end."""

    def judge(self, request: R, answer: Answer) -> bool:
        """Return whether *answer* is right; *request* has ended."""
        raise NotImplementedError

    def lost(self, request: R | None, reason: str) -> None:
        """Called when *request* has ended without an answer; None: a connection without one was lost."""

    def left(self, request: R) -> None:
        """Called when *request* has ended because its client left."""

    def retried(self, request: R) -> None:
        """Called when *request*, which was refused, will be sent again."""


class Generator(Generic[R]):
    """Sends requests until there are no more, and all have ended.

    At any time each connection, or its successor, has a request in flight, waits for its turn in ``_idle``,
    or is about to connect or to send again. In an open loop request *i* is due at ``start + i / rate``. Due
    requests that wait need no queue: they are the numbers between the next to send and the next to be due.
    """

    def __init__(
        self,
        address: Callable[[], Address],
        requests: Iterator[R],
        outcomes: Outcomes[R],
        *,
        rate: float | None = None,
        pause_s: float = 0.0,
        is_fresh: bool = False,
        are_equal: bool = False,
        max_retries: int = 0,
    ) -> None:
        """Set the parameters.

        Args:
            address: Returns the server that the next connection is made to.
            requests: What is sent, in turn.
            outcomes: What becomes of it.
            rate: Requests a second of an open loop; None for a closed loop.
            pause_s: Of a connection before each of its requests.
            is_fresh: Whether each request has a new connection; then its latency includes the handshake.
            are_equal: Whether an answer with the bytes of a right answer is right, whatever its request.
            max_retries: Of a request that is refused.
        """
        self.latencies_s = array("d")
        """Of right answers to requests whose latency counts from ``measured_from`` or later."""
        self.measured_from = 0.0
        """On ``time.perf_counter``."""
        self.late_s = array("d")
        """Open loop: how late requests were sent for which a connection was free, since ``measured_from``."""
        self.right = 0
        """Right answers so far."""
        self.connections = 0
        """Opened so far."""
        self.start = 0.0
        """When the first request of an open loop is due, on ``time.perf_counter``."""
        self.is_over = asyncio.Event()
        """Set when all requests have ended."""
        self._address = address
        self._requests = requests
        self._outcomes = outcomes
        self._rate = rate
        self._pause_s = pause_s
        self._is_fresh = is_fresh
        self._are_equal = are_equal
        self._is_plain = rate is None and not pause_s and not is_fresh
        self._max_retries = max_retries
        self._retries: Counter[str] = Counter()
        """Of requests that were refused and have not ended."""
        self._right_answer = b""
        self._sent = self._width = 0
        self._is_exhausted = False
        self._idle: deque[Connection[R]] = deque()  # in turn, so that no connection reaches the idle timeout
        self._connected: set[Connection[R]] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._none_connected = asyncio.Event()

    async def open(self, width: int) -> None:
        """Connect *width* times.

        Raises:
            OSError: a connection or its handshake fails, or takes too long.
        """
        handshakes = asyncio.Semaphore(MAX_HANDSHAKES)

        async def open_one() -> Connection[R]:
            async with handshakes:
                return await self._connect()

        self._idle.extend(await asyncio.gather(*(open_one() for _ in range(width))))
        self._width = width

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send requests within the block."""
        if self._rate is not None:
            self.start = time.perf_counter() + LEAD_S
            with ticking(self.tick, self.start, max(MIN_TICK_S, 1 / self._rate)):
                yield
            return
        for _ in range(self._width):
            self._free(self._idle.popleft(), 0.0)
        yield

    def due(self, number: int) -> float:
        """Return when request *number* of an open loop is due."""
        assert self._rate is not None
        return self.start + number / self._rate

    def tick(self) -> None:
        """Send the requests of an open loop that are due, as far as connections are free."""
        now = time.perf_counter()
        while self._idle and not self._is_exhausted and (due := self.due(self._sent)) <= now:
            late_s = time.perf_counter() - due
            if self._send_next_due(self._idle.popleft(), due) and due >= self.measured_from:
                self.late_s.append(late_s)

    def stop(self) -> None:
        """Send no more requests; those in flight still end."""
        self._requests = iter(())
        self._exhausted()

    async def close(self) -> None:
        """Send nothing more, and close the connections, whatever is in flight."""
        self.stop()
        for task in self._connecting:
            task.cancel()
        self._none_connected.clear()
        for connection in self._connected:
            connection.request = None
            connection.close()
        if self._connected:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._none_connected.wait(), CLOSE_TIMEOUT_S)
            for connection in self._connected:
                connection.abort()

    # -- connections ------------------------------------------------------------------------------

    def on_received(self, connection: Connection[R], received: bytes) -> bool:
        """See ``Owner``."""
        now = time.perf_counter()
        if received != self._right_answer or connection.request is None:
            return self._judge(connection, received, now)
        connection.request = None
        self.right += 1
        if connection.since >= self.measured_from:
            self.latencies_s.append(now - connection.since)
        if self._is_plain:  # the path of most measurements: what is left out here would show in them
            self._send_next(connection, time.perf_counter())
        else:
            self._free(connection, now)
        return True

    def _judge(self, connection: Connection[R], received: bytes, now: float) -> bool:
        request = connection.request
        try:
            answer = parse(received)
            if answer is None:
                return False
            if request is None:
                raise ValueError("an answer without a request")
        except ValueError as error:
            connection.close("FIN")
            self._lost(connection, f"no HTTP: {error}")
            return True
        connection.request = None
        if answer.header(b"connection") == b"close":
            connection.close()
        wait = answer.header(b"retry-after") if self._max_retries and answer.status == REFUSED else b""
        if wait and self._retries[request.uid] < self._max_retries:
            self._retries[request.uid] += 1
            self._outcomes.retried(request)
            self._later(float(wait), self._send, connection, request, connection.since)
            return True
        self._retries.pop(request.uid, None)
        if self._outcomes.judge(request, answer):
            self.right += 1
            if connection.since >= self.measured_from:
                self.latencies_s.append(now - connection.since)
            if self._are_equal:
                self._right_answer = received
        self._ended(connection)
        return True

    def on_lost(self, connection: Connection[R], reason: str) -> None:
        """See ``Owner``."""
        self._connected.discard(connection)
        if not self._connected:
            self._none_connected.set()
        if connection.is_open:
            connection.is_open = False
            self._lost(connection, reason)

    def _lost(self, connection: Connection[R], reason: str) -> None:
        request, connection.request = connection.request, None
        self._outcomes.lost(request, reason)
        if request is not None:
            self._retries.pop(request.uid, None)
            self._later(RECONNECT_AFTER_S, self._ended, connection)

    def _leave(self, connection: Connection[R], request: R, mode: CloseMode) -> None:
        if connection.request is request:
            connection.request = None
            connection.close(mode)
            self._outcomes.left(request)
            self._ended(connection)

    # -- requests ---------------------------------------------------------------------------------

    def _ended(self, connection: Connection[R]) -> None:
        self._free(connection, time.perf_counter())

    def _free(self, connection: Connection[R], now: float) -> None:
        """Send the next request over *connection*, or its successor if it is closed, when it is its turn."""
        if self._rate is not None:
            # While other connections are idle no request waits: the next tick sends what is due by then.
            if self._idle or self._is_exhausted or self.due(self._sent) > now:
                self._rest(connection)
            else:
                self._send_next_due(connection, self.due(self._sent))
            return
        if self._pause_s:
            self._later(self._pause_s, self._send_now, connection)
            return
        if self._is_fresh:
            connection.close()
        self._send_now(connection)

    def _send_next_due(self, connection: Connection[R], due: float) -> bool:
        self._sent += 1
        return self._send_next(connection, due)

    def _send_now(self, connection: Connection[R]) -> None:
        self._send_next(connection, time.perf_counter())

    def _send_next(self, connection: Connection[R], since: float) -> bool:
        request = next(self._requests, None)
        if request is None:
            self._is_exhausted = True
            self._rest(connection)
            return False
        if connection.is_open and request.leaves is None:
            connection.send(request, since)
        else:
            self._send(connection, request, since)
        return True

    def _send(self, connection: Connection[R], request: R, since: float) -> None:
        if not connection.is_open:
            task = asyncio.get_running_loop().create_task(self._connect_and_send(request, since))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
            return
        connection.send(request, since)
        if request.leaves is not None:
            self._later(request.leaves.after_s, self._leave, connection, request, request.leaves.mode)

    async def _connect_and_send(self, request: R, since: float) -> None:
        try:
            connection = await self._connect()
        except OSError as error:
            closed: Connection[R] = Connection(self)
            closed.request = request
            self._lost(closed, f"{type(error).__name__}: {error}")
        else:
            self._send(connection, request, since)

    async def _connect(self) -> Connection[R]:
        connection = await connect(self._address(), self)
        self.connections += 1
        self._connected.add(connection)
        return connection

    def _rest(self, connection: Connection[R]) -> None:
        self._idle.append(connection)
        if self._is_exhausted:
            self._exhausted()

    def _exhausted(self) -> None:
        self._is_exhausted = True
        if len(self._idle) == self._width:
            self.is_over.set()

    def _later(self, seconds: float, callback: Callable[..., object], *arguments: object) -> None:
        asyncio.get_running_loop().call_later(seconds, callback, *arguments)


class _Interval(ctypes.Structure):
    """struct itimerspec."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


_NS: Final = 1_000_000_000
_ABSOLUTE: Final = 1
"""TFD_TIMER_ABSTIME."""


@contextmanager
def ticking(callback: Callable[[], None], first: float, interval_s: float) -> Iterator[None]:
    """Call *callback* at *first*, on ``time.perf_counter``, and every *interval_s* from then.

    A timer of the kernel (timerfd), because uvloop's timers count milliseconds and are late by half of one on
    average, which would be most of the latency of a fast server. Times are rounded up: a tick before a
    request is due could not send it. Missed ticks are not repeated.

    Raises:
        OSError: the kernel refuses the timer.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    # On Linux this is the clock of perf_counter.
    timer = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if timer < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    setting = _Interval(*divmod(math.ceil(interval_s * _NS), _NS), *divmod(math.ceil(first * _NS), _NS))

    def tick() -> None:
        with suppress(BlockingIOError):
            os.read(timer, 8)
        callback()

    loop = asyncio.get_running_loop()
    try:
        if libc.timerfd_settime(timer, _ABSOLUTE, ctypes.byref(setting), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        loop.add_reader(timer, tick)
        yield
    finally:
        loop.remove_reader(timer)
        os.close(timer)
