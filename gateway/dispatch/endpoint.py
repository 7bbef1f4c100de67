"""One address of a pool: the connection to it, the calls in flight on it, and its standing in the pool."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from gateway.dispatch.connection import Connection
from gateway.dispatch.health import HealthWatch
from gateway.dispatch.ledger import Ledger
from gateway.dispatch.standing import Standing
from gateway.dispatch.stream import MAX_BATCH_BYTES

if TYPE_CHECKING:
    from gateway.config.model import WorkerPool
    from gateway.core.verdict import Failed, Verdict
    from gateway.dispatch.channel import Link
    from gateway.dispatch.deadlines import Deadlines
    from gateway.dispatch.hedging import Hedging
    from gateway.dispatch.pending import Pending
    from gateway.dispatch.rpc import CallStatus
    from gateway.dispatch.standing import State
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


class Endpoint(Ledger):
    """A worker, as far as the gateway can see it. Make it on a running event loop."""

    def __init__(
        self,
        link: Link,
        settings: WorkerPool,
        deadlines: Deadlines,
        metrics: PoolMetrics,
        hedging: Hedging | None = None,
    ) -> None:
        super().__init__(settings.max_in_flight, deadlines)
        self.address = link.address
        self.state: State = "connecting"
        self.standing = Standing()
        self.failures = 0
        self.ban: CallStatus | None = None
        """How the stream ended for which the worker is banned, or was the last time."""
        self._hedging = hedging
        self._reach: State = "connecting"
        self._health: HealthWatch | None = None
        self._link = link
        self._settings = settings
        self._metrics = metrics
        self._is_closing = self._was_reached = False
        self._connection = self._connect()
        self._leaving: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.remember(self.address)

    def __repr__(self) -> str:
        transport = "stream" if self._connection.is_streaming else "unary"
        return f"<Endpoint {self.address} {self.state} {transport}, {self.in_flight} in flight>"

    def submit(self, pending: Pending) -> None:
        """Ask the worker; the asker is told each verdict, at the deadline at the latest."""
        if not pending.open:
            return
        self._enter(pending)
        if self._hedging is not None and not pending.is_second:
            self._hedging.asked(pending)
        payload_bytes = next(len(call.payload.json) for call in pending.calls if call is not None)
        is_large = payload_bytes > MAX_STREAM_PAYLOAD_BYTES or len(pending.namespace_json) > MAX_BATCH_BYTES
        pending.carrier = carrier = self._connection.carrier(is_large=is_large)
        carrier.submit(pending)

    def withdraw(self, pending: Pending, index: int, code: str) -> None:
        """Forget a call whose answer is no longer wanted; it is counted as *code*, and the asker not told."""
        carrier = pending.carrier
        if carrier is not None:
            self._count_one(pending, code)
            carrier.withdraw(pending, index)
        self._let_go(pending, index)

    def finish(self, pending: Pending, index: int, verdict: Verdict, code: str | None = None) -> None:
        """Settle a call, unless it has ended; *code* is its gRPC status, None if it was counted already."""
        call = pending.calls[index]
        if call is None:
            return
        if code is not None:
            self._count_one(pending, code)
        self._let_go(pending, index)
        if self._hedging is not None and code in (None, "OK"):
            self._hedging.answered(pending)
        pending.asker.answered(pending, call, verdict)

    def lose(
        self,
        pending: Pending,
        failure: Failed,
        code: str,
        index: int | None = None,
        *,
        may_stay: bool = False,
    ) -> None:
        """Give a call back that was lost with the worker, or all of the slot's; *code* is its gRPC status.

        Somebody else may be asked, or the same address if *may_stay*; else the *failure* is the verdict.
        """
        places = range(len(pending.calls)) if index is None else (index,)
        lost = [call for place in places if (call := pending.calls[place]) is not None]
        for place in places:
            if pending.calls[place] is not None:
                self._let_go(pending, place)
        if lost:
            self.count(code, len(lost))
            pending.asker.lost(pending, lost, failure, may_stay=may_stay)

    def count(self, code: str, number: int = 1) -> None:
        """Count calls that ended with gRPC status *code*."""
        if code == "OK":
            self.failures = 0
            self.standing.answered(self._deadlines.now())
        else:
            self.standing.failed(code, number)
        self._metrics.called(self.address, code, number)

    def count_moved(self, number: int) -> None:
        """Count calls that are asked here since another worker was lost with them."""
        self._metrics.moved += number

    @property
    def heard_at(self) -> float:
        """When the worker gave a sign of life last, in monotonic seconds."""
        return max(connection.heard_at for connection in (self._connection, *self._leaving))

    def probe(self) -> None:
        """Ask for a sign of life."""
        self._connection.probe()

    def watch_health(self) -> None:
        """Follow what the worker says of its own health, if it says anything."""
        if self._health is None:
            self._health = HealthWatch(self._link, self._told)

    def judge(self) -> None:
        """Bring the state up to date after a change in the endpoint's standing."""
        self.state = self.standing.state if self._reach == "ready" else self._reach

    def ready(self, connection: Connection) -> None:
        """The worker was reached."""
        if connection is self._connection:
            if self._reach != "ready":
                self.standing.reset()
                if self._health is not None:
                    self._health.again()
            if self._reach in ("down", "draining"):
                log.info("worker %s is back" if self._was_reached else "worker %s is reached", self.address)
            self._was_reached = True
            self._reach = "ready"
            self.judge()

    def lost(self, connection: Connection, why: str) -> None:
        """The worker was lost, or cannot be reached."""
        if connection is not self._connection:
            return
        self.failures += 1
        if self._reach not in ("down", "draining"):
            if self._was_reached:
                log.warning("worker %s is down: %s", self.address, why)
            else:
                # A worker that starts at the same time as its gateway is no cause for alarm.
                log.info("worker %s is not reached yet: %s", self.address, why)
            self._reach = "down"
            self.judge()

    def banned(self, connection: Connection, status: CallStatus) -> None:
        """The worker broke the protocol on *connection*, whose call ended with *status*: ask it nothing.

        For how long depends on how often it did so.
        """
        if self._is_closing:
            return
        self.ban, for_s = status, self.standing.ban(self._deadlines.now())
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

    def draining(self, connection: Connection, distrust: str = "") -> None:
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
        await self._link.close()
        self._metrics.forget(self.address)

    def _count_one(self, pending: Pending, code: str) -> None:
        self.count(code)
        if code == "DEADLINE_EXCEEDED":
            self.standing.timed_out(pending.started)

    def _told(self, is_serving: bool) -> None:
        self.standing.is_serving = is_serving
        self.judge()

    def _connect(self) -> Connection:
        return Connection(self._link, self._settings.transport, self, self._metrics, self._deadlines.now)

    async def _see_off(self, connection: Connection) -> None:
        """Close a connection that is left, once all that was asked over it is or must have been answered."""
        for _ in range(int(LONGEST_CALL_S / LOOK_EVERY_S)):
            await asyncio.sleep(LOOK_EVERY_S)
            if not connection.is_busy:
                break
        await connection.close()
        self._leaving.discard(connection)
