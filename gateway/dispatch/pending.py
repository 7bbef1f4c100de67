"""A call in flight: a slot in a table, an entry in the timer, and whom to tell. Nothing else per call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gateway.dispatch.verdicts import failed_deadline

if TYPE_CHECKING:
    from gateway.core.call import Call
    from gateway.core.verdict import Verdict
    from gateway.dispatch.endpoint import Endpoint


class Carrier(Protocol):
    """What takes a call to the worker: a stream, or calls of their own."""

    def submit(self, pending: Pending) -> None:
        """Send the call."""

    def withdraw(self, pending: Pending) -> None:
        """Forget the call, and tell the worker that its answer is no longer wanted."""


class Asker(Protocol):
    """Who wants the verdict."""

    def answered(self, pending: Pending, verdict: Verdict) -> None:
        """Take the verdict of a call; called at most once for each."""


class Pending:
    """One call on its way to a worker and back."""

    __slots__ = (
        "asker",
        "call",
        "carrier",
        "deadline",
        "endpoint",
        "id",
        "namespace_json",
        "started",
        "timeout_s",
    )

    def __init__(
        self, asker: Asker, call: Call, namespace_json: bytes, started: float, limits_s: tuple[float, float]
    ) -> None:
        self.asker = asker
        self.call = call
        self.namespace_json = namespace_json
        self.started = started
        """Seconds on the clock of ``Deadlines.now``, as is the deadline."""
        self.deadline, self.timeout_s = limits_s
        """The deadline, and the seconds that a message names when it strikes."""
        self.endpoint: Endpoint | None = None
        """Where it counts as in flight; None before it was submitted and once it has ended."""
        self.carrier: Carrier | None = None
        self.id = 0
        """Number on the stream that carries it."""

    def settle(self, verdict: Verdict) -> None:
        """End the call with *verdict*; the endpoint has let go of it."""
        self.asker.answered(self, verdict)

    def expire(self) -> None:
        """End the call because its deadline struck."""
        if self.endpoint is not None:
            self.endpoint.withdraw(self, "DEADLINE_EXCEEDED")
            self.settle(failed_deadline(self.timeout_s))
