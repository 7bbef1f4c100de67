"""The trace of a review: W3C Trace Context in, and the trace context of each call out.

Nothing here records or exports; ``gateway.observe.tracing`` does, where that is configured.

Source: W3C Trace Context (https://www.w3.org/TR/trace-context/), "traceparent Header".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gateway.pure.core.call import Call

T = TypeVar("T")

_TRACEPARENT: Final = re.compile(
    rb"(?!ff)([0-9a-f]{2})(-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?", re.DOTALL
)
"""Later versions may append fields after the flags."""


def read_traceparent(header: bytes) -> str:
    """Return the trace context in the value of a header ``traceparent``; empty if it is invalid.

    It is of version 00: ``00-TRACE-PARENT-FLAGS`` with 32, 16 and 2 hex digits.
    """
    found = _TRACEPARENT.fullmatch(header)
    if found is None or (found[1] == b"00" and found[3] is not None):
        return ""
    return "00" + found[2].decode("ascii")


def trace_id_of(traceparent: str) -> str:
    """Return the 32 hex digits of the trace."""
    return traceparent[3:35]


def is_sampled(traceparent: str) -> bool:
    """Whether the sampled flag is set."""
    return traceparent[-1] in "13579bdf"


class Trace(Protocol):
    """The trace of one review. Its methods are called at the events of the review."""

    traceparent: str
    """The trace context of the review, see ``read_traceparent``."""

    def begin(self, call: Call) -> None:
        """A call is about to be sent: set its trace context."""

    def repeat(self, calls: Iterable[Call | None], endpoint: str, *, is_hedge: bool) -> None:
        """Calls are sent to another endpoint too, or again. None stands for no call."""

    def withdraw(self, call: Call) -> None:
        """A call is no longer wanted, and was cancelled."""

    def look_up(self, name: str, on_result: Callable[[T], None]) -> Callable[[T], None]:
        """A look-up begins; return *on_result* as a function that also ends the look-up."""


def passed_on(traceparent: str) -> PassedOn | None:
    """Return the trace of a review that is not recorded; None without a *traceparent*."""
    return PassedOn(traceparent) if traceparent else None


class PassedOn:
    """A trace that is not recorded: workers get the trace context of the client's request."""

    __slots__ = ("traceparent",)

    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def begin(self, call: Call) -> None:
        """Set the trace context of the call."""
        call.traceparent = self.traceparent

    def repeat(self, calls: Iterable[Call | None], endpoint: str, *, is_hedge: bool) -> None:
        """Do nothing."""

    def withdraw(self, call: Call) -> None:
        """Do nothing."""

    def look_up(self, name: str, on_result: Callable[[T], None]) -> Callable[[T], None]:
        """Return *on_result*."""
        return on_result
