"""All metrics.

Names, types and labels are a public interface (docs/metrics.md). No label has a value of a
request's object: names come from the configuration, operations from a fixed list.

Source: k8s.io/apiserver admission/metrics, whose series these mirror under the gateway's own prefix.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import Counter as LockedCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gateway.core.verdict import Allowed, Denied, DryRunRefused, Failed, FailureReason
from gateway.telemetry.series import Counts, Timings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

    from gateway.core.answer import Answer
    from gateway.core.conditions import Excluded
    from gateway.core.matching import Invocation
    from gateway.core.outcome import Outcome
    from gateway.core.verdict import Verdict
    from gateway.telemetry.series import Timing

PREFIX: Final = "admission_gateway_"

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30)
"""Up to 30 s, the longest time of a review: shorter histograms would hide the tail."""
QUEUE_SECONDS: Final = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

_TYPES: Final = {"mutate": "admit", "validate": "validating"}
_MAX_CODE: Final = 600
_KEPT_INVOCATIONS: Final = 16_384
"""Cached timings by invocation. A full cache is emptied, which removes those of past configurations."""


class PoolMetrics:
    """The metrics of one worker pool. In a reload the old and the new pool of a name share them."""

    def __init__(self, metrics: Metrics, pool: str) -> None:
        self.batch_size = metrics.worker_batch_sizes[pool]
        self.queue_seconds = metrics.worker_queue_seconds[pool]
        self.retries = 0
        """Calls retried because their endpoint failed; the dispatcher adds to it."""
        self.hedges = 0
        """Calls hedged at another endpoint because the first was slow; the dispatcher adds to it."""
        self._pool = pool
        self._calls = metrics.worker_calls
        self._endpoints: dict[str, int] = {}

    def called(self, endpoint: str, code: str, number: int = 1) -> None:
        """Count *number* calls to *endpoint* that ended with gRPC status *code*."""
        self._calls.add((self._pool, endpoint, code), number)

    def remember(self, endpoint: str) -> None:
        """Keep the series of *endpoint* until :meth:`forget` was called as often as this method."""
        self._endpoints[endpoint] = self._endpoints.get(endpoint, 0) + 1

    def forget(self, endpoint: str) -> None:
        """Drop the series of a removed endpoint, since new workers have new addresses."""
        self._endpoints[endpoint] -= 1
        if not self._endpoints[endpoint]:
            del self._endpoints[endpoint]
            self._calls.drop(self._pool, endpoint)


class Metrics:
    """All metrics of one process, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._reviews: Timings[tuple[str, str, bool]] = Timings(SECONDS)
        """By phase, operation, and whether the request was allowed."""
        self._calls: Timings[tuple[str, str, str, int, bool]] = Timings(SECONDS)
        """By webhook, phase, operation, HTTP code, and whether the webhook rejected the request."""
        self._allowed: dict[Invocation, Timing] = {}
        """The timings of ``_calls`` for calls that allowed the request, which are nearly all."""
        self._pools: dict[str, PoolMetrics] = {}
        self.watch: tuple[bool, int] | None = None
        """Whether the watches are connected, and the number of namespaces; None: no cluster is watched."""
        self.cancelled: Counter[str] = Counter()
        """Reviews whose client disconnected before the answer, by phase."""
        self.refused: Mapping[int, int] = {}
        """Requests that were answered with a status other than 200, by status; the front end counts them."""
        self.worker_calls = Counts(
            f"{PREFIX}worker_calls", "Calls made, by gRPC status", ("pool", "endpoint", "code")
        )
        self.registry.register(self)
        self.registry.register(self.worker_calls)
        self._rejections = self._counter(
            "webhook_rejections",
            "Requests that a webhook rejected",
            *("name", "type", "operation", "error_type", "rejection_code"),
        )
        self._fail_open = self._counter(
            "webhook_fail_open", "Failed calls that failurePolicy Ignore let pass", "name", "type"
        )
        self._exclusions = self._counter(
            "match_condition_exclusions",
            "Webhooks that a matchCondition excluded",
            *("name", "type", "operation"),
        )
        self._condition_errors = self._counter(
            "match_condition_evaluation_errors",
            "Evaluations of a matchCondition that failed",
            *("name", "type", "operation"),
        )
        speculation = self._counter("speculation", "Speculative calls, by outcome", "outcome")
        self._kept, self._discarded = speculation.labels("kept"), speculation.labels("discarded")
        self.worker_batch_sizes: Timings[str] = Timings(BATCH_SIZES)
        self.worker_queue_seconds: Timings[str] = Timings(QUEUE_SECONDS)
        """By pool."""
        self.worker_endpoints = self._gauge("worker_endpoints", "Endpoints by state", "pool", "state")
        self.reviews_in_flight = self._gauge("reviews_in_flight", "Reviews in flight")
        self.request_bytes_in_flight = self._gauge(
            "request_bytes_in_flight", "Bytes of request bodies that are being received or reviewed"
        )
        self.reload_successful = self._gauge(
            "config_last_reload_successful", "1 if the last reload was accepted"
        )
        self.reload_timestamp = self._gauge(
            "config_last_reload_success_timestamp_seconds",
            "When a configuration was last accepted, Unix time",
        )
        self.certificate_expiry = self._gauge(
            "tls_certificate_expiry_timestamp_seconds", "When the serving certificate expires, Unix time"
        )

    def pool(self, name: str) -> PoolMetrics:
        """Return the metrics of the worker pool *name*."""
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = PoolMetrics(self, name)
        return pool

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """Count one review that was answered after *seconds*, and the outcomes of its webhooks."""
        evaluation = answer.evaluation
        operation = evaluation.request.operation
        self._reviews[answer.selection.phase, operation, answer.decision.allowed].observe(seconds)
        self.outcomes(operation, evaluation.outcomes)
        if evaluation.exclusions:
            self.exclusions(operation, evaluation.exclusions)
        if evaluation.kept_ahead:
            self._kept.inc(evaluation.kept_ahead)
        if evaluation.discarded_ahead:
            self._discarded.inc(evaluation.discarded_ahead)

    def review_cancelled(self, phase: str) -> None:
        """Count one review whose client disconnected before the answer."""
        self.cancelled[phase] += 1

    def exclusions(self, operation: str, exclusions: Iterable[tuple[Invocation, Excluded]]) -> None:
        """Count the webhooks of one review that their conditions excluded."""
        for invocation, excluded in exclusions:
            labels = invocation.webhook.name, _TYPES[invocation.webhook.phase], operation
            self._exclusions.labels(*labels).inc()
            if excluded.errors:
                self._condition_errors.labels(*labels).inc(excluded.errors)

    def outcomes(self, operation: str, outcomes: Iterable[Outcome]) -> None:
        """Count the outcomes of the webhooks of one review."""
        allowed = self._allowed
        for outcome in outcomes:
            call = outcome.call
            if call is not None and isinstance(outcome.verdict, Allowed):
                timing = allowed.get(outcome.invocation)
                if timing is None:
                    timing = self._allowed_timing(outcome.invocation, operation)
                timing.observe(call.elapsed_s)
            else:
                self._refused_or_failed(outcome, operation)

    def collect(self) -> Iterator[Metric]:
        """Yield the families that are counted as plain numbers. The name is prometheus_client's."""
        yield self._reviews.histogram(
            f"{PREFIX}review_duration_seconds",
            "From the complete body to the answer",
            ("type", "operation", "allowed"),
            lambda key: (_TYPES[key[0]], key[1], _word(key[2])),
        )
        yield self._calls.histogram(
            f"{PREFIX}webhook_admission_duration_seconds",
            "Calls whose verdict counted, from call to verdict",
            ("name", "type", "operation", "rejected"),
            lambda key: (key[0], _TYPES[key[1]], key[2], _word(key[4])),
        )
        yield self._calls.counter(
            f"{PREFIX}webhook_requests",
            "Calls whose verdict counted",
            ("name", "type", "operation", "code", "rejected"),
            lambda key: (key[0], _TYPES[key[1]], key[2], str(key[3]), _word(key[4])),
        )
        yield self.worker_batch_sizes.histogram(
            f"{PREFIX}worker_batch_size", "Calls per stream message", ("pool",), lambda pool: (pool,)
        )
        yield self.worker_queue_seconds.histogram(
            f"{PREFIX}worker_queue_seconds",
            "How long the first call of a batch waited to be written",
            ("pool",),
            lambda pool: (pool,),
        )
        yield from self._plain_counters()
        if self.watch is not None:
            is_connected, count = self.watch
            yield GaugeMetricFamily(
                f"{PREFIX}cluster_watch_connected",
                "1 if the watches of the cluster are connected",
                int(is_connected),
            )
            yield GaugeMetricFamily(
                f"{PREFIX}cluster_namespaces", "Namespaces of the cluster that the gateway has read", count
            )

    def _plain_counters(self) -> Iterator[Metric]:
        yield _family(
            "requests_refused",
            "Requests answered with an HTTP status other than 200",
            "code",
            {str(status): number for status, number in tuple(self.refused.items())},
        )
        yield _family(
            "reviews_cancelled",
            "Reviews whose client disconnected before the answer",
            "type",
            {kind: self.cancelled[phase] for phase, kind in _TYPES.items()},
        )
        pools = tuple(self._pools.items())
        yield _family(
            "worker_retries",
            "Calls retried because their endpoint failed",
            "pool",
            {name: pool.retries for name, pool in pools},
        )
        yield _family(
            "worker_hedges",
            "Calls hedged at another endpoint because the first was slow",
            "pool",
            {name: pool.hedges for name, pool in pools},
        )

    def _allowed_timing(self, invocation: Invocation, operation: str) -> Timing:
        """Return the timing of calls for *invocation*, whose requests all have the same operation."""
        if len(self._allowed) >= _KEPT_INVOCATIONS:
            self._allowed.clear()
        webhook = invocation.webhook
        timing = self._calls[webhook.name, webhook.phase, operation, 200, False]
        self._allowed[invocation] = timing
        return timing

    def _refused_or_failed(self, outcome: Outcome, operation: str) -> None:
        webhook, verdict = outcome.invocation.webhook, outcome.verdict
        kind, rejects, code = _TYPES[webhook.phase], outcome.rejects, _http_code(verdict)
        if outcome.call is not None or not code:
            elapsed_s = outcome.call.elapsed_s if outcome.call is not None else 0.0
            self._calls[webhook.name, webhook.phase, operation, code, rejects].observe(elapsed_s)
        elif isinstance(verdict, Failed) and verdict.reason is FailureReason.CONDITION:
            self._condition_errors.labels(webhook.name, kind, operation).inc()
        if not rejects:
            self._fail_open.labels(webhook.name, kind).inc()
            return
        match verdict:
            case Denied():
                error_type = "no_error"
            case Failed():
                error_type = "calling_webhook_error"
            case _:
                error_type = "gateway_internal_error"
        self._rejections.labels(webhook.name, kind, operation, error_type, str(code)).inc()

    def _counter(self, name: str, text: str, *labels: str) -> LockedCounter:
        return LockedCounter(PREFIX + name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, text, labels, registry=self.registry)


def _family(name: str, text: str, label: str, numbers: Mapping[str, int]) -> CounterMetricFamily:
    """Return a counter of one label, with its *numbers* by value."""
    family = CounterMetricFamily(PREFIX + name, text, labels=(label,))
    for value, number in numbers.items():
        family.add_metric((value,), number)
    return family


def _http_code(verdict: Verdict | DryRunRefused) -> int:
    if isinstance(verdict, DryRunRefused):
        # As in the API server: no call was made.
        return 0
    assert not isinstance(verdict, Allowed), "an allowing verdict needs a call"
    return min(verdict.code, _MAX_CODE)


def _word(truth: bool) -> str:
    return "true" if truth else "false"
