"""The deadline of a review or of a call: an instant, together with the budget that it came from."""

from __future__ import annotations

from typing import Final


class Deadline:
    """The instant by which work must end. Immutable; slots, because every review makes several."""

    __slots__ = ("at", "budget_s")

    def __init__(self, at: float, budget_s: float) -> None:
        """*at* is in seconds on the monotonic clock; *budget_s* is the whole time, which messages name."""
        self.at: Final = at
        self.budget_s: Final = budget_s

    @classmethod
    def after(cls, budget_s: float, start: float) -> Deadline:
        """Return the deadline *budget_s* seconds after the instant *start*."""
        return cls(start + budget_s, budget_s)

    def capped(self, timeout_s: float, now: float) -> Deadline:
        """Return the deadline of a call that starts *now*: its own timeout, or this deadline if earlier."""
        return Deadline(min(self.at, now + timeout_s), min(self.budget_s, timeout_s))

    def has_passed(self, now: float) -> bool:
        """Whether no time is left."""
        return now >= self.at

    def remaining_s(self, now: float) -> float:
        """Return the seconds left; negative after the deadline."""
        return self.at - now
