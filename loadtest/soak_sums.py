"""What has to add up when all is quiet: what clients saw, what the gateway counted, what workers saw.

Each sum is two numbers that come from different places and have to be the same to the last one. A review that
was sent whole is *answered* or *withdrawn*, since its client went away. A call that was made has ended with a
verdict (``OK``), at its deadline, withdrawn (``CANCELLED``), or *lost* with a worker's connection. One that
is lost, or whose worker is silent, is asked again of the other worker: a call more, of which one comes to
nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families

from loadtest.lines import Line
from loadtest.soak_mix import DENIED, FAILED, KINDS
from loadtest.soak_worker import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loadtest.soak_load import Tally
    from loadtest.soak_mix import Kind

_PREFIX: Final = "admission_gateway_"
EXPIRED: Final = "504"
"""Code of a webhook that met its deadline."""
GIVEN_UP: Final = "503"
"""Code of one whose call was lost with its worker when there was no time left to ask the other."""
TARGET: Final = "sums"
_TYPES: Final = {"mutate": "admit", "validate": "validating"}


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


@dataclass(frozen=True, slots=True)
class Sum:
    """Two numbers that have to be the same, or the first not above the second."""

    text: str
    found: int
    expected: int
    may_be_less: bool = False

    @property
    def off(self) -> int:
        """By how much it is not so."""
        return max(0, self.found - self.expected) if self.may_be_less else abs(self.found - self.expected)


def sums(series: Series, tally: Tally, workers: tuple[int, int]) -> list[Sum]:
    """Return all sums, after a run in which clients counted *tally*.

    Args:
        series: A scrape from when all was quiet; nothing was counted before the run.
        tally: Of all clients.
        workers: Calls that workers saw, all together, and those of them that they answered.
    """
    withdrawn = series("reviews_withdrawn_total")
    answered = Counter(tally.answered)
    for kind in KINDS:
        if kind.leaves == "after":
            # The others had an answer on its way when their clients left.
            answered[kind.name] += tally.left[kind.name] - withdrawn
    return [
        *_reviews(series, tally, answered),
        *_webhooks(series, answered),
        *_calls(series, tally, workers, answered),
    ]


def _reviews(series: Series, tally: Tally, answered: Mapping[str, int]) -> list[Sum]:
    answers, withdrawn = series("review_duration_seconds_count"), series("reviews_withdrawn_total")
    refused = series("requests_refused_total")
    by_labels: Counter[tuple[str, bool]] = Counter()
    for kind in KINDS:
        by_labels[_TYPES[kind.phase], kind.allowed] += answered[kind.name]
    return [
        Sum(
            "reviews: answered, withdrawn or refused; sent", answers + withdrawn + refused, tally.sent.total()
        ),
        Sum("reviews refused; told so", refused, tally.refused.total()),
        Sum("reviews withdrawn; left by their clients", withdrawn, tally.left.total(), may_be_less=True),
        *(
            Sum(
                f"answers, {kind}, allowed: {str(allowed).lower()}",
                series("review_duration_seconds_count", type=kind, allowed=str(allowed).lower()),
                number,
            )
            for (kind, allowed), number in by_labels.items()
            if number
        ),
        Sum("reviews in flight at the end", series("reviews_in_flight"), 0),
    ]


def _webhooks(series: Series, answered: Mapping[str, int]) -> list[Sum]:
    asked = _webhooks_of(answered, lambda _: True)
    return [
        Sum("webhooks asked for answers, by requests", series("webhook_requests_total"), asked),
        Sum(
            "webhooks asked for answers, by durations",
            series("webhook_admission_duration_seconds_count"),
            asked,
        ),
        Sum(
            "webhooks that denied",
            series("webhook_rejections_total", error_type="no_error"),
            sum(answered[kind.name] for kind in KINDS if kind.code == DENIED),
        ),
        Sum(
            "webhooks that failed closed",
            series("webhook_rejections_total", error_type="calling_webhook_error"),
            _webhooks_of(answered, lambda kind: kind.code == FAILED),
        ),
        Sum(
            "webhooks that failed open",
            series("webhook_fail_open_total"),
            _webhooks_of(answered, lambda kind: kind.failure_policy == "Ignore"),
        ),
    ]


def _calls(series: Series, tally: Tally, workers: tuple[int, int], answered: Mapping[str, int]) -> list[Sum]:
    code = series.by("code", "worker_calls_total")
    made = code.total()
    verdicts, late, cancelled = (code.pop(name, 0) for name in ("OK", "DEADLINE_EXCEEDED", "CANCELLED"))
    lost = code.total()
    moved, hedged = series("worker_retries_total"), series("worker_hedges_total")
    told = series.by("code", "webhook_requests_total")
    withdrawn, planned = series("reviews_withdrawn_total"), _webhooks_of(answered, _is_late)
    seen, said = workers
    expired, given_up = told.pop(EXPIRED, 0), told.pop(GIVEN_UP, 0)
    return [
        Sum(
            "calls made; asked, moved or hedged",
            made,
            _webhooks_of(tally.sent - tally.refused, lambda _: True) + moved + hedged,
        ),
        Sum("calls with a verdict; verdicts that counted", verdicts, told.total()),
        Sum("webhooks that failed; planned late", expired + given_up, planned),
        Sum(
            "calls without a verdict; late, withdrawn, moved or hedged as planned",
            *(late + cancelled + lost, planned + withdrawn + moved + hedged),
        ),
        Sum("webhooks that met their deadline; calls that did", expired, late, may_be_less=True),
        Sum("calls lost; moved, hedged, or given up", lost, moved + hedged + given_up, may_be_less=True),
        Sum("calls that workers saw; made", seen, made, may_be_less=True),
        Sum("calls with a verdict; that workers answered", verdicts, said, may_be_less=True),
        Sum(
            "calls that workers did not see; withdrawn, lost or moved",
            *(made - seen, cancelled + lost + moved),
            may_be_less=True,
        ),
    ]


def _is_late(kind: Kind) -> bool:
    return NEVER in kind.policies


def _webhooks_of(reviews: Mapping[str, int], chosen: Callable[[Kind], bool]) -> int:
    """Return how many webhooks are asked for *reviews*, by kind, counting those of *chosen* kinds."""
    return sum(reviews[kind.name] * len(kind.policies) for kind in KINDS if chosen(kind))


def line(sum_: Sum) -> Line:
    """Return the acceptance line of *sum_*: off by nothing."""
    wanted = "no more than" if sum_.may_be_less else "the same as"
    remark = f"{sum_.found:,}, {wanted} {sum_.expected:,}"
    name = sum_.text
    return Line(
        TARGET,
        f"{name}: off by",
        *((name,), lambda found: found.numbers[name], "at most", 0),
        remark=lambda _: remark,
    )
