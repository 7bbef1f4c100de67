"""Calls in flight: those of one review to one worker, in one slot of a table and one entry of the timer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from gateway.dispatch.verdicts import failed_deadline, failed_status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.core.call import Call
    from gateway.core.deadline import Deadline
    from gateway.core.verdict import Failed, Verdict
    from gateway.dispatch.backends import Endpoint
    from gateway.dispatch.rpc import CallStatus

MAX_CALLS: Final = 64
"""In one slot: as many as have room in the low bits of an id on the stream."""


class Transport(Protocol):
    """What takes calls to the worker: a stream, or calls of their own."""

    def submit(self, group: CallGroup) -> None:
        """Send the calls that are still wanted."""

    def withdraw(self, group: CallGroup, index: int) -> None:
        """Forget a call, and tell the worker that its answer is no longer wanted."""


class CallObserver(Protocol):
    """Who wants the verdicts. For each call of a slot one of the first two is called, and at most once."""

    def on_verdict(self, group: CallGroup, call: Call, verdict: Verdict) -> None:
        """Take the verdict of a call."""

    def retry(self, group: CallGroup, calls: Sequence[Call], failure: Failed, *, may_reuse: bool) -> None:
        """Take back calls that were lost with the worker; *failure* is the verdict if nobody else is asked.

        The same address may be asked again if *may_reuse*: a new connection may lead to another worker.
        """

    def hedge(self, group: CallGroup) -> int:
        """Ask another endpoint too, and return for how many calls; the first answer counts."""


class HedgeTimer(Protocol):
    """What is set while calls are out."""

    def cancel(self) -> None:
        """Have it not strike."""


class CallGroup:
    """Calls that show one payload to one worker and have one deadline, on their way there and back."""

    __slots__ = (
        "calls",
        "deadline",
        "endpoint",
        "expires_at",
        "first_started",
        "hedge_peer",
        "hedge_timer",
        "hedge_timer",
        "is_second_attempt",
        "namespace_json",
        "number",
        "observer",
        "open_count",
        "started",
        "transport",
        "was_sent",
    )

    def __init__(
        self,
        observer: CallObserver,
        endpoint: Endpoint,
        namespace_json: bytes,
        started: float,
        deadline: Deadline,
    ) -> None:
        self.observer = observer
        self.endpoint = endpoint
        self.namespace_json = namespace_json
        self.started = self.first_started = started
        """When this endpoint was asked, and when the first one was: seconds on the clock of
        ``TimerWheel.now``, as is the deadline."""
        self.deadline = deadline
        self.expires_at = deadline.at
        """The same instant again, for the timer wheel."""
        self.calls: list[Call | None] = []
        """At most ``MAX_CALLS``; None where a call has ended."""
        self.open_count = 0
        """How many have not ended."""
        self.transport: Transport | None = None
        """None before they were submitted."""
        self.number = 0
        """On the stream that carries them; 0 before they were written."""
        self.was_sent = False
        """Whether the worker may have seen any of them."""
        self.is_second_attempt = False
        """Whether another endpoint was asked before."""
        self.hedge_peer: CallGroup | None = None
        """The slot of the same calls at another endpoint, where both are asked. The observer undoes it."""
        self.hedge_timer: HedgeTimer | None = None
        """What has the calls asked twice after a while."""

    def add(self, call: Call) -> None:
        """Add a call, before the submission."""
        self.calls.append(call)
        self.open_count += 1

    def expire(self) -> None:
        """End the calls because their deadline struck."""
        struck = [(index, call) for index, call in enumerate(self.calls) if call is not None]
        for index, _ in struck:
            self.endpoint.withdraw(self, index, "DEADLINE_EXCEEDED")
        failure = failed_deadline(self.deadline)
        for _, call in struck:
            self.observer.on_verdict(self, call, failure)


class BackoffTransport:
    """Takes calls while the worker may not be called upon again yet: they fail as those before them did."""

    def __init__(self, retry: Callable[[CallGroup, Failed, str], None], why: CallStatus) -> None:
        """Give calls back to *retry*; *why* is how the ones before them ended."""
        self._retry = retry
        self._why = why

    def submit(self, group: CallGroup) -> None:
        """Fail the calls; not before this has returned, since whoever asks is in the middle of something."""
        asyncio.get_running_loop().call_soon(self._fail, group)

    def withdraw(self, group: CallGroup, index: int) -> None:
        """Forget a call."""

    def _fail(self, group: CallGroup) -> None:
        self._retry(group, failed_status(self._why.code, self._why.details), self._why.code)
