"""A finished review, as its observers get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from gateway.core.decision import Decision
    from gateway.core.evaluation import Evaluation
    from gateway.core.matching import Selection


class Origin(NamedTuple):
    """The HTTP request of a review, as far as records name it."""

    target: bytes
    """The request target: path and query, as sent."""
    traceparent: bytes | None = None
    """The header ``traceparent`` as sent, which is not checked yet. Source: W3C Trace Context."""


NO_ORIGIN: Final = Origin(b"")
"""Of a review that came by no HTTP request."""


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
