"""A call in flight: a slot in a table, an entry in the timer, and whom to tell. Nothing else per call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gateway.dispatch.verdicts import failed_deadline

if TYPE_CHECKING:
    from gateway.core.call import Call
    from gateway.core.verdict import Verdict


class Carrier(Protocol):
    """What carries a call: a stream, or the unary method of an endpoint."""

    def withdraw(self, pending: Pending, code: str) -> None:
        """Tell the worker that the answer is no longer wanted; *code* is the gRPC status for the metrics."""


class Asker(Protocol):
    """Who wants the verdict."""

    def answered(self, pending: Pending, verdict: Verdict) -> None:
        """Take the verdict of a call; called at most once for each."""


class Pending:
    """One call on its way to a worker and back."""

    __slots__ = ("asker", "call", "carrier", "deadline", "id", "namespace_json", "started", "timeout_s")

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
        self.carrier: Carrier | None = None
        """None once the call has ended."""
        self.id = 0
        """Number on the carrier."""

    def settle(self, verdict: Verdict) -> None:
        """End the call with *verdict*."""
        self.carrier = None
        self.asker.answered(self, verdict)

    def expire(self) -> None:
        """End the call because its deadline struck."""
        carrier = self.carrier
        if carrier is not None:
            carrier.withdraw(self, "DEADLINE_EXCEEDED")
            self.settle(failed_deadline(self.timeout_s))
