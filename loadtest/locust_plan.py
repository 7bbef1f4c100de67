"""How many requests the Locust users were to send and did send, and whether a run has passed.

A user waits for its answer before it sends again, so one that meets slow answers sends fewer than its rate
says, and the percentiles lack what it would have met meanwhile (coordinated omission). That is why what was
planned is counted, too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import floor
from typing import Any


@dataclass(slots=True)
class Schedule:
    """One user's: *rate* requests a second from *start* on, the first at once."""

    rate: float
    start: float
    """Monotonic seconds."""
    end: float | None = None
    sent: int = 0

    def planned(self, now: float) -> int:
        """Return how many were due up to *now*, or to the user's end.

        One that was due in the very last moment counts if it was sent.
        """
        due = floor(max(0.0, (now if self.end is None else self.end) - self.start) * self.rate)
        return due + (self.sent > due)


@dataclass(frozen=True, slots=True)
class Counts:
    """What processes planned and did."""

    planned: int = 0
    sent: int = 0
    denied: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.planned + other.planned, self.sent + other.sent, self.denied + other.denied)


@dataclass(slots=True)
class Plan:
    """The users of this process and, on Locust's master, what its workers reported last."""

    schedules: list[Schedule] = field(default_factory=list)
    denied: int = 0
    workers: dict[str, Counts] = field(default_factory=dict)
    """By client id."""

    def clear(self) -> None:
        """Forget an earlier run."""
        self.schedules.clear()
        self.workers.clear()
        self.denied = 0

    def join(self, rate: float, now: float) -> Schedule:
        """Return the schedule of a user that begins *now*."""
        self.schedules.append(Schedule(rate, now))
        return self.schedules[-1]

    def close(self, now: float) -> None:
        """End the schedules that go on: nothing is due after *now*."""
        for schedule in self.schedules:
            if schedule.end is None:
                schedule.end = now

    def counts(self, now: float) -> Counts:
        """Return what was planned and done up to *now*, here and by the workers."""
        planned = sum(schedule.planned(now) for schedule in self.schedules)
        here = Counts(planned, sum(schedule.sent for schedule in self.schedules), self.denied)
        return sum(self.workers.values(), here)

    def report(self, now: float) -> dict[str, int]:
        """Return ``counts`` as a worker sends them."""
        return asdict(self.counts(now))

    def receive(self, worker: str, report: dict[str, Any]) -> None:
        """Take the report of *worker*, which replaces its last."""
        self.workers[worker] = Counts(**report)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run must keep to."""

    p99_ms: float
    failure_ratio: float
    sent_ratio: float


@dataclass(frozen=True, slots=True)
class Found:
    """What a run came to."""

    counts: Counts
    answered: int
    failed: int
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Criterion:
    """A line of the verdict."""

    passed: bool
    text: str

    def __str__(self) -> str:
        return f"{'pass' if self.passed else 'FAIL'}: {self.text}"


def verdict(found: Found, limits: Limits) -> list[Criterion]:
    """Return whether a run was sent as planned, answered, and answered in time.

    A run without an answer passes nothing.
    """
    counts = found.counts
    sent_ratio = counts.sent / counts.planned if counts.planned else 0.0
    failure_ratio = found.failed / found.answered if found.answered else 0.0
    behind = "" if sent_ratio >= limits.sent_ratio else "; too much load, so the percentiles are too good"
    return [
        Criterion(
            counts.sent > 0 and sent_ratio >= limits.sent_ratio,
            f"{counts.sent} of {counts.planned} planned requests were sent, {sent_ratio:.2%} "
            f"(at least {limits.sent_ratio:.2%}){behind}",
        ),
        Criterion(
            found.answered > 0 and failure_ratio <= limits.failure_ratio,
            f"{found.failed} of {found.answered} answers are failures, {failure_ratio:.2%} "
            f"(at most {limits.failure_ratio:.2%}); {counts.denied} are denials",
        ),
        Criterion(
            found.answered > 0 and found.p99_ms <= limits.p99_ms,
            f"p99 {found.p99_ms:g} ms (at most {limits.p99_ms:g} ms)",
        ),
    ]
