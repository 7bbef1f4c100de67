"""The answers to the Locust users, the number of planned and sent requests, and the verdict on a run.

A user waits for its answer before it sends again. A user that gets slow answers therefore sends fewer
requests than planned, and the percentiles lack the slow ones (coordinated omission). That is why the planned
requests are counted too. Nothing here imports Locust, which changes the process that imports it.

Source: Kubernetes documentation, "Dynamic Admission Control" (response, failure policy);
kubernetes/apiserver, ``pkg/admission/plugin/webhook/errors/statuserror.go`` for the text of a denial.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from math import floor
from typing import Any, Final

import orjson

DENIED: Final = re.compile(r'admission webhook "[^"]+" denied the request')
UID: Final = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
LONGEST: Final = 300
"""Characters of a message: Locust prints a line for each different message."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a request."""

    problem: str = ""
    """Why it is a failure; empty if it is not."""
    denied: bool = False
    """Whether a policy denied it."""


def of_review(status: int, body: bytes, uid: str) -> Outcome:
    """Return the outcome of a gateway's answer to the review *uid*."""
    if status != 200:
        return Outcome(f"HTTP status {status}")
    try:
        response = orjson.loads(body)["response"]
        found, allowed = response["uid"], response["allowed"]
        code = (response.get("status") or {}).get("code", 0)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Outcome("not an AdmissionReview")
    if found != uid:
        return Outcome("the uid is not that of the review")
    if allowed:
        return Outcome()
    return Outcome(f"failed closed, code {code}") if code >= 500 else Outcome(denied=True)


def of_create(status: int, body: bytes, prefix: str) -> Outcome:
    """Return the outcome of an API server's answer to a create with ``generateName`` *prefix*.

    The Status of a denial has the webhook's code; 500 and above is a gateway that failed closed, or a webhook
    that could not be called. Every other refusal (authorization, validation, quota) may have come before the
    webhooks were called, and is a failure.
    """
    if status in (200, 201, 202):
        return Outcome()
    try:
        document: Any = orjson.loads(body)
        message = str(document["message"])
    except (ValueError, KeyError, TypeError):
        message = body[:LONGEST].decode(errors="replace")
    if status < 500 and DENIED.match(message):
        return Outcome(denied=True)
    # Each different name or uid would be a line of its own in Locust's table.
    message = UID.sub("*", re.sub(re.escape(prefix) + r"[a-z0-9]{5}\b", prefix + "*", message))
    return Outcome(f"HTTP status {status}: {message[:LONGEST]}")


@dataclass(slots=True)
class Schedule:
    """The schedule of one user: *rate* requests a second from *start*, the first at once."""

    rate: float
    start: float
    """Monotonic seconds."""
    end: float | None = None
    sent: int = 0

    def planned(self, now: float) -> int:
        """Return how many requests were due until *now*, or until the user's end.

        A request that was due in the last moment counts if it was sent.
        """
        due = floor(max(0.0, (now if self.end is None else self.end) - self.start) * self.rate)
        return due + (self.sent > due)


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests of one or more processes."""

    planned: int = 0
    sent: int = 0
    denied: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.planned + other.planned, self.sent + other.sent, self.denied + other.denied)


@dataclass(slots=True)
class Plan:
    """The users of this process and, on Locust's master, the last reports of its workers."""

    schedules: list[Schedule] = field(default_factory=list)
    denied: int = 0
    workers: dict[str, Counts] = field(default_factory=dict)
    """By client id."""

    def clear(self) -> None:
        """Remove everything of an earlier run."""
        self.schedules.clear()
        self.workers.clear()
        self.denied = 0

    def join(self, rate: float, now: float) -> Schedule:
        """Return the schedule of a user that starts *now*."""
        self.schedules.append(Schedule(rate, now))
        return self.schedules[-1]

    def close(self, now: float) -> None:
        """End all schedules: no request is due after *now*."""
        for schedule in self.schedules:
            if schedule.end is None:
                schedule.end = now

    def counts(self, now: float) -> Counts:
        """Return the counts until *now*, of this process and of Locust's workers."""
        planned = sum(schedule.planned(now) for schedule in self.schedules)
        here = Counts(planned, sum(schedule.sent for schedule in self.schedules), self.denied)
        return sum(self.workers.values(), here)

    def report(self, now: float) -> dict[str, int]:
        """Return ``counts`` in the form in which a worker sends them."""
        return asdict(self.counts(now))

    def receive(self, worker: str, report: dict[str, Any]) -> None:
        """Replace the last report of *worker*."""
        self.workers[worker] = Counts(**report)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run."""

    p99_ms: float
    failure_ratio: float
    sent_ratio: float


@dataclass(frozen=True, slots=True)
class Found:
    """The results of a run."""

    counts: Counts
    answered: int
    failed: int
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Criterion:
    """One line of the verdict."""

    passed: bool
    text: str

    def __str__(self) -> str:
        return f"{'pass' if self.passed else 'FAIL'}: {self.text}"


def verdict(found: Found, limits: Limits) -> list[Criterion]:
    """Return whether enough was sent, answered without failures, and answered in time.

    A run without an answer fails all three.
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
