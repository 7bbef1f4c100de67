"""One address of a pool: the connection to it, the calls in flight on it, and its outlier in the pool."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from gateway.dispatch.health import HealthWatch
from gateway.dispatch.in_flight import InFlightCalls
from gateway.dispatch.outlier_detection import OutlierState
from gateway.dispatch.stream import MAX_BATCH_BYTES
from gateway.dispatch.transport import WorkerTransport

if TYPE_CHECKING:
    from gateway.config.model import WorkerPool
    from gateway.core.verdict import Failed, Verdict
    from gateway.dispatch.calls import CallGroup
    from gateway.dispatch.dialer import Dialer
    from gateway.dispatch.hedging import Hedging
    from gateway.dispatch.outlier_detection import State
    from gateway.dispatch.rpc import CallStatus
    from gateway.dispatch.timer_wheel import TimerWheel
    from gateway.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

LONGEST_CALL_S: Final = 30.0
"""The longest timeoutSeconds of a webhook."""

LOOK_EVERY_S: Final = 0.1
"""Whether a connection that is left has anything left to do."""

MAX_LEAVING: Final = 8
"""Connections on their way out. A worker that drains again and again is taken at its word so often."""

MAX_STREAM_PAYLOAD_BYTES: Final = 64 * 1024
"""Larger requests go by a call of their own, so that those behind them on the stream do not wait."""


class WorkerEndpoint(InFlightCalls):
    """A worker, as far as the gateway can see it. Make it on a running event loop."""

    def __init__(
        self,
        dialer: Dialer,
        settings: WorkerPool,
        deadlines: TimerWheel,
        metrics: PoolMetrics,
        hedging: Hedging | None = None,
    ) -> None:
        super().__init__(settings.max_in_flight, deadlines)
        self.address = dialer.address
        self.state: State = "connecting"
        self.outlier = OutlierState()
        self.failures = 0
        self.ban: CallStatus | None = None
        """How the stream ended for which the worker is banned, or was the last time."""
        self._hedging = hedging
        self._reach: State = "connecting"
        self._health: HealthWatch | None = None
        self._dialer = dialer
        self._settings = settings
        self._metrics = metrics
        self._is_closing = self._was_reached = False
        self._connection = self._connect()
        self._leaving: set[WorkerTransport] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.remember(self.address)

    def __repr__(self) -> str:
        transport = "stream" if self._connection.is_streaming else "unary"
        return f"<WorkerEndpoint {self.address} {self.state} {transport}, {self.in_flight} in flight>"

    def submit(self, group: CallGroup) -> None:
        """Ask the worker; the observer is told each verdict, at the deadline at the latest."""
        if not group.open_count:
            return
        self._enter(group)
        if self._hedging is not None and not group.is_second_attempt:
            self._hedging.asked(group)
        payload_bytes = next(len(call.payload.json) for call in group.calls if call is not None)
        is_large = payload_bytes > MAX_STREAM_PAYLOAD_BYTES or len(group.namespace_json) > MAX_BATCH_BYTES
        group.transport = transport = self._connection.transport(is_large=is_large)
        transport.submit(group)

    def withdraw(self, group: CallGroup, index: int, code: str) -> None:
        """Cancel a call and count it with status *code*; the observer is not called."""
        transport = group.transport
        if transport is not None:
            self._count_one(group, code)
            transport.withdraw(group, index)
        self._let_go(group, index)

    def finish(self, group: CallGroup, index: int, verdict: Verdict, code: str | None = None) -> None:
        """Settle a call, unless it has ended; *code* is its gRPC status, None if it was counted already."""
        call = group.calls[index]
        if call is None:
            return
        if code is not None:
            self._count_one(group, code)
        self._let_go(group, index)
        if self._hedging is not None and code in (None, "OK"):
            self._hedging.answered(group)
        group.observer.on_verdict(group, call, verdict)

    def retry(
        self,
        group: CallGroup,
        failure: Failed,
        code: str,
        index: int | None = None,
        *,
        may_reuse: bool = False,
    ) -> None:
        """Give a call back that was lost with the worker, or all of the slot's; *code* is its gRPC status.

        Somebody else may be asked, or the same address if *may_reuse*; else the *failure* is the verdict.
        """
        places = range(len(group.calls)) if index is None else (index,)
        lost = [call for place in places if (call := group.calls[place]) is not None]
        for place in places:
            if group.calls[place] is not None:
                self._let_go(group, place)
        if lost:
            self.count(code, len(lost))
            group.observer.retry(group, lost, failure, may_reuse=may_reuse)

    def count(self, code: str, number: int = 1) -> None:
        """Count calls that ended with gRPC status *code*."""
        if code == "OK":
            self.failures = 0
            self.outlier.answered(self._timers.now())
        else:
            self.outlier.failed(code, number)
        self._metrics.called(self.address, code, number)

    def count_retries(self, number: int) -> None:
        """Count calls that are asked here since another worker was lost with them."""
        self._metrics.retries += number

    @property
    def last_received_at(self) -> float:
        """When the worker gave a sign of life last, in monotonic seconds."""
        return max(connection.last_received_at for connection in (self._connection, *self._leaving))

    def probe(self) -> None:
        """Ask for a sign of life."""
        self._connection.probe()

    def watch_health(self) -> None:
        """Follow what the worker says of its own health, if it says anything."""
        if self._health is None:
            self._health = HealthWatch(self._dialer, self._told)

    def judge(self) -> None:
        """Bring the state up to date after a change in the endpoint's outlier."""
        self.state = self.outlier.state if self._reach == "ready" else self._reach

    def ready(self, connection: WorkerTransport) -> None:
        """The worker was reached."""
        if connection is self._connection:
            if self._reach != "ready":
                self.outlier.reset()
                if self._health is not None:
                    self._health.again()
            if self._reach in ("down", "draining"):
                log.info("worker %s is back" if self._was_reached else "worker %s is reached", self.address)
            self._was_reached = True
            self._reach = "ready"
            self.judge()

    def lost(self, connection: WorkerTransport, why: str) -> None:
        """The worker was lost, or cannot be reached."""
        if connection is not self._connection:
            return
        self.failures += 1
        if self._reach not in ("down", "draining"):
            if self._was_reached:
                log.warning("worker %s is down: %s", self.address, why)
            else:
                # A worker that starts at the same time as its gateway is no cause for hedge_timer.
                log.info("worker %s is not reached yet: %s", self.address, why)
            self._reach = "down"
            self.judge()

    def banned(self, connection: WorkerTransport, status: CallStatus) -> None:
        """The worker broke the protocol on *connection*, whose call ended with *status*: ask it nothing.

        For how long depends on how often it did so.
        """
        if self._is_closing:
            return
        self.ban, for_s = status, self.outlier.ban(self._timers.now())
        log.warning(
            "worker %s broke the protocol: %s. It is asked nothing for %g s",
            self.address,
            status.details,
            for_s,
        )
        self._reach = "down"
        self.judge()
        if connection is not self._connection:
            self._connection.drop(f"the worker is left alone after it broke the protocol: {status.details}")

    def draining(self, connection: WorkerTransport, distrust: str = "") -> None:
        """The worker is going away: whatever else is at the address is asked over a new connection.

        So it is where the connection is not to be trusted any more, for the reason that *distrust* names.
        """
        if connection is not self._connection or self._is_closing or len(self._leaving) >= MAX_LEAVING:
            return
        if distrust:
            log.warning("worker %s %s: its stream is replaced", self.address, distrust)
        else:
            log.info("worker %s is draining", self.address)
        self._reach = "draining"
        self.judge()
        self.failures += 1
        self._leaving.add(connection)
        self._connection = self._connect()
        connection.leave()
        task = asyncio.get_running_loop().create_task(self._see_off(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, grace_s: float) -> None:
        """Let calls in flight end for up to *grace_s* seconds, then end them and the connections."""
        self._reach = "draining"
        self.judge()
        self._is_closing = True
        if self._health is not None:
            await self._health.close()
        await self._wait_until_idle(grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in (self._connection, *self._leaving)))
        await self._dialer.close()
        self._metrics.forget(self.address)

    def _count_one(self, group: CallGroup, code: str) -> None:
        self.count(code)
        if code == "DEADLINE_EXCEEDED":
            self.outlier.timed_out(group.started)

    def _told(self, is_serving: bool) -> None:
        self.outlier.is_serving = is_serving
        self.judge()

    def _connect(self) -> WorkerTransport:
        return WorkerTransport(self._dialer, self._settings.transport, self, self._metrics, self._timers.now)

    async def _see_off(self, connection: WorkerTransport) -> None:
        """Close a connection that is left, once all that was asked over it is or must have been answered."""
        for _ in range(int(LONGEST_CALL_S / LOOK_EVERY_S)):
            await asyncio.sleep(LOOK_EVERY_S)
            if not connection.is_busy:
                break
        await connection.close()
        self._leaving.discard(connection)
