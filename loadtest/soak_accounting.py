"""The checks of the soak: counts of clients, gateway and workers that must add up, and memory.

A review that was sent completely is *answered*, *refused*, or *cancelled* because its client left. A call
ends with a verdict (``OK``), at its deadline (``DEADLINE_EXCEEDED``), cancelled (``CANCELLED``), or is *lost*
with the worker's connection (any other code). A call that is lost, or whose worker is silent, is sent again
to the other worker: one more call, of which one has no verdict.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families

from loadtest.outcomes import FAILED
from loadtest.soak_clients import DENIED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loadtest.soak_clients import Kind, Tally

_PREFIX: Final = "admission_gateway_"
EXPIRED: Final = "504"
"""Code of a webhook whose call met its deadline."""
GIVEN_UP: Final = "503"
"""Code of a webhook whose call was lost when too little time was left for a retry."""
_TYPES: Final = {"mutate": "admit", "validate": "validating"}


@dataclass(frozen=True, slots=True)
class Check:
    """A number that must be equal to a limit, or at most the limit."""

    text: str
    found: float
    limit: float
    is_bound: bool = False
    """Whether *found* may be less than *limit*."""

    @property
    def is_met(self) -> bool:
        """Whether the check passes."""
        return self.found <= self.limit if self.is_bound else self.found == self.limit

    @property
    def row(self) -> tuple[str, str, str, str]:
        """The cells of the report."""
        wanted = f"{'at most ' if self.is_bound else ''}{self.limit:,.10g}"
        return self.text, f"{self.found:,.10g}", wanted, "pass" if self.is_met else "FAIL"


# -- memory ---------------------------------------------------------------------------------------

MAX_GROWTH_PERCENT: Final = 2.0
"""Over the last half of the reviews."""
MIN_SAMPLES: Final = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident memory at one moment, in MiB."""

    reviews: int
    """Ended so far."""
    gateway_mib: float
    worker_mib: float


def growth_percent(samples: Sequence[Sample]) -> float:
    """Return by how many percent the gateway's memory grew over the last half of the reviews.

    The growth is the median of the slopes between all pairs of samples (Theil-Sen), so that one sample alone
    decides nothing.
    """
    half = [sample for sample in samples if sample.reviews >= samples[-1].reviews / 2]
    slope = median(
        (later.gateway_mib - earlier.gateway_mib) / (later.reviews - earlier.reviews)
        for earlier, later in combinations(half, 2)
    )
    return slope * (half[-1].reviews - half[0].reviews) / half[0].gateway_mib * 100


def memory_checks(
    samples: Sequence[Sample], max_mib: float, max_idle_mib: float | None = None
) -> list[Check]:
    """Return the checks of the gateway's memory: its maximum and its growth; none with too few samples.

    With *max_idle_mib* also its memory before the first review.
    """
    if len(samples) < MIN_SAMPLES:
        return []
    most = max(sample.gateway_mib for sample in samples)
    idle = Check(
        "memory of the idle gateway process, MiB",
        *(round(samples[0].gateway_mib, 1), max_idle_mib or 0.0),
        is_bound=True,
    )
    return [
        *([idle] if max_idle_mib else []),
        Check("memory of the gateway process, MiB", round(most, 1), max_mib, is_bound=True),
        Check(
            "its growth over the last half, percent",
            *(round(growth_percent(samples), 2), MAX_GROWTH_PERCENT),
            is_bound=True,
        ),
    ]


# -- counts ---------------------------------------------------------------------------------------


class Series:
    """The samples of one scrape."""

    def __init__(self, exposition: str) -> None:
        self._samples = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(exposition)
            for sample in family.samples
        ]

    def __call__(self, name: str, **labels: str) -> int:
        """Return the sum of all samples of ``admission_gateway_NAME`` with *labels*."""
        return round(
            sum(
                value
                for found, its, value in self._samples
                if found == _PREFIX + name and labels.items() <= its.items()
            )
        )

    def by(self, label: str, name: str) -> Counter[str]:
        """Return the sums of ``admission_gateway_NAME`` by the values of *label*."""
        found: Counter[str] = Counter()
        for its_name, its, value in self._samples:
            if its_name == _PREFIX + name:
                found[its[label]] += round(value)
        return found


def count_checks(series: Series, tally: Tally, kinds: Sequence[Kind], calls: tuple[int, int]) -> list[Check]:
    """Return the checks of all counts.

    Args:
        series: A scrape after the last review; nothing was counted before the run.
        tally: Of all clients.
        kinds: Of the reviews.
        calls: Calls that all workers together received, and answered.
    """
    cancelled = series("reviews_cancelled_total")
    answered = Counter(tally.answered)
    for kind in kinds:
        if kind.leaves == "after":
            # The answers to the others were under way when their clients left.
            answered[kind.name] += tally.abandoned[kind.name] - cancelled
    return [
        *_reviews(series, tally, kinds, answered),
        *_webhooks(series, kinds, answered),
        *_calls(series, tally, kinds, calls, answered),
    ]


