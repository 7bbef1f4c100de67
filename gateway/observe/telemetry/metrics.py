"""The metrics of one process. ``definitions`` has their names, labels and meaning."""

from __future__ import annotations

import platform
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import Counter as LockedCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gateway import __version__
from gateway.observe.telemetry import definitions
from gateway.observe.telemetry.exception_uses import ExceptionUses
from gateway.observe.telemetry.process import OwnProcess
from gateway.observe.telemetry.rollouts import RolloutCounts
from gateway.observe.telemetry.series import PHASES, TYPES, Counts, Numbers, Timings
from gateway.pure.admission_policies.placing import STATES
from gateway.pure.core.trace import is_sampled, trace_id_of
from gateway.pure.core.verdict import Allowed, Denied, DryRunRefused, Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from gateway.observe.telemetry.definitions import Definition
    from gateway.observe.telemetry.rollouts import PlanNumbers
    from gateway.observe.telemetry.series import NumbersKey, Timing
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.conditions import Excluded
    from gateway.pure.core.disputes import Dispute, Seen
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.matching import Invocation
    from gateway.pure.core.outcome import Outcome
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import Phase, Webhook

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30)
"""Up to 30 s, the longest time of a review: shorter histograms would hide the tail."""
QUEUE_SECONDS: Final = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

_MAX_CODE: Final = 600
_KEPT_INVOCATIONS: Final = 16_384
"""Cached timings by invocation. A full cache is emptied, which removes those of past configurations."""


class ConfigHistory(Protocol):
    """The part of ``gateway.server.history_keeper`` that is exposed."""

    errors: int

    @property
    def is_pinned(self) -> bool:
        """Whether the configuration in force is pinned."""


class LogCounts:
    """The counts of the decision log, which adds to them."""

    def __init__(self) -> None:
        self.logged = 0
        """Records."""
        self.dropped: Counter[str] = Counter()
        """Records that were not written, by sink."""


class RecordingCounts:
    """The counts of recordings; the recorder adds to them."""

    def __init__(self) -> None:
        self.recorded = 0
        self.dropped: Counter[str] = Counter()
        """Reviews that were chosen and not recorded, by reason."""


SpanOutcome = Literal["exported", "export_failed", "queue_full", "not_recorded"]
"""``not_recorded`` counts reviews, which have no spans because of the bound on spans per second."""


