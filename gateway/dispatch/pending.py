"""Calls in flight: those of one review to one worker, in one slot of a table and one entry of the timer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from gateway.dispatch.verdicts import failed_deadline

if TYPE_CHECKING:
    from gateway.core.call import Call
    from gateway.core.verdict import Verdict
    from gateway.dispatch.endpoint import Endpoint

MAX_CALLS: Final = 64
"""In one slot: as many as have room in the low bits of an id on the stream."""


class Carrier(Protocol):
    """What takes calls to the worker: a stream, or calls of their own."""

    def submit(self, pending: Pending) -> None:
        """Send the calls that are still wanted."""

    def withdraw(self, pending: Pending, index: int) -> None:
        """Forget a call, and tell the worker that its answer is no longer wanted."""


class Asker(Protocol):
    """Who wants the verdicts."""

    def answered(self, pending: Pending, call: Call, verdict: Verdict) -> None:
        """Take the verdict of a call; called at most once for each."""


class Pending:
    """Calls that show one payload to one worker and have one deadline, on their way there and back."""

    __slots__ = (
        "asker",
        "calls",
        "carrier",
        "deadline",
        "endpoint",
        "namespace_json",
        "number",
        "open",
        "started",
        "timeout_s",
    )

    def __init__(
        self,
        asker: Asker,
        endpoint: Endpoint,
        namespace_json: bytes,
        started: float,
        limits_s: tuple[float, float],
    ) -> None:
        self.asker = asker
        self.endpoint = endpoint
        self.namespace_json = namespace_json
        self.started = started
        """Seconds on the clock of ``Deadlines.now``, as is the deadline."""
        self.deadline, self.timeout_s = limits_s
        """The deadline, and the seconds that a message names when it strikes."""
        self.calls: list[Call | None] = []
        """At most ``MAX_CALLS``; None where a call has ended."""
        self.open = 0
        """How many have not ended."""
        self.carrier: Carrier | None = None
        """None before they were submitted."""
        self.number = 0
        """On the stream that carries them; 0 before they were written."""

    def add(self, call: Call) -> None:
        """Add a call, before the submission."""
        self.calls.append(call)
        self.open += 1

    def expire(self) -> None:
        """End the calls because their deadline struck."""
        struck = [(index, call) for index, call in enumerate(self.calls) if call is not None]
        for index, _ in struck:
            self.endpoint.withdraw(self, index, "DEADLINE_EXCEEDED")
        failure = failed_deadline(self.timeout_s)
        for _, call in struck:
            self.asker.answered(self, call, failure)