def _reviews(series: Series, tally: Tally, kinds: Sequence[Kind], answered: Mapping[str, int]) -> list[Check]:
    answers, cancelled = series("review_duration_seconds_count"), series("reviews_cancelled_total")
    refused = series("requests_refused_total")
    by_labels: Counter[tuple[str, bool]] = Counter()
    for kind in kinds:
        by_labels[_TYPES[kind.phase], kind.allowed] += answered[kind.name]
    return [
        Check(
            "reviews answered, cancelled or refused; sent", answers + cancelled + refused, tally.sent.total()
        ),
        Check("reviews refused; answered with 503", refused, tally.refused.total()),
        Check(
            "reviews cancelled; abandoned by their clients", cancelled, tally.abandoned.total(), is_bound=True
        ),
        *(
            Check(
                f"answers, {type_}, allowed: {str(allowed).lower()}; seen by clients",
                series("review_duration_seconds_count", type=type_, allowed=str(allowed).lower()),
                number,
            )
            for (type_, allowed), number in by_labels.items()
            if number
        ),
        Check("reviews in flight at the end", series("reviews_in_flight"), 0),
    ]


def _webhooks(series: Series, kinds: Sequence[Kind], answered: Mapping[str, int]) -> list[Check]:
    def of(selected: Callable[[Kind], bool]) -> int:
        return _webhooks_of(answered, kinds, selected)

    return [
        Check("webhooks called, by requests; by answers", series("webhook_requests_total"), of(_any)),
        Check(
            "webhooks called, by durations; by answers",
            series("webhook_admission_duration_seconds_count"),
            of(_any),
        ),
        Check(
            "webhooks that denied; denied answers",
            series("webhook_rejections_total", error_type="no_error"),
            sum(answered[kind.name] for kind in kinds if kind.code == DENIED),
        ),
        Check(
            "webhooks that failed closed; failed answers",
            series("webhook_rejections_total", error_type="calling_webhook_error"),
            of(lambda kind: kind.code == FAILED),
        ),
        Check(
            "webhooks that failed open; answers of that kind",
            series("webhook_fail_open_total"),
            of(lambda kind: kind.failure_policy == "Ignore"),
        ),
    ]


def _calls(
    series: Series,
    tally: Tally,
    kinds: Sequence[Kind],
    calls: tuple[int, int],
    answered: Mapping[str, int],
) -> list[Check]:
    code = series.by("code", "worker_calls_total")
    made = code.total()
    verdicts, late, cancelled_calls = (code.pop(name, 0) for name in ("OK", "DEADLINE_EXCEEDED", "CANCELLED"))
    lost = code.total()
    retried, hedged = series("worker_retries_total"), series("worker_hedges_total")
    webhooks = series.by("code", "webhook_requests_total")
    expired, given_up = webhooks.pop(EXPIRED, 0), webhooks.pop(GIVEN_UP, 0)
    cancelled_reviews = series("reviews_cancelled_total")
    planned = _webhooks_of(answered, kinds, lambda kind: kind.times_out)
    first_calls = _webhooks_of(tally.sent - tally.refused, kinds, _any)
    received, answered_calls = calls
    return [
        Check("calls; first calls, retries and hedges", made, first_calls + retried + hedged),
        Check("calls with a verdict; webhooks with a verdict", verdicts, webhooks.total()),
        Check("webhooks that failed; that never answer", expired + given_up, planned),
        Check(
            "calls without a verdict; never answered, cancelled, retried or hedged",
            *(late + cancelled_calls + lost, planned + cancelled_reviews + retried + hedged),
        ),
        Check("webhooks at their deadline; calls at their deadline", expired, late, is_bound=True),
        Check("calls lost; retried, hedged or given up", lost, retried + hedged + given_up, is_bound=True),
        Check("calls that workers received; calls", received, made, is_bound=True),
        Check("calls with a verdict; that workers answered", verdicts, answered_calls, is_bound=True),
        Check(
            "calls that workers did not receive; cancelled, lost or retried",
            *(made - received, cancelled_calls + lost + retried),
            is_bound=True,
        ),
    ]


def _any(_: Kind) -> bool:
    return True


def _webhooks_of(reviews: Mapping[str, int], kinds: Sequence[Kind], selected: Callable[[Kind], bool]) -> int:
    """Return the number of webhooks that *reviews*, counts by kind, call; only of *selected* kinds."""
    return sum(reviews[kind.name] * len(kind.policies) for kind in kinds if selected(kind))
