"""The outcomes of the reviews of a load."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_TEXTS = 20


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of outcomes. When the load has ended, ``sent == answered + refused + lost``."""

    sent: int = 0
    """Reviews, not requests: a review that was refused and sent again counts once."""
    answered: int = 0
    """With the right AdmissionReview: allowed + denied + failed."""
    allowed: int = 0
    failed_open: int = 0
    """Allowed answers with the annotation of a webhook that failed open."""
    denied: int = 0
    failed: int = 0
    """Denied with code 500: a webhook failed whose failurePolicy is Fail."""
    refused: int = 0
    """HTTP 503; with ``retry_refused`` also after all retries."""
    retried: int = 0
    """Requests that repeat a refused request."""
    lost: int = 0
    """No answer, another status, or the answer to another review."""
    texts: tuple[str, ...] = ()
    """Messages of failures, refusals and losses: the first few different ones."""


@dataclass
class Counts:
    """A tally that is still counted."""

    sent: int = 0
    answered: int = 0
    allowed: int = 0
    failed_open: int = 0
    denied: int = 0
    failed: int = 0
    refused: int = 0
    retried: int = 0
    lost: int = 0
    texts: dict[str, None] = field(default_factory=dict)

    def note(self, text: str) -> None:
        if len(self.texts) < MAX_TEXTS:
            self.texts[text] = None

    def tally(self) -> Tally:
        """Return the counts so far."""
        return Tally(
            sent=self.sent,
            answered=self.answered,
            allowed=self.allowed,
            failed_open=self.failed_open,
            denied=self.denied,
            failed=self.failed,
            refused=self.refused,
            retried=self.retried,
            lost=self.lost,
            texts=tuple(self.texts),
        )
