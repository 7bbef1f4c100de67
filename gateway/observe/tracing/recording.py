"""The recorded trace of one review: the times of its calls and look-ups, and the trace context of each call.

The ids exist before a call is sent, because the worker continues the trace. The spans are made at the end.

Source: W3C Trace Context, "traceparent Header".
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gateway.pure.core.call import Call

T = TypeVar("T")

MAX_CALLS: Final = 500
"""Calls of one review that have a span; reinvocation and discarded calls can make thousands."""
MAX_LOOK_UPS: Final = 100
_SAMPLED: Final = 1
_KEPT_FLAGS: Final = 3
"""The sampled flag, and that of a random trace id. A party that changes the context clears unknown flags."""


@dataclass(slots=True)
class Repeat:
    """A retry or a hedge of a call."""

    at: float
    endpoint: str
    is_hedge: bool


@dataclass(slots=True)
class RecordedCall:
    """One call: the verdict and further times are in the call itself."""

    span_id: str
    began_at: float
    withdrawn_at: float | None = None
    repeats: list[Repeat] = field(default_factory=list)


@dataclass(slots=True)
class RecordedLookUp:
    """One look-up on the way of a review."""

    name: str
    began_at: float
    ended_at: float | None = None
    """None if it was not complete when the review ended."""


class RecordedTrace:
    """The trace of one review. All times are seconds on the monotonic clock *now*."""

    __slots__ = (
        "_now",
        "_prefix",
        "calls",
        "dropped",
        "ended_at",
        "look_ups",
        "parent_id",
        "span_id",
        "trace_id",
        "traceparent",
    )

    def __init__(self, parent: str, now: Callable[[], float]) -> None:
        """*parent* is the trace context of the request. If it is empty, the review begins a trace."""
        self._now = now
        self.trace_id = parent[3:35] or f"{_random_id(128):032x}"
        self.parent_id = parent[36:52]
        """16 hex digits, or empty if the review is the root."""
        self.span_id = new_span_id()
        self._prefix = f"00-{self.trace_id}-"
        flags = int(parent[53:] or "0", 16) & _KEPT_FLAGS | _SAMPLED
        self.traceparent = f"{self._prefix}{self.span_id}-{flags:02x}"
        self.calls: dict[Call, RecordedCall] = {}
        """In the order of their first attempts."""
        self.dropped = 0
        """Calls beyond ``MAX_CALLS``. Their workers continue the span of the review."""
        self.look_ups: list[RecordedLookUp] = []
        self.ended_at = 0.0
        """When the answer was handed to the connection, or the review failed or was cancelled."""

    def begin(self, call: Call) -> None:
        """Set the trace context of *call*, which is about to be sent."""
        if len(self.calls) >= MAX_CALLS:
            self.dropped += 1
            call.traceparent = self.traceparent
            return
        span_id = new_span_id()
        self.calls[call] = RecordedCall(span_id, self._now())
        call.traceparent = f"{self._prefix}{span_id}{self.traceparent[-3:]}"

    def repeat(self, calls: Iterable[Call | None], endpoint: str, *, is_hedge: bool) -> None:
        """Record a retry or a hedge of *calls*."""
        repeat = Repeat(self._now(), endpoint, is_hedge)
        for call in calls:
            if call is not None and call in self.calls:
                self.calls[call].repeats.append(repeat)

    def withdraw(self, call: Call) -> None:
        """Record that *call* is no longer wanted."""
        if call in self.calls:
            self.calls[call].withdrawn_at = self._now()

    def look_up(self, name: str, on_result: Callable[[T], None]) -> Callable[[T], None]:
        """Record a look-up that begins; return *on_result* as a function that also ends it."""
        if len(self.look_ups) >= MAX_LOOK_UPS:
            return on_result
        recorded = RecordedLookUp(name, self._now())
        self.look_ups.append(recorded)

        def end(result: T) -> None:
            recorded.ended_at = self._now()
            on_result(result)

        return end


def new_span_id() -> str:
    """Return 16 random hex digits, not all 0."""
    return f"{_random_id(64):016x}"


def _random_id(bits: int) -> int:
    return random.getrandbits(bits) or 1
