"""A finished review, as its observers get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.pure.core.deadline import Deadline
    from gateway.pure.core.decision import Decision
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.matching import Selection
    from gateway.pure.core.trace import Trace

    Review = Callable[
        [Selection, bytes, Deadline, Callable[["Answer"], None], Callable[[Exception], None], "Origin"],
        Callable[[], None],
    ]
    """Reviews a request and returns a function that cancels this, see ``gateway.engine.admit.Admission``."""


class Origin(NamedTuple):
    """The HTTP request of a review, as far as records name it."""

    target: bytes
    """The request target: path and query, as sent."""
    trace: Trace | None = None
    """None if the request has no valid trace context, and the gateway begins no trace."""
    api_group: str | None = None
    """The only API group that the caller may send reviews of. None for any."""

    @property
    def traceparent(self) -> str:
        """The trace context of the review, see ``read_traceparent``; empty if there is none."""
        return self.trace.traceparent if self.trace is not None else ""


NO_ORIGIN: Final = Origin(b"")
"""The origin of a review that did not come by HTTP."""


class Answer(NamedTuple):
    """The bytes that answer a review, and all that led to them."""

    body: bytes
    """JSON of an AdmissionReview."""
    decision: Decision
    evaluation: Evaluation
    selection: Selection
    """The webhooks that the path selects."""
    origin: Origin
    started_at: float
    """When the review began: seconds on the monotonic clock."""
