"""One worker of a pool: its transports, the calls in flight there, and its state."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from gateway.engine.dispatch.calls import InFlightCalls, open_calls, with_followers
from gateway.engine.dispatch.health import HealthWatch
from gateway.engine.dispatch.outlier_detection import OutlierState
from gateway.engine.dispatch.parameter_ids import MAX_IDS
from gateway.engine.dispatch.policy_listing import PolicyListing, check_parameters, list_policies
from gateway.engine.dispatch.stream import MAX_BATCH_BYTES
from gateway.engine.dispatch.transport import WorkerTransport
from gateway.pure.core.verdict import Failed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gateway.config.kinds.worker_pool import WorkerPool
    from gateway.engine.dispatch.calls import CallGroup, EndpointState, Transport
    from gateway.engine.dispatch.dialer import Dialer
    from gateway.engine.dispatch.hedging import Hedging
    from gateway.engine.dispatch.policy_listing import ParameterKey
    from gateway.engine.dispatch.rpc import CallStatus
    from gateway.engine.dispatch.timer_wheel import TimerWheel
    from gateway.observe.telemetry.metrics import PoolMetrics
    from gateway.pure.core.call import Call
    from gateway.pure.core.verdict import Verdict

log = logging.getLogger(__name__)

EXPECTED_ATTEMPTS: Final = 8
"""After so many attempts, some seconds, a worker that was never connected is mentioned in the log."""
LONGEST_CALL_S: Final = 30.0
"""The longest timeoutSeconds of a webhook."""

DRAIN_POLL_S: Final = 0.1
"""Interval of the checks whether a replaced transport is idle."""

MAX_DRAINING: Final = 8
"""Replaced transports at a time; further drain notices of the worker are ignored meanwhile."""

MAX_STREAM_PAYLOAD_BYTES: Final = 64 * 1024
"""Larger requests are sent as unary calls, so that they do not delay others on the stream."""


class WorkerEndpoint:
    """One address of a pool. Create it on a running event loop."""

    def __init__(
        self,
        dialer: Dialer,
        settings: WorkerPool,
        timers: TimerWheel,
        metrics: PoolMetrics,
        hedging: Hedging | None = None,
    ) -> None:
        self.address = dialer.address
        self.state: EndpointState = "connecting"
        self.calls = InFlightCalls(settings.max_in_flight, timers)
        self.outlier = OutlierState()
        self.failed_attempts = 0
        self.ban_status: CallStatus | None = None
        self._connectivity: EndpointState = "connecting"
        """The state apart from ``outlier``."""
        self._hedging = hedging
        self._health: HealthWatch | None = None
        self._dialer = dialer
        self._settings = settings
        self._metrics = metrics
        self._now = timers.now
        self._is_closing = self._was_connected = False
        self.connected_count = 0
        """How often the worker was connected."""
        self.lost_reason = ""
        """Why the worker is not connected; empty if it is."""
        self._transport = self._open_transport()
        self._draining: set[WorkerTransport] = set()
        """Replaced transports with calls in flight."""
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.remember(self.address)

    def __repr__(self) -> str:
        transport = "stream" if self._transport.is_streaming else "unary"
        return f"<WorkerEndpoint {self.address} {self.state} {transport}, {self.calls.count} in flight>"

    def submit(self, group: CallGroup) -> None:
        """Send the calls of *group*; the observer gets each verdict, at the deadline at the latest."""
        if not group.open_count:
            return
        self.calls.enter(group)
        if self._hedging is not None and not group.is_second_attempt:
            self._hedging.submitted(group)
        group.transport = transport = self._transport.choose(is_large=_is_large(group))
        if group.followers:
            self._submit_followers(group, transport)
        transport.submit(group)

    def _submit_followers(self, group: CallGroup, transport: Transport) -> None:
        is_sent = transport.has_chains and _fits_into_a_batch(group)
        for follower in with_followers(group)[1:]:
            follower.transport = transport
            if not is_sent:
                for index in range(len(follower.calls)):
                    self.refuse(follower, index)
            elif follower.open_count:
                self.calls.enter(follower)

    def withdraw(self, group: CallGroup, index: int, code: str) -> None:
        """Cancel a call and count it with status *code*; the observer is not called."""
        transport = group.transport
        if transport is not None:
            self.count_one(group, code)
            transport.withdraw(group, index)
        self.calls.release(group, (index,))

    def finish(self, group: CallGroup, index: int, verdict: Verdict, code: str) -> None:
        """End a call unless it has ended; *code* is its gRPC status."""
        call = group.calls[index]
        if call is not None:
            self.count_one(group, code)
            self.finish_calls({group: {index: (call, verdict)}})

    def finish_calls(self, answered: Mapping[CallGroup, Mapping[int, tuple[Call, Verdict]]]) -> None:
        """End open calls of groups of one observer, by index, with their verdicts.

        Their gRPC statuses are counted already.
        """
        for group, calls in answered.items():
            self.calls.release(group, calls)
            if self._hedging is not None and group.after is None:
                for _, verdict in calls.values():
                    if type(verdict) is not Failed:
                        self._hedging.answered(group)
        group.observer.on_verdicts({group: calls.values() for group, calls in answered.items()})

    def refuse(self, group: CallGroup, index: int) -> None:
        """End a call of a chain that was not evaluated as a part of it; the observer gets it back."""
        call = group.calls[index]
        if call is not None:
            self.calls.release(group, (index,))
            group.observer.refuse(call, was_sent=group.was_sent)

    def retry(
        self,
        group: CallGroup,
        failure: Failed,
        code: str,
        index: int | None = None,
        *,
        may_reuse: bool = False,
    ) -> None:
        """Have the observer retry a call that was lost with the worker, or all of *group*.

        *code* is its gRPC status, and *failure* the verdict if it cannot be retried. *may_reuse*: this
        endpoint may be used again.
        """
        indices = range(len(group.calls)) if index is None else (index,)
        lost = [call for lost_index in indices if (call := group.calls[lost_index]) is not None]
        self.calls.release(group, [at for at in indices if group.calls[at] is not None])
        if lost:
            self.count(code, len(lost), is_enforced=group.is_enforced)
            group.observer.retry(group, lost, failure, may_reuse=may_reuse)

    def count(self, code: str, number: int = 1, *, is_enforced: bool = True) -> None:
        """Count calls that ended with gRPC status *code*; see ``CallGroup.is_enforced``."""
        if code == "OK":
            self.failed_attempts = 0
            self.outlier.succeeded(self._now())
        elif is_enforced:
            self.outlier.failed(code, number)
        self._metrics.called(self.address, code, number)

    def count_one(self, group: CallGroup, code: str) -> None:
        """Count a call of *group* that ended with gRPC status *code*."""
        self.count(code, is_enforced=group.is_enforced)
        if code == "DEADLINE_EXCEEDED" and group.is_enforced:
            self.outlier.timed_out(group.started_at)

    def count_retries(self, number: int) -> None:
        """Count calls that are sent here because another endpoint was lost with them."""
        self._metrics.retries += number

    @property
    def last_received_at(self) -> float:
        """When anything was last received from the worker, in monotonic seconds."""
        return max(transport.last_received_at for transport in (self._transport, *self._draining))

    def probe(self) -> None:
        """Make the worker send something, which updates ``last_received_at``."""
        self._transport.probe()

    def watch_health(self) -> None:
        """Watch the worker's health, if it serves gRPC health checks."""
        if self._health is None:
            self._health = HealthWatch(self._dialer, self._on_health)

    async def list_policies(self) -> PolicyListing:
        """Return the policies that the worker serves."""
        return await list_policies(self._dialer)

    async def check_parameters(
        self, listing: PolicyListing, wanted: Collection[ParameterKey]
    ) -> PolicyListing:
        """Return *listing* with the worker's judgement about the *wanted* parameters."""
        return await check_parameters(self._dialer, listing, wanted)

    def update_state(self) -> None:
        """Derive the state again from the connectivity and ``outlier``."""
        self.state = self.outlier.state if self._connectivity == "ready" else self._connectivity

    def ready(self, transport: WorkerTransport) -> None:
        """The worker is connected."""
        if transport is self._transport:
            if self._connectivity != "ready":
                self.outlier.reset()
                if self._health is not None:
                    self._health.restart()
                self.connected_count += 1
                self.lost_reason = ""
            if self._connectivity in ("down", "draining"):
                text = "worker %s connected again" if self._was_connected else "worker %s connected"
                log.info(text, self.address)
            elif self._connectivity == "connecting":
                log.debug("worker connected: %s", self.address)
            self._was_connected = True
            self._connectivity = "ready"
            self.update_state()

    def lost(self, transport: WorkerTransport, reason: str) -> None:
        """The worker was lost, or cannot be reached."""
        if transport is not self._transport:
            return
        self.failed_attempts += 1
        self.lost_reason = reason
        if not self._was_connected and self.failed_attempts == EXPECTED_ATTEMPTS:
            # Before, that is expected of a worker that starts at the same time as the gateway.
            log.info("worker %s not reachable yet; connecting: %s", self.address, reason)
        if self._connectivity not in ("down", "draining"):
            if self._was_connected:
                log.warning("worker %s lost; reconnecting: %s", self.address, reason)
            self._connectivity = "down"
            self.update_state()

    def banned(self, transport: WorkerTransport, status: CallStatus) -> None:
        """The worker violated the protocol on *transport*: ban it, for longer each time."""
        if self._is_closing:
            return
        self.ban_status, ban_s = status, self.outlier.ban(self._now())
        log.warning(
            "worker %s violated the protocol; no calls for %g s: %s", self.address, ban_s, status.details
        )
        self._connectivity = "down"
        self.update_state()
        if transport is not self._transport:
            self._transport.drop(f"banned after a protocol violation: {status.details}")

    def draining(self, transport: WorkerTransport, replace_reason: str = "") -> None:
        """The worker accepts no further calls on *transport*: open a new one to the same address.

        *replace_reason* is empty if the worker announced that; otherwise it is the gateway's own reason.
        """
        if transport is not self._transport or self._is_closing or len(self._draining) >= MAX_DRAINING:
            return
        if replace_reason:
            log.warning("stream of worker %s replaced: %s", self.address, replace_reason)
        else:
            log.info("worker %s is draining; connecting again", self.address)
        self._connectivity = "draining"
        self.update_state()
        self.failed_attempts += 1
        self._draining.add(transport)
        self._transport = self._open_transport()
        transport.finish_writing()
        task = asyncio.get_running_loop().create_task(self._close_when_idle(transport))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, grace_s: float) -> None:
        """Close all connections; calls in flight get up to *grace_s* seconds."""
        self._connectivity = "draining"
        self.update_state()
        self._is_closing = True
        if self._health is not None:
            await self._health.close()
        await self.calls.wait_until_idle(grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(transport.close() for transport in (self._transport, *self._draining)))
        await self._dialer.close()
        self._metrics.forget(self.address)

    def _on_health(self, is_serving: bool) -> None:
        self.outlier.is_serving = is_serving
        self.update_state()

    def _open_transport(self) -> WorkerTransport:
        return WorkerTransport(self._dialer, self._settings.transport, self, self._metrics, self._now)

    async def _close_when_idle(self, transport: WorkerTransport) -> None:
        """Close a replaced transport once its calls are answered or past their deadlines."""
        for _ in range(int(LONGEST_CALL_S / DRAIN_POLL_S)):
            await asyncio.sleep(DRAIN_POLL_S)
            if not transport.is_busy:
                break
        await transport.close()
        self._draining.discard(transport)


def _fits_into_a_batch(group: CallGroup) -> bool:
    """Whether a batch can have all parameters of *group* and its chains."""
    parameters = {call.parameters for call in open_calls(group) if call.parameters}
    return len(parameters) <= MAX_IDS and sum(map(len, parameters)) <= MAX_BATCH_BYTES


def _is_large(group: CallGroup) -> bool:
    for call in group.calls:
        if call is not None:
            is_large = len(call.payload.json) > MAX_STREAM_PAYLOAD_BYTES
            return is_large or len(group.namespace_json) > MAX_BATCH_BYTES
    return False
