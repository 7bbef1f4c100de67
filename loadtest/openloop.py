"""Open loop: reviews are due by the clock, whatever became of those before.

Review *i* is due at ``start + i / rate``, and its latency counts from then. A review whose time has come
while no connection is free waits, and its waiting counts; so a target that stalls is slow for all reviews
that were due meanwhile, as it would be for those who send them, and not only for the few that were on their
way (coordinated omission). What waits needs no queue: the schedule is a formula, and those who wait are the
numbers between the next to be sent and the next to be due. A target that falls behind by more than the
backlog ends the run.

**Precision.** The timers of uvloop count milliseconds and are late by half of one on average, which would be
most of the latency of a quick target. So a timer of the kernel (timerfd) wakes the loop when a review is due,
at most every ``SHORTEST_TICK_S``: at higher rates each tick sends all that have become due. What remains,
some 0.1 ms on an idle core, is part of the latencies, and measured (``late_ms``); where it may be most of
what a percentile says, ``doubts`` says so.

Source: Gil Tene, "How NOT to Measure Latency", for coordinated omission; timerfd_create(2).
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import time
from array import array
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from loadtest.exchange import Answers, connect
from loadtest.measurement import Measurement, Stopwatch, percentiles_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadtest.exchange import Connection, Target
    from loadtest.measurement import Plan

SHORTEST_TICK_S: Final = 0.0002
"""Below, waking up would cost the generator more than sending."""
LEAD_S: Final = 0.01
"""From connected to the first review."""
BACKLOG_S: Final = 1.0
"""Without a limit of its own a run may fall behind by as many reviews as are due in this time."""
DRAIN_WITHIN_S: Final = 10.0
"""How long to wait for the last answers: what an API server waits by default (timeoutSeconds)."""


class OpenLoop:
    """A schedule, the connections that are free, and what came back."""

    def __init__(self, target: Target, rate: float, plan: Plan, backlog: int) -> None:
        """Plan *rate* reviews a second; at most *backlog* of them may wait for a connection."""
        self.request = target.request_bytes()
        self.answers = Answers(target)
        self.over = asyncio.get_running_loop().create_future()
        """Done when there is nothing more to come."""
        self.reviews = 0
        """Answered correctly so far."""
        self.latencies_s = array("d")
        """Of the correct answers to reviews due in the window."""
        self.late_s = array("d")
        """How late those of them were sent for which a connection was free."""
        self.answered_in_window = 0
        self._rate = rate
        self._backlog = backlog
        self._first = round(plan.warmup_s * rate)
        self._total = self._first + (plan.count or max(1, round(plan.window_s * rate)))
        self._sent = 0
        self._idle: deque[Connection] = (
            deque()
        )  # in turn, so that the server finds none of them idle too long
        self._connections = 0
        self._start = 0.0

    @property
    def intended(self) -> int:
        """How many reviews are due in the window."""
        return self._total - self._first

    @property
    def window_s(self) -> float:
        """How long the window is."""
        return self.intended / self._rate

    @property
    def tick_s(self) -> float:
        """How often to tick."""
        return max(SHORTEST_TICK_S, 1 / self._rate)

    def begin(self, connections: list[Connection], start: float) -> None:
        """Take *connections*; the first review is due at *start*, on ``time.perf_counter``."""
        self._idle.extend(connections)
        self._connections = len(connections)
        self._start = start

    def tick(self) -> None:
        """Send what is due, as far as connections are free."""
        now = time.perf_counter()
        while self._idle and self._sent < self._total and self._due(self._sent) <= now:
            if self._sent >= self._first:
                self.late_s.append(time.perf_counter() - self._due(self._sent))
            self._send(self._idle.popleft())
        if self.waiting(now) > self._backlog:
            self._give_up(now)

    def waiting(self, now: float) -> int:
        """Return how many reviews are due at *now* and not sent."""
        due = min(self._total, math.floor((now - self._start) * self._rate) + 1)
        return max(0, due - self._sent)

    def answered(self, connection: Connection, now: float, *, right: bool) -> None:
        """Count, and send the review that has waited longest, if one waits."""
        self.reviews += right
        if connection.since >= self._due(self._first):
            self.answered_in_window += 1
            if right:
                self.latencies_s.append(now - connection.since)
        # With others idle nothing waits for a connection: what is due then is the business of the tick.
        if not self._idle and self._sent < self._total and self._due(self._sent) <= now:
            self._send(connection)
        else:
            self._idle.append(connection)
            self._end_if_done()

    def lost(self, connection: Connection, reason: str) -> None:
        """Go on with one connection less."""
        if self.over.done():
            return
        self.answers.errors[reason] += 1
        self._connections -= 1
        if not connection.busy:
            self._idle.remove(connection)
        self._end_if_done()

    def stop(self) -> None:
        """End the run; count as errors what is still to come."""
        if self.over.done():
            return
        now = time.perf_counter()
        on_their_way = self._connections - len(self._idle)
        if on_their_way:
            self.answers.errors[f"no answer {DRAIN_WITHIN_S:g} s after the last was due"] = on_their_way
        self._give_up(now)

    def _due(self, number: int) -> float:
        return self._start + number / self._rate

    def _send(self, connection: Connection) -> None:
        connection.send(self._due(self._sent))
        self._sent += 1

    def _give_up(self, now: float) -> None:
        waiting = self.waiting(now)
        if waiting and not self.over.done():
            text = f"too much load: {waiting} reviews were still waiting"
            self.answers.errors[f"{text} for one of {self._connections} connections"] = 1
        self._end()

    def _end_if_done(self) -> None:
        is_done = self._sent == self._total and len(self._idle) == self._connections
        if is_done or not self._connections:
            self._end()

    def _end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def doubts(self) -> list[str]:
        """Return what is to be said about the generator's own lateness, if anything."""
        late, latency = percentiles_ms(self.late_s), percentiles_ms(self.latencies_s)
        if not late or not latency or late["p99"] <= latency["p99"] / 2:
            return []
        shares = f"p99 {late['p99']:.2f} ms, of latencies whose p99 is {latency['p99']:.2f} ms"
        return [f"the generator itself was late: {shares}"]


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

    Both are rounded up, since a tick that comes a nanosecond before its review is due is of no use to it.
    Ticks that were missed are not made up for.

    Raises:
        OSError: the kernel gives no timer.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    # On Linux the clock of perf_counter.
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