class SpanCounts(Counter[SpanOutcome]):
    """Counts of spans by outcome. One thread counts each outcome."""

    def begin(self) -> None:
        """Have a count for each outcome, as soon as there can be spans."""
        for outcome in get_args(SpanOutcome):
            self[outcome] += 0


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

    def __init__(self, process: str = "") -> None:
        """*process* is the name of the process if there are several, see :class:`OwnProcess`."""
        self.registry = CollectorRegistry()
        self.registry.register(OwnProcess(process))
        self._reviews: Timings[tuple[str, str, bool]] = Timings(SECONDS)
        """By phase, operation, and whether the request was allowed."""
        self._calls: Timings[tuple[str, str, str, int, bool]] = Timings(SECONDS)
        """By webhook, phase, operation, HTTP code, and whether the webhook rejected the request."""
        self._allowed: dict[Invocation, Timing] = {}
        """The timings of ``_calls`` for calls that allowed the request, which are nearly all."""
        self._pools: dict[str, PoolMetrics] = {}
        self.watch: tuple[bool, int] | None = None
        """Whether the watches are connected, and the number of namespaces. None if no cluster is watched."""
        self.ca_bundles: Mapping[str, int] = {}
        """The number of followed CA bundles by state, see ``gateway.engine.credentials.ca_bundle``."""
        self.placement: Mapping[str, int] | None = None
        """The number of policies by where they are evaluated. None if none are ever moved."""
        self.placement_corrections: Mapping[str, int] = {}
        """By kind of policy, the objects that were written again."""
        self.findings_dropped: int | None = None
        """Findings that are in no report or Event. None without configured reports."""
        self.decision_log = LogCounts()
        self.recording = RecordingCounts()
        self.is_recording = False
        self.cache_lookups: Counter[tuple[str, Phase, Literal["hit", "miss"]]] = Counter()
        """Look-ups in the caches of webhooks, by name, phase and result; the dispatcher counts them."""
        self.cancelled: Counter[str] = Counter()
        """Reviews whose client disconnected before the answer, by phase."""
        self.spans: Mapping[SpanOutcome, int] = {}
        """Spans by outcome; a thread counts, too. Empty without configured traces."""
        self.refused: Mapping[int, int] = {}
        """Requests that were answered with a status other than 200, by status; the front end counts them."""
        self.refused_tokens: Mapping[str, int] = {}
        """Refused webhook tokens by reason; the front end counts them."""
        self.configuration: tuple[str, Mapping[tuple[str, ...], int]] | None = None
        """The digest of the configuration in force, and the timeouts of its webhooks, in seconds by name
        and type."""
        self.exceptions = ExceptionUses()
        self.plans: Callable[[], Iterable[PlanNumbers]] = tuple
        """Returns the numbers of the rollout plans."""
        self.disputes: Mapping[Dispute, Seen] = {}
        """Mutating webhooks that do not come to rest, see ``gateway.observe.decisions.disputes``."""
        self.history: ConfigHistory | None = None
        """What is known of the configurations kept for rollback. None if none are kept."""
        self.policy_mismatches: Mapping[tuple[str, str, str], int] = {}
        """The number of workers by webhook, phase and reason, see ``gateway.engine.policy_check``."""
        self.worker_calls = Counts(definitions.WORKER_CALLS)
        self.rollouts = RolloutCounts()
        self.registry.register(self)
        self.registry.register(self.worker_calls)
        for counts in self.rollouts.all:
            self.registry.register(counts)
        self._rejections = self._counter(definitions.WEBHOOK_REJECTIONS)
        self._fail_open = self._counter(definitions.WEBHOOK_FAIL_OPEN)
        self._exclusions = self._counter(definitions.MATCH_CONDITION_EXCLUSIONS)
        self._condition_errors = self._counter(definitions.MATCH_CONDITION_ERRORS)
        speculation = self._counter(definitions.SPECULATION)
        self._kept, self._discarded = speculation.labels("kept"), speculation.labels("discarded")
        self.worker_batch_sizes: Timings[str] = Timings(BATCH_SIZES)
        self.worker_queue_seconds: Timings[str] = Timings(QUEUE_SECONDS)
        """By pool."""
        self.worker_endpoints = self._gauge(definitions.WORKER_ENDPOINTS)
        self.worker_calls_in_flight = self._gauge(definitions.WORKER_CALLS_IN_FLIGHT)
        self.worker_calls_in_flight_limit = self._gauge(definitions.WORKER_CALLS_IN_FLIGHT_LIMIT)
        self.reviews_in_flight = self._gauge(definitions.REVIEWS_IN_FLIGHT)
        self.reviews_in_flight_limit = self._gauge(definitions.REVIEWS_IN_FLIGHT_LIMIT)
        self.request_bytes_in_flight = self._gauge(definitions.REQUEST_BYTES_IN_FLIGHT)
        self.request_bytes_in_flight_limit = self._gauge(definitions.REQUEST_BYTES_IN_FLIGHT_LIMIT)
        self.reload_successful = self._gauge(definitions.RELOAD_SUCCESSFUL)
        self.reload_timestamp = self._gauge(definitions.RELOAD_TIMESTAMP)
        self.certificate_expiry = self._gauge(definitions.CERTIFICATE_EXPIRY)
        self._gauge(definitions.BUILD_INFO).labels(__version__, platform.python_version()).set(1)

    def activate(
        self, digest: str, webhooks: Iterable[Webhook], exceptions: Sequence[PolicyException] = ()
    ) -> None:
        """Expose *digest*, *webhooks* and *exceptions* of the configuration in force from now on."""
        self.exceptions.use(exceptions)
        timeouts: dict[tuple[str, ...], int] = {}
        for webhook in webhooks:
            key = webhook.name, TYPES[webhook.phase]
            timeouts[key] = min(webhook.timeout_s, timeouts.get(key, webhook.timeout_s))
        self.configuration = digest, timeouts

    def begin_counters(self, webhooks: Iterable[Webhook]) -> None:
        """Begin the counters of *webhooks* with 0: one that begins with 1 shows no increase.

        Run it in a thread: it takes 30 microseconds a webhook.
        """
        for webhook in webhooks:
            if webhook.failure_policy == "Ignore":
                self._fail_open.labels(webhook.name, TYPES[webhook.phase])

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
        if evaluation.exemptions:
            self.exceptions.add(evaluation.exemptions, time.time())
        if evaluation.kept_ahead:
            self._kept.inc(evaluation.kept_ahead)
        if evaluation.discarded_ahead:
            self._discarded.inc(evaluation.discarded_ahead)
        trace = answer.origin.trace
        if trace is not None and is_sampled(trace.traceparent):
            self._exemplify(answer, seconds, trace_id_of(trace.traceparent))

    def _exemplify(self, answer: Answer, seconds: float, trace_id: str) -> None:
        """Give the durations of *answer* its trace id as exemplar."""
        evaluation = answer.evaluation
        operation = evaluation.request.operation
        self._reviews[answer.selection.phase, operation, answer.decision.allowed].exemplify(seconds, trace_id)
        for outcome in evaluation.outcomes:
            if outcome.elapsed_s is not None:
                webhook, verdict = outcome.invocation.webhook, outcome.verdict
                code = 200 if isinstance(verdict, Allowed) else _http_code(verdict)
                timing = self._calls[webhook.name, webhook.phase, operation, code, outcome.rejects]
                timing.exemplify(outcome.elapsed_s, trace_id)

    def review_cancelled(self, phase: str) -> None:
        """Count one review whose client disconnected before the answer."""
        self.cancelled[phase] += 1

    def exclusions(self, operation: str, exclusions: Iterable[tuple[Invocation, Excluded]]) -> None:
        """Count the webhooks of one review that their conditions excluded."""
        for invocation, excluded in exclusions:
            if excluded.is_exception:
                continue
            labels = invocation.webhook.name, TYPES[invocation.webhook.phase], operation
            self._exclusions.labels(*labels).inc()
            if excluded.errors:
                self._condition_errors.labels(*labels).inc(excluded.errors)

    def outcomes(self, operation: str, outcomes: Iterable[Outcome]) -> None:
        """Count the outcomes of the webhooks of one review."""
        allowed = self._allowed
        for outcome in outcomes:
            call = outcome.call
            elapsed_s = outcome.evaluated_s if call is None else call.elapsed_s
            if outcome.mode != "Enforce":
                self.rollouts.not_enforced(outcome)
            if elapsed_s is not None and type(outcome.verdict) is Allowed:
                timing = allowed.get(outcome.invocation)
                if timing is None:
                    timing = self._allowed_timing(outcome.invocation, operation)
                timing.observe(elapsed_s)
            else:
                self._refused_or_failed(outcome, operation)

    def numbers(self) -> dict[NumbersKey, Numbers]:
        """Return the counts of each webhook and phase since the start; can run in a thread."""
        found: defaultdict[NumbersKey, Numbers] = defaultdict(Numbers)
        for (phase, _, allowed), timing in self._reviews.items():
            of_phase = found[phase, ""]
            of_phase.add(timing.buckets.copy())
            of_phase.denied += 0 if allowed else timing.count
        for (name, phase, *_), timing in self._calls.items():
            found[phase, name].add(timing.buckets.copy())
        for counter in (self._rejections, self._fail_open):
            for family in counter.collect():
                for sample in family.samples:
                    if sample.name.endswith("_created"):
                        continue
                    labels, count = sample.labels, int(sample.value)
                    of_webhook = found[PHASES[labels["type"]], labels["name"]]
                    if counter is self._fail_open:
                        of_webhook.failed_open += count
                    elif labels["error_type"] == "no_error":
                        of_webhook.denied += count
                    else:
                        of_webhook.failed_closed += count
        self.rollouts.add_to(found)
        return found

    def collect(self) -> Iterator[Metric]:
        """Yield the families that are counted as plain numbers. The name is prometheus_client's."""
        yield self._reviews.histogram(
            definitions.REVIEW_DURATION, lambda key: (TYPES[key[0]], key[1], _word(key[2]))
        )
        yield self._calls.histogram(
            definitions.WEBHOOK_DURATION, lambda key: (key[0], TYPES[key[1]], key[2], _word(key[4]))
        )
        yield self._calls.counter(
            definitions.WEBHOOK_REQUESTS,
            lambda key: (key[0], TYPES[key[1]], key[2], str(key[3]), _word(key[4])),
        )
        yield self.worker_batch_sizes.histogram(definitions.WORKER_BATCH_SIZE, lambda pool: (pool,))
        yield self.worker_queue_seconds.histogram(definitions.WORKER_QUEUE, lambda pool: (pool,))
        yield from self._plain_counters()
        if self.configuration is not None:
            digest, timeouts = self.configuration
            yield _family(definitions.CONFIG_INFO, {(digest,): 1})
            yield _family(definitions.WEBHOOK_TIMEOUT, timeouts)
        uses = tuple(self.exceptions.by_id.items())
        yield _family(definitions.EXCEPTION_USES, {(id_,): one.number for id_, one in uses})
        yield _family(
            definitions.EXCEPTION_LAST_USE, {(id_,): int(one.last_at) for id_, one in uses if one.last_at}
        )
        ends: dict[tuple[str, ...], int] = {
            (id_,): int(one.expires_at) for id_, one in uses if one.expires_at is not None
        }
        yield _family(definitions.EXCEPTION_EXPIRY, ends)
        yield _family(
            definitions.MUTATION_DISPUTES,
            {
                (one.webhook, one.other, one.kind, one.path): seen.number
                for one, seen in tuple(self.disputes.items())
            },
        )
        yield from self._plan_families()
        yield _family(
            definitions.WEBHOOK_POLICY_MISMATCHES,
            {
                (name, TYPES[phase], why): count
                for (name, phase, why), count in self.policy_mismatches.items()
            },
        )
        if self.history is not None:
            yield _family(definitions.CONFIG_PINNED, {(): int(self.history.is_pinned)})
            yield _family(definitions.CONFIG_HISTORY_ERRORS, {(): self.history.errors})
        if self.watch is not None:
            is_connected, count = self.watch
            yield _family(definitions.WATCH_CONNECTED, {(): int(is_connected)})
            yield _family(definitions.NAMESPACES, {(): count})
            yield _family(
                definitions.CA_BUNDLES,
                {(state,): self.ca_bundles.get(state, 0) for state in ("current", "kept", "missing")},
            )
        if self.placement is not None:
            yield _family(
                definitions.POLICY_PLACEMENT, {(state,): self.placement.get(state, 0) for state in STATES}
            )
            yield _family(
                definitions.PLACEMENT_CORRECTIONS,
                {(kind,): count for kind, count in self.placement_corrections.items()},
            )
        if self.findings_dropped is not None:
            yield _family(definitions.FINDINGS_DROPPED, {(): self.findings_dropped})
        if self.is_recording:
            reasons = tuple(self.recording.dropped.items())
            yield _family(definitions.REVIEWS_RECORDED, {(): self.recording.recorded})
            yield _family(
                definitions.REVIEWS_NOT_IN_RECORDING, {(reason,): number for reason, number in reasons}
            )
        if self.spans:
            dropped: tuple[SpanOutcome, ...] = ("export_failed", "queue_full")
            yield _family(definitions.SPANS_EXPORTED, {(): self.spans["exported"]})
            yield _family(definitions.SPANS_DROPPED, {(reason,): self.spans[reason] for reason in dropped})
            yield _family(definitions.REVIEWS_NOT_RECORDED, {(): self.spans["not_recorded"]})

    def _plan_families(self) -> Iterator[Metric]:
        found = {
            (one.webhook.name, TYPES[one.webhook.phase], one.webhook.configuration): one
            for one in self.plans()
        }
        yield _family(definitions.ROLLOUT_PLAN_STAGE, {key: one.stage for key, one in found.items()})
        yield _family(definitions.ROLLOUT_PLAN_PHASE, {(*key, one.phase): 1 for key, one in found.items()})
        yield _family(
            definitions.ROLLOUT_PLAN_GATES,
            {(*key, value): number for key, one in found.items() for value, number in one.gates.items()},
        )
        yield _family(
            definitions.ROLLOUT_PLAN_WAITING, {(*key, one.waits_for): 1 for key, one in found.items()}
        )

    def _plain_counters(self) -> Iterator[Metric]:
        refused, pools = tuple(self.refused.items()), tuple(self._pools.items())
        yield _family(definitions.DECISIONS_LOGGED, {(): self.decision_log.logged})
        dropped = tuple(self.decision_log.dropped.items())
        yield _family(definitions.DECISIONS_DROPPED, {(sink,): number for sink, number in dropped})
        yield _family(definitions.REQUESTS_REFUSED, {(str(status),): number for status, number in refused})
        yield _family(
            definitions.WEBHOOK_TOKEN_REFUSALS,
            {(reason,): number for reason, number in tuple(self.refused_tokens.items())},
        )
        yield _family(
            definitions.REVIEWS_CANCELLED, {(kind,): self.cancelled[phase] for phase, kind in TYPES.items()}
        )
        yield _family(
            definitions.CACHE_LOOKUPS,
            {
                (name, TYPES[phase], result): number
                for (name, phase, result), number in tuple(self.cache_lookups.items())
            },
        )
        yield _family(definitions.WORKER_RETRIES, {(name,): pool.retries for name, pool in pools})
        yield _family(definitions.WORKER_HEDGES, {(name,): pool.hedges for name, pool in pools})

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
        kind, rejects, code = TYPES[webhook.phase], outcome.rejects, _http_code(verdict)
        if outcome.elapsed_s is not None or not code:
            self._calls[webhook.name, webhook.phase, operation, code, rejects].observe(
                outcome.elapsed_s or 0.0
            )
        elif isinstance(verdict, Failed) and verdict.reason is FailureReason.CONDITION:
            self._condition_errors.labels(webhook.name, kind, operation).inc()
        if outcome.mode != "Enforce" and outcome.would_reject:
            return
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

    def _counter(self, definition: Definition) -> LockedCounter:
        return LockedCounter(definition.family, definition.help, definition.labels, registry=self.registry)

    def _gauge(self, definition: Definition) -> Gauge:
        return Gauge(definition.family, definition.help, definition.labels, registry=self.registry)


def _family(
    definition: Definition, numbers: Mapping[tuple[str, ...], int]
) -> CounterMetricFamily | GaugeMetricFamily:
    """Return a counter or gauge with its *numbers* by label values."""
    kind = CounterMetricFamily if definition.kind == "counter" else GaugeMetricFamily
    family = kind(definition.family, definition.help, labels=definition.labels)
    for values, number in numbers.items():
        family.add_metric(values, number)
    return family


def _http_code(verdict: Verdict | DryRunRefused) -> int:
    if isinstance(verdict, DryRunRefused):
        # As in the API server: no call was made.
        return 0
    assert not isinstance(verdict, Allowed), "an allowing verdict needs a call"
    return min(verdict.code, _MAX_CODE)


def _word(truth: bool) -> str:
    return "true" if truth else "false"
