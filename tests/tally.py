"""What became of the reviews of a load."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_TEXTS = 20


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the reviews. Once the load has ended, ``sent == answered + refused + lost``."""

    sent: int = 0
    """Reviews, not requests: one that was refused and sent again is one."""
    answered: int = 0
    """With a right AdmissionReview: allowed + denied + failed."""
    allowed: int = 0
    failed_open: int = 0
    """Those of the allowed that say that a webhook failed."""
    denied: int = 0
    failed: int = 0
    """Denied with code 500: a webhook failed whose failurePolicy is Fail."""
    refused: int = 0
    """HTTP 503 (with ``retry_refused``: to the end)."""
    retried: int = 0
    """Requests that were sent because an earlier one for the same review was refused."""
    lost: int = 0
    """No answer, another status, or the answer to another review."""
    texts: tuple[str, ...] = ()
    """What was said with failures, refusals and losses: distinct, and the first few."""


@dataclass
class Counts:
    """A tally that is being counted."""

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
        """Return what has been counted so far."""
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
