"""Every series in one place. Children are looked up once and kept, since a look-up costs more than a count.

Names, types and labels are part of the product's surface (README, "Metrics"). No label takes a value from a
request's object: names come from the configuration, operations from a fixed list.

Source: k8s.io/apiserver admission/metrics, whose series these mirror under the gateway's own prefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gateway.core.verdict import Allowed, Denied, Failed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.core.call import Outcome

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30)
"""To 30 s, the longest a review can take: histograms that end earlier hide the tail one looks for."""
QUEUE_SECONDS: Final = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

_TYPES: Final = {"mutate": "admit", "validate": "validating"}
_MAX_CODE: Final = 600


class PoolMetrics:
    """The series of one worker pool, shared by all that goes by its name, as old and new do in a reload."""

    def __init__(self, metrics: Metrics, pool: str) -> None:
        self.batch_size = metrics.worker_batch_size.labels(pool)
        self.queue_seconds = metrics.worker_queue_seconds.labels(pool)
        self._pool = pool
        self._worker_calls = metrics.worker_calls
        self._calls: dict[tuple[str, str], Counter] = {}
        self._endpoints: dict[str, int] = {}

    def remember(self, endpoint: str) -> None:
        """Keep the series of *endpoint* until :meth:`forget` was called as often as this."""
        self._endpoints[endpoint] = self._endpoints.get(endpoint, 0) + 1

    def calls(self, endpoint: str, code: str) -> Counter:
        """Return the counter of calls to *endpoint* that ended with gRPC status *code*."""
        counter = self._calls.get((endpoint, code))
        if counter is None:
            counter = self._calls[endpoint, code] = self._worker_calls.labels(self._pool, endpoint, code)
        return counter

    def forget(self, endpoint: str) -> None:
        """Drop the series of an endpoint that is gone: workers come and go under ever new addresses."""
        self._endpoints[endpoint] -= 1
        if self._endpoints[endpoint]:
            return
        del self._endpoints[endpoint]
        for address, code in [key for key in self._calls if key[0] == endpoint]:
            del self._calls[address, code]
            self._worker_calls.remove(self._pool, address, code)


class Metrics:
    """All series of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def histogram(name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"admission_gateway_{name}", text, labels, buckets=buckets, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"admission_gateway_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"admission_gateway_{name}", text, labels, registry=registry)

        self._review_duration = histogram(
            "review_duration_seconds",
            "From the whole body to the answer",
            ("type", "operation", "allowed"),
            SECONDS,
        )
        self.reviews_in_flight = gauge("reviews_in_flight", "Reviews being worked on")
        self._webhook_duration = histogram(
            "webhook_admission_duration_seconds",
            "Calls of a webhook that counted, from call to verdict",
            ("name", "type", "operation", "rejected"),
            SECONDS,
        )
        self._rejections = counter(
            "webhook_rejections",
            "Requests that a webhook rejected",
            *("name", "type", "operation", "error_type", "rejection_code"),
        )
        self._fail_open = counter(
            "webhook_fail_open", "Failures that failurePolicy Ignore let pass", "name", "type"
        )
        self._requests = counter(
            "webhook_requests",
            "Calls of a webhook that counted",
            "name",
            "type",
            "operation",
            "code",
            "rejected",
        )
        self.worker_calls = counter("worker_calls", "Calls made, by gRPC status", "pool", "endpoint", "code")
        self.worker_batch_size = histogram(
            "worker_batch_size", "Calls per stream message", ("pool",), BATCH_SIZES
        )
        self.worker_queue_seconds = histogram(
            "worker_queue_seconds",
            "How long the first call of a batch waited to be written",
            ("pool",),
            QUEUE_SECONDS,
        )
        self.worker_endpoints = gauge("worker_endpoints", "Endpoints by state", "pool", "state")
        self._speculation = counter("speculation", "Calls ahead of their turn, by use", "outcome")
        self.reload_successful = gauge("config_last_reload_successful", "1 if the last reload was accepted")
        self.reload_timestamp = gauge(
            "config_last_reload_success_timestamp_seconds",
            "When a configuration was last accepted, Unix time",
        )
        self.certificate_expiry = gauge(
            "tls_certificate_expiry_timestamp_seconds", "When the serving certificate expires, Unix time"
        )
        self._kept = self._speculation.labels("kept")
        self._discarded = self._speculation.labels("discarded")
        self._pools: dict[str, PoolMetrics] = {}
        self._reviews: dict[tuple[str, str, bool], Histogram] = {}
        self._called: dict[tuple[str, str, str, int, bool], tuple[Histogram, Counter]] = {}

    def pool(self, name: str) -> PoolMetrics:
        """Return the series of the worker pool *name*."""
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = PoolMetrics(self, name)
        return pool

    def review(self, phase: str, operation: str, *, allowed: bool, seconds: float) -> None:
        """Count one review that was answered."""
        key = phase, operation, allowed
        histogram = self._reviews.get(key)
        if histogram is None:
            histogram = self._reviews[key] = self._review_duration.labels(
                _TYPES[phase], operation, str(allowed).lower()
            )
        histogram.observe(seconds)

    def speculation(self, kept: int, discarded: int) -> None:
        """Count calls that were made ahead of their turn."""
        if kept:
            self._kept.inc(kept)
        if discarded:
            self._discarded.inc(discarded)

    def outcomes(self, operation: str, outcomes: Iterable[Outcome]) -> None:
        """Count how the webhooks of one review were settled."""
        for outcome in outcomes:
            verdict, call = outcome.verdict, outcome.call
            rejects = outcome.rejects
            if call is not None:
                code = verdict.code if isinstance(verdict, Failed | Denied) else 200
                duration, requests = self._call(outcome, operation, min(code, _MAX_CODE), rejects=rejects)
                duration.observe(call.elapsed_s)
                requests.inc()
            if type(verdict) is not Allowed:
                self._refused_or_failed(outcome, operation, rejects=rejects)

    def _call(
        self, outcome: Outcome, operation: str, code: int, *, rejects: bool
    ) -> tuple[Histogram, Counter]:
        webhook = outcome.invocation.webhook
        key = webhook.name, webhook.phase, operation, code, rejects
        children = self._called.get(key)
        if children is None:
            labels = webhook.name, _TYPES[webhook.phase], operation
            rejected = str(rejects).lower()
            children = self._called[key] = (
                self._webhook_duration.labels(*labels, rejected),
                self._requests.labels(*labels, str(code), rejected),
            )
        return children

    def _refused_or_failed(self, outcome: Outcome, operation: str, *, rejects: bool) -> None:
        webhook, verdict = outcome.invocation.webhook, outcome.verdict
        kind = _TYPES[webhook.phase]
        if not rejects:
            self._fail_open.labels(webhook.name, kind).inc()
            return
        match verdict:
            case Denied():
                error_type, code = "no_error", verdict.code
            case Failed():
                error_type, code = "calling_webhook_error", verdict.code
            case _:
                error_type, code = "gateway_internal_error", 0
        self._rejections.labels(webhook.name, kind, operation, error_type, str(min(code, _MAX_CODE))).inc()