async def measure_open(target: Target, rate: float, plan: Plan, backlog: int | None = None) -> Measurement:
    """Return what becomes of *rate* reviews a second over the connections of *plan*.

    If more than *backlog* reviews wait for a connection (None: as many as are due in ``BACKLOG_S``), the run
    ends at once, with an error that begins with "too much load".

    Raises:
        OSError: the target cannot be connected to, or a process of ``plan.watch`` does not exist.
    """
    stopwatch = Stopwatch(plan.watch)
    pace = OpenLoop(target, rate, plan, backlog or math.ceil(rate * BACKLOG_S))
    connections = await connect(target, pace, plan.connections)
    start = time.perf_counter() + LEAD_S
    pace.begin(connections, start)
    with ticking(pace.tick, start, pace.tick_s):
        await asyncio.wait({pace.over}, timeout=LEAD_S + plan.warmup_s)
        before = pace.reviews
        stopwatch.start()
        left_s = start + plan.warmup_s + pace.window_s - time.perf_counter()
        await asyncio.wait({pace.over}, timeout=max(0.0, left_s))
        stopwatch.stop()
        reviews = pace.reviews - before
        await asyncio.wait({pace.over}, timeout=DRAIN_WITHIN_S)
        pace.stop()
    for connection in connections:
        connection.close()
    return Measurement(
        reviews=reviews,
        seconds=stopwatch.seconds,
        latencies_ms=percentiles_ms(pace.latencies_s),
        cpu_s=stopwatch.cpu_s,
        errors=dict(pace.answers.errors),
        intended=pace.intended,
        answered=pace.answered_in_window,
        unanswered=pace.intended - pace.answered_in_window,
        late_ms=percentiles_ms(pace.late_s),
        doubts=[*(stopwatch.doubts() if reviews else []), *pace.doubts()],
    )
