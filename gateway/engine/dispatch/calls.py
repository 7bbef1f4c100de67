"""Calls in flight, and the interfaces between the parts that make, carry and observe them.

The calls of one review to one endpoint form a group: one entry in a table and one in the timer wheel, instead
of a task, a future or a timer for each call.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Literal, Protocol

from gateway.engine.dispatch.verdicts import failed_deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gateway.engine.dispatch.timer_wheel import TimerWheel
    from gateway.pure.core.call import Call
    from gateway.pure.core.deadline import Deadline
    from gateway.pure.core.verdict import Failed, Verdict
    from gateway.pure.core.webhook import Mode

EndpointState = Literal["ready", "connecting", "down", "draining", "ejected", "unhealthy", "stalled"]

Sheds = Literal["None", "NotEnforced", "Ignorable"]
"""The calls that a new call may end where an endpoint is full: none; those of webhooks that are not enforced;
also those of webhooks with failurePolicy Ignore."""


class Endpoint(Protocol):
    """One address that takes calls: a worker, or an HTTPS server."""

    address: str
    """HOST:PORT, the path of a socket, or the URL of an HTTPS server."""
    calls: InFlightCalls

    @property
    def state(self) -> EndpointState:
        """``ready`` if the endpoint takes its share of the calls."""

    def submit(self, group: CallGroup) -> None:
        """Send the calls of *group*; the observer gets each verdict, at the deadline at the latest."""

    def withdraw(self, group: CallGroup, index: int, code: str) -> None:
        """Cancel a call and count it with status *code*; the observer is not called."""

    def count_retries(self, number: int) -> None:
        """Count calls that are sent here because another endpoint was lost with them."""


class Transport(Protocol):
    """Carries calls to the worker: a stream, or unary calls."""

    @property
    def has_chains(self) -> bool:
        """Whether it carries the followers of a group too."""

    def submit(self, group: CallGroup) -> None:
        """Send the calls of *group* that are still open."""

    def withdraw(self, group: CallGroup, index: int) -> None:
        """Drop a call; a worker that has received it is notified."""


class CallSink(Protocol):
    """Takes the results of calls from the transports: an endpoint, which has the calls in flight."""

    def finish(self, group: CallGroup, index: int, verdict: Verdict, code: str) -> None:
        """End a call unless it has ended; *code* is its gRPC status."""

    def finish_calls(self, answered: Mapping[CallGroup, Mapping[int, tuple[Call, Verdict]]]) -> None:
        """End open calls of groups of one observer, by index, with their verdicts.

        Their gRPC statuses are counted already.
        """

    def refuse(self, group: CallGroup, index: int) -> None:
        """Take back a call of a chain that was not evaluated as a part of it."""

    def retry(
        self,
        group: CallGroup,
        failure: Failed,
        code: str,
        index: int | None = None,
        *,
        may_reuse: bool = False,
    ) -> None:
        """Take back a call that was lost with the worker, or all of *group*; *code* is its gRPC status.

        *failure* is the verdict if it cannot be retried. *may_reuse*: this endpoint may be used again.
        """

    def count(self, code: str, number: int = 1, *, is_enforced: bool = True) -> None:
        """Count calls that ended with gRPC status *code*; see ``CallGroup.is_enforced``."""

    def count_one(self, group: CallGroup, code: str) -> None:
        """Count a call of *group* that ended with gRPC status *code*."""


class CallObserver(Protocol):
    """Receives the results of calls. For each call at most one of the first three methods is called, once."""

    def on_verdicts(self, answered: Mapping[CallGroup, Collection[tuple[Call, Verdict]]]) -> None:
        """Take the verdicts of calls that have ended together, by their groups."""

    def refuse(self, call: Call, *, was_sent: bool) -> None:
        """Take back a call of a chain, which was not evaluated as a part of it."""

    def retry(self, group: CallGroup, calls: Sequence[Call], failure: Failed, *, may_reuse: bool) -> None:
        """Retry calls whose worker was lost; *failure* is the verdict of calls that cannot be retried.

        *may_reuse*: the same endpoint may be used again, because a new connection may reach another worker.
        """

    def hedge(self, group: CallGroup) -> int:
        """Send calls to a second endpoint too, and return how many; the first answer counts."""


class HedgeTimer(Protocol):
    """A timer that hedges a group unless it is cancelled."""

    def cancel(self) -> None:
        """Stop the timer."""


class CallGroup:
    """Calls of one review to one endpoint that share the payload and the deadline."""

    __slots__ = (
        "after",
        "calls",
        "deadline",
        "endpoint",
        "expires_at",
        "first_started_at",
        "followers",
        "has_siblings",
        "hedge_peer",
        "hedge_timer",
        "is_second_attempt",
        "mode",
        "namespace_json",
        "number",
        "observer",
        "open_count",
        "started_at",
        "timeout_s",
        "transport",
        "was_sent",
    )

    def __init__(
        self,
        observer: CallObserver,
        endpoint: Endpoint,
        namespace_json: bytes,
        started_at: float,
        deadline: Deadline,
    ) -> None:
        self.observer = observer
        self.endpoint = endpoint
        self.mode: Mode = "Enforce"
        """The mode of all its calls. Calls that are not enforced do not affect others: they make room for
        them, and their failures do not count against the endpoint."""
        self.namespace_json = namespace_json
        self.started_at = self.first_started_at = started_at
        """When the group was created, and when the first attempt was: seconds on the monotonic clock."""
        self.deadline = deadline
        self.expires_at = deadline.at
        """The instant of the deadline, for the timer wheel."""
        self.calls: list[Call | None] = []
        """At most ``MAX_CALLS``; None where a call has ended."""
        self.open_count = 0
        """How many calls have not ended."""
        self.transport: Transport | None = None
        """None before the submission."""
        self.number = 0
        """Number of the group on its stream; 0 before it is written."""
        self.was_sent = False
        """Whether the worker may have received any of the calls."""
        self.is_second_attempt = False
        """Whether this is a retry or a hedge."""
        self.hedge_peer: CallGroup | None = None
        """The group with the same calls at another endpoint, while both are open. The observer clears it."""
        self.hedge_timer: HedgeTimer | None = None
        self.after: Call | None = None
        """The call that leaves the object for these calls. None if the payload has it."""
        self.timeout_s = deadline.budget_s
        """Timeout of the calls, which begin when ``after`` has ended. The deadline is that of the review
        until then."""
        self.has_siblings = False
        """Whether it was made together with other groups, which share its message if their backend is the
        same."""
        self.followers: list[CallGroup] = []
        """Groups with calls after calls of this group, which are sent in the same message."""

    @property
    def is_enforced(self) -> bool:
        """Whether the calls are of webhooks in the mode Enforce."""
        return self.mode == "Enforce"

    def expire(self) -> None:
        """End the open calls because the deadline has passed."""
        expired = [(index, call) for index, call in enumerate(self.calls) if call is not None]
        for index, _ in expired:
            self.endpoint.withdraw(self, index, "DEADLINE_EXCEEDED")
        failure = failed_deadline(self.deadline)
        self.observer.on_verdicts({self: [(call, failure) for _, call in expired]})


def with_followers(group: CallGroup) -> list[CallGroup]:
    """Return *group* and all groups of its chains, each behind the one that it follows."""
    groups = [group]
    for member in groups:
        groups += member.followers
    return groups


def open_calls(group: CallGroup) -> Iterator[Call]:
    """Yield the open calls of *group* and of all groups of its chains."""
    for member in with_followers(group):
        for call in member.calls:
            if call is not None:
                yield call


class InFlightCalls:
    """The calls in flight at one endpoint, up to its ``maxInFlight``."""

    def __init__(self, max_in_flight: int, timers: TimerWheel) -> None:
        self.free = max_in_flight
        """How many more calls may be in flight."""
        self.groups: dict[CallGroup, None] = {}
        """Submitted groups with open calls, the oldest first."""
        self._ignorable: dict[CallGroup, None] = {}
        """Groups with calls of webhooks with failurePolicy Ignore."""
        self._not_enforced: dict[CallGroup, None] = {}
        """Groups whose mode is not Enforce."""
        self._max_in_flight = max_in_flight
        self._timers = timers
        self._idle: asyncio.Event | None = None

    @property
    def count(self) -> int:
        """How many calls are in flight."""
        return self._max_in_flight - self.free

    def reserve(self, group: CallGroup, call: Call) -> None:
        """Add *call* to *group*, which is not submitted yet; from now on the call counts as in flight."""
        group.calls.append(call)
        group.open_count += 1
        self.free -= 1
        if group.mode != "Enforce":
            self._not_enforced[group] = None
        elif call.invocation.webhook.failure_policy == "Ignore":
            self._ignorable[group] = None

    def enter(self, group: CallGroup) -> None:
        """Start the deadline of *group*, which is submitted now."""
        self._timers.add(group)
        self.groups[group] = None

    def restart(self, group: CallGroup, now: float, deadline: Deadline) -> None:
        """Start the calls of *group*, whose ``after`` has ended *now*, with their own *deadline*."""
        group.started_at = group.first_started_at = now
        group.deadline = deadline
        if group in self.groups:
            self._timers.remove(group)
            group.expires_at = deadline.at
            self._timers.add(group)

    def release(self, group: CallGroup, indices: Collection[int]) -> None:
        """Remove open calls of *group*, which have ended."""
        for index in indices:
            group.calls[index] = None
        self.free += len(indices)
        group.open_count -= len(indices)
        if not group.open_count:
            self._timers.remove(group)
            self.groups.pop(group, None)
            if self._ignorable:
                self._ignorable.pop(group, None)
            if self._not_enforced:
                self._not_enforced.pop(group, None)
            if group.hedge_timer is not None:
                group.hedge_timer.cancel()
        if self._idle is not None and self.free == self._max_in_flight:
            self._idle.set()

    @property
    def is_half_full(self) -> bool:
        """Whether so many calls are in flight that none may be added in the mode Shadow."""
        return 2 * self.free <= self._max_in_flight

    def shed(self, failure: Failed, sheds: Sheds) -> bool:
        """Make room: end a call that *sheds* allows to end; return False if there is none.

        Its observer gets *failure* in a later iteration of the loop, because the caller is not reentrant.
        """
        kinds = {"None": (), "NotEnforced": (self._not_enforced,)}
        for groups in kinds.get(sheds, (self._not_enforced, self._ignorable)):
            while groups:
                group = next(iter(groups))
                for index, call in enumerate(group.calls):
                    if call is not None and (
                        groups is self._not_enforced or call.invocation.webhook.failure_policy == "Ignore"
                    ):
                        group.endpoint.withdraw(group, index, "CANCELLED")
                        asyncio.get_running_loop().call_soon(
                            group.observer.on_verdicts, {group: [(call, failure)]}
                        )
                        return True
                groups.pop(group, None)
        return False

    async def wait_until_idle(self, grace_s: float) -> None:
        """Wait up to *grace_s* seconds until no call is in flight."""
        if self.count:
            self._idle = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace_s)
