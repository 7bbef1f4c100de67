"""Connection churn: a new TLS connection for each review, as an API server makes them beyond its idle ones.

Each slot is a thread with a blocking socket: connect, handshake, review, answer, close, again. asyncio and
uvloop cannot be given a session to resume, and OpenSSL does nearly all the work here, without Python's lock.

With ``resume`` a slot offers the session of its last full handshake, until the server takes it no longer; to
copy the session each time would cost as much as resuming saves. In TLS 1.3 that needs a ticket, which the
server sends after the handshake; whether it was accepted is counted.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from loadtest.exchange import CONNECT_WITHIN_S, Answers, client_tls
from loadtest.measurement import Measurement, Stopwatch, percentiles_ms

if TYPE_CHECKING:
    import ssl

    from loadtest.exchange import Target
    from loadtest.measurement import Plan

_CHUNK_BYTES: Final = 1 << 16


class Churn:
    """What all slots of a run share; under one lock."""

    def __init__(self, target: Target, slots: int, *, resume: bool) -> None:
        self.answers = Answers(target)
        self.latencies_s = array("d")
        """From before the connection to the last byte of the answer, of every correct answer so far."""
        self.handshakes = 0
        self.resumed = 0
        self.over = threading.Event()
        """Set when there is nothing more to come."""
        self.failures: list[OSError] = []
        """What ended slots."""
        self._request = target.request_bytes()
        self._address = target.address
        self._tls = client_tls()
        self._resume = resume
        self._lock = threading.Lock()
        self._to_start = math.inf
        self._to_end = math.inf
        self._under_way = 0
        self._slots = slots

    def counts(self, further: int | None = None) -> tuple[int, int, int]:
        """Return correct answers, handshakes and resumed ones so far.

        With *further*, the run ends after as many more answers, those that are under way included.
        """
        with self._lock:
            if further is not None:
                self._to_start, self._to_end = further - self._under_way, further
            return len(self.latencies_s), self.handshakes, self.resumed

    def slot(self) -> None:
        """Make connections until there is nothing more to send; a failed one ends the slot."""
        session: ssl.SSLSession | None = None
        try:
            while self._take():
                session = self._exchange(session)
        except OSError as error:
            with self._lock:
                self.failures.append(error)
                self.answers.errors[f"connection lost: {error}"] += 1
                self._ended()
        with self._lock:
            self._slots -= 1
            if not self._slots:
                self.over.set()

    def _take(self) -> bool:
        with self._lock:
            if self._to_start <= 0 or self.over.is_set():
                return False
            self._to_start -= 1
            self._under_way += 1
            return True

    def _ended(self) -> None:
        self._under_way -= 1
        self._to_end -= 1
        if self._to_end <= 0:
            self.over.set()

    def _exchange(self, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        """Make one connection, offering *session*; return the one to offer next time."""
        began = time.perf_counter()
        plain = socket.create_connection(self._address, CONNECT_WITHIN_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with plain, self._tls.wrap_socket(plain, session=session) as tls:
            tls.sendall(self._request)
            received, right = b"", None
            while right is None:
                data = tls.recv(_CHUNK_BYTES)
                now = time.perf_counter()
                if not data:
                    raise ConnectionResetError("closed by the server")
                received += data
                with self._lock:
                    right = self.answers.judge(received)
            reused = bool(tls.session_reused)
            if self._resume and not reused:
                session = tls.session
            # Says goodbye (close_notify) and does not wait for the answer, like Go's client.
            tls.settimeout(0)
            with suppress(OSError):
                tls.unwrap()
        with self._lock:
            self.handshakes += 1
            self.resumed += reused
            if right:
                self.latencies_s.append(now - began)
            self._ended()
        return session


def measure_fresh(target: Target, plan: Plan, *, resume: bool = False) -> Measurement:
    """Return what as many slots as *plan* has connections see, each review on a connection of its own.

    Raises:
        OSError: the target cannot be connected to, or a process of ``plan.watch`` does not exist.
    """
    stopwatch = Stopwatch(plan.watch)
    churn = Churn(target, plan.connections, resume=resume)
    threads = [threading.Thread(target=churn.slot) for _ in range(plan.connections)]
    # Without a warm-up nothing may be answered before it is measured.
    measured_from_start = not plan.warmup_s
    if measured_from_start:
        before = churn.counts(plan.count)
        stopwatch.start()
    for thread in threads:
        thread.start()
    if not measured_from_start:
        churn.over.wait(plan.warmup_s)
        before = churn.counts(plan.count)
        stopwatch.start()
    churn.over.wait(None if plan.count else plan.window_s)
    stopwatch.stop()
    after = churn.counts()
    churn.over.set()
    for thread in threads:
        thread.join()
    if churn.failures and not churn.handshakes:
        raise churn.failures[0]
    reviews, handshakes, resumed = (last - first for first, last in zip(before, after, strict=True))
    return Measurement(
        reviews=reviews,
        seconds=stopwatch.seconds,
        latencies_ms=percentiles_ms(churn.latencies_s[before[0] : after[0]]),
        cpu_s=stopwatch.cpu_s,
        errors=dict(churn.answers.errors),
        handshakes=handshakes,
        resumed=resumed,
        doubts=stopwatch.doubts() if reviews else [],
    )
