"""The table of all metrics: name, type, labels and meaning.

The metrics are made from it, and so are the table of docs/metrics.md, the Grafana dashboard and the alerts
(``make monitoring``). Names, types and labels are a public interface. No label has a value of a request's
object: names come from the configuration, operations from a fixed list. The unit of a metric is the end of
its name, as Prometheus recommends; without one it is a number of what it is named for.

Source: k8s.io/apiserver admission/metrics, whose series these mirror under the gateway's own prefix;
prometheus.io "Metric and label naming".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]

PREFIX: Final = "admission_gateway_"


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric."""

    name: str
    """As it is exposed; that of a histogram without ``_bucket``, ``_count`` or ``_sum``."""
    kind: Kind
    text: str
    """The meaning, in Markdown for a page in docs/."""
    labels: tuple[str, ...] = ()
    is_lowest: bool = False
    """Whether several processes expose the lowest value of a gauge instead of the sum."""
    is_highest: bool = False
    """Whether they expose the highest value."""

    @property
    def family(self) -> str:
        """The name as prometheus_client takes it."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    @property
    def help(self) -> str:
        """The meaning as plain text."""
        return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", self.text).replace("`", "")

    @property
    def series(self) -> dict[str, frozenset[str]]:
        """The names of its series in Prometheus, with their labels."""
        if self.kind != "histogram":
            return {self.name: frozenset(self.labels)}
        ends = {"_bucket": ("le",), "_count": (), "_sum": ()}
        return {self.name + end: frozenset((*self.labels, *more)) for end, more in ends.items()}


DEFINITIONS: Final[list[Definition]] = []
"""All metrics, in the order of the documentation."""


def _define(definition: Definition) -> Definition:
    DEFINITIONS.append(definition)
    return definition


def _counter(name: str, text: str, *labels: str) -> Definition:
    return _define(Definition(f"{PREFIX}{name}_total", "counter", text, labels))


def _gauge(
    name: str, text: str, *labels: str, is_lowest: bool = False, is_highest: bool = False
) -> Definition:
    return _define(Definition(PREFIX + name, "gauge", text, labels, is_lowest, is_highest))


def _histogram(name: str, text: str, *labels: str) -> Definition:
    return _define(Definition(PREFIX + name, "histogram", text, labels))


# -- reviews --------------------------------------------------------------------------------------

REVIEW_DURATION: Final = _histogram(
    "review_duration_seconds",
    "time from the complete body to the answer; buckets up to 30 s",
    *("type", "operation", "allowed"),
)
REVIEWS_IN_FLIGHT: Final = _gauge("reviews_in_flight", "reviews that are not answered yet")
REVIEWS_IN_FLIGHT_LIMIT: Final = _gauge(
    "reviews_in_flight_limit", "`limits.maxConcurrentReviews`: above it reviews are refused with 503"
)
REQUEST_BYTES_IN_FLIGHT: Final = _gauge(
    "request_bytes_in_flight", "bytes of request bodies that are being read or reviewed"
)
REQUEST_BYTES_IN_FLIGHT_LIMIT: Final = _gauge(
    "request_bytes_in_flight_limit", "`limits.maxBytesInFlight`: above it reviews are refused with 503"
)
REQUESTS_REFUSED: Final = _counter(
    "requests_refused", "requests answered with another status than 200", "code"
)
WEBHOOK_TOKEN_REFUSALS: Final = _counter(
    "webhook_token_refusals",
    "refused tokens of API servers; `reason` is `malformed`, `unknown_key`, `keys_not_read`, `signature`, "
    "`expired`, `not_yet_valid`, `issuer`, `audience`, `binding` or `attestation`. Only with "
    "`authentication.webhookTokens`",
    "reason",
)
REVIEWS_CANCELLED: Final = _counter(
    "reviews_cancelled", "reviews whose client closed the connection before the answer", "type"
)

# -- webhooks -------------------------------------------------------------------------------------

WEBHOOK_DURATION: Final = _histogram(
    "webhook_admission_duration_seconds",
    "duration of the calls whose answer counted; buckets up to 30 s",
    *("name", "type", "operation", "rejected"),
)
WEBHOOK_TIMEOUT: Final = _gauge(
    "webhook_timeout_seconds",
    "`timeoutSeconds` of a webhook; the lowest, if configurations have webhooks of one name",
    *("name", "type"),
    is_lowest=True,
)
WEBHOOK_POLICY_MISMATCHES: Final = _gauge(
    "webhook_policy_mismatches",
    "workers that do not serve the policy of a webhook (`reason` is `not_served`), serve a validating "
    "policy for a mutating webhook or the reverse (`other_kind`), or refuse its parameters (`parameters`); "
    "no series if there are none",
    *("name", "type", "reason"),
    is_lowest=True,
)
WEBHOOK_REQUESTS: Final = _counter(
    "webhook_requests", "calls whose answer counted", "name", "type", "operation", "code", "rejected"
)
WEBHOOK_REJECTIONS: Final = _counter(
    "webhook_rejections",
    "requests that a webhook rejected; `error_type` is `no_error` for a denial, `calling_webhook_error` for "
    "a failure, else `gateway_internal_error`",
    *("name", "type", "operation", "error_type", "rejection_code"),
)
WEBHOOK_FAIL_OPEN: Final = _counter(
    "webhook_fail_open", "failures that `failurePolicy: Ignore` let pass", "name", "type"
)
WEBHOOK_NOT_ENFORCED: Final = _counter(
    "webhook_not_enforced",
    "results of webhooks that had no effect because of their [mode](rollout.md): `result` is `denied` or "
    "`failed` for a rejection, `changed` for a patch",
    *("name", "type", "mode", "result"),
)
ROLLOUT_PLAN_STAGE: Final = _gauge(
    "rollout_plan_stage",
    "stage of a [rollout plan](rollout-plans.md) that is in force, from 1; the smallest of all processes. "
    "`configuration` is the name of the webhook's configuration, or `KIND/NAME` of a policy's document",
    *("name", "type", "configuration"),
    is_lowest=True,
)
ROLLOUT_PLAN_PHASE: Final = _gauge(
    "rollout_plan_phase",
    "1 for the phase of a rollout plan: `Progressing`, `Paused`, `RolledBack`, `Complete`, `Held` "
    "(the plan was removed, and its stage holds), or `Unknown` without a state",
    *("name", "type", "configuration", "phase"),
    is_highest=True,
)
ROLLOUT_PLAN_GATES: Final = _gauge(
    "rollout_plan_gates",
    "gates of the present stage by what they said last: `pass`, `fail` or `unknown`",
    *("name", "type", "configuration", "value"),
    is_highest=True,
)
ROLLOUT_PLAN_WAITING: Final = _gauge(
    "rollout_plan_waiting",
    "1 for what a rollout plan waits for: `reason` is `time` (of the stage), `data` (for a gate), `decision` "
    "(all gates pass), `person` (to approve or resume, or the plan was removed), `gateway` (it paused the "
    "plan or rolled it back), `processes` (some have another plan), `store` (states cannot be read or "
    "written) or `nothing` (it is complete)",
    *("name", "type", "configuration", "reason"),
    is_highest=True,
)
CACHE_LOOKUPS: Final = _counter(
    "webhook_cache_lookups",
    "look-ups in the [cache](configuration.md#cache) of a webhook; `result` is `hit`, without a call, or "
    "`miss`",
    *("name", "type", "result"),
)
CANDIDATE_REVIEWS: Final = _counter(
    "candidate_reviews",
    "reviews for which the answer of a [candidate](rollout.md#candidates) was compared with that in force",
    *("name", "type"),
)
CANDIDATE_DIFFERENT_REVIEWS: Final = _counter(
    "candidate_different_reviews",
    "reviews in which the answer of a candidate differed in any way",
    "name",
    "type",
)
CANDIDATE_DIFFERENCES: Final = _counter(
    "candidate_differences",
    "differences between the answer of a candidate and that in force; `kind` is `newly_denied`, "
    "`newly_allowed`, `failed`, `code`, `message`, `warnings` or `object`",
    *("name", "type", "kind"),
)
CALLS_AFTER_ANSWER_DROPPED: Final = _counter(
    "calls_after_answer_dropped",
    "calls of candidates and in the mode Shadow that were not made, because of load",
    *("name", "type"),
)
MATCH_CONDITION_EXCLUSIONS: Final = _counter(
    "match_condition_exclusions", "webhooks that a matchCondition excluded", "name", "type", "operation"
)
MATCH_CONDITION_ERRORS: Final = _counter(
    "match_condition_evaluation_errors",
    "matchConditions that could not be evaluated",
    *("name", "type", "operation"),
)
MUTATION_DISPUTES: Final = _counter(
    "mutation_disputes",
    "reviews in which mutating webhooks did not come to rest, see [mutators](mutators.md#in-live-traffic); "
    "`kind` is `undone`, with the `other` webhook, `own_result` or `put_back`, and `path` the field; `name` "
    "is `(others)` for all after the first hundred",
    *("name", "other", "kind", "path"),
)
EXCEPTION_USES: Final = _counter(
    "policy_exception_uses",
    "webhooks that were not called because of an [exception](exceptions.md); `exception` is `NAMESPACE/NAME` "
    "or `NAME`, and `(others)` for all after the first thousand",
    "exception",
)
EXCEPTION_LAST_USE: Final = _gauge(
    "policy_exception_last_use_timestamp_seconds",
    "time of the last use of an exception, Unix time; no series if there was none",
    "exception",
    is_highest=True,
)
EXCEPTION_EXPIRY: Final = _gauge(
    "policy_exception_expiry_timestamp_seconds",
    "end of an exception, Unix time; no series if it is permanent",
    "exception",
    is_lowest=True,
)
SPECULATION: Final = _counter(
    "speculation",
    "calls ahead of their turn, those of chains included, whose answer was `kept` or `discarded`",
    "outcome",
)

# -- workers --------------------------------------------------------------------------------------

WORKER_CALLS: Final = _counter(
    "worker_calls",
    "all calls that ended, with retries and hedges. For HTTPS webhooks the pool is `https` and the endpoint "
    "the URL",
    *("pool", "endpoint", "code"),
)
WORKER_RETRIES: Final = _counter("worker_retries", "calls sent again because their endpoint was lost", "pool")
WORKER_HEDGES: Final = _counter(
    "worker_hedges", "calls sent to a second endpoint because the first one was slow", "pool"
)
WORKER_BATCH_SIZE: Final = _histogram("worker_batch_size", "calls in one message of a stream", "pool")
WORKER_QUEUE: Final = _histogram(
    "worker_queue_seconds", "time that the first call of a batch waited to be written", "pool"
)
WORKER_CALLS_IN_FLIGHT: Final = _gauge(
    "worker_calls_in_flight", "calls of a pool that are not answered yet", "pool"
)
WORKER_CALLS_IN_FLIGHT_LIMIT: Final = _gauge(
    "worker_calls_in_flight_limit", "`maxInFlight` of a pool, times its endpoints", "pool"
)
WORKER_ENDPOINTS: Final = _gauge("worker_endpoints", "endpoints by state", "pool", "state")

# -- configuration and cluster --------------------------------------------------------------------

CONFIG_INFO: Final = _gauge(
    "config_info",
    "always 1; `digest` is the SHA-256 of the configuration in force, the same for the same configuration",
    "digest",
    is_lowest=True,
)
RELOAD_SUCCESSFUL: Final = _gauge(
    "config_last_reload_successful",
    "0 while a configuration, TLS file, credential file or custom resource is refused, or a credential file "
    "is empty or deleted",
    is_lowest=True,
)
RELOAD_TIMESTAMP: Final = _gauge(
    "config_last_reload_success_timestamp_seconds",
    "time of the last accepted configuration, Unix time",
    is_lowest=True,
)
CONFIG_PINNED: Final = _gauge(
    "config_pinned",
    "1 while the gateway is pinned to a kept configuration by "
    "[`rollback`](operate.md#undo-a-change-roll-back). Only with `--state`",
    is_highest=True,
)
CONFIG_HISTORY_ERRORS: Final = _counter(
    "config_history_errors",
    "configurations that could not be kept for `rollback`, for example because the disk is full. Only with "
    "`--state`",
)
CERTIFICATE_EXPIRY: Final = _gauge(
    "tls_certificate_expiry_timestamp_seconds",
    "expiry of the serving certificate, Unix time",
    is_lowest=True,
)
WATCH_CONNECTED: Final = _gauge(
    "cluster_watch_connected",
    "1 while changes of namespaces, custom resources and objects that policies read arrive. Only with "
    "`kubernetes`; the smallest of all processes",
    is_lowest=True,
)
NAMESPACES: Final = _gauge(
    "cluster_namespaces",
    "namespaces known. Only with `kubernetes`; the smallest of all processes",
    is_lowest=True,
)

CA_BUNDLES: Final = _gauge(
    "ca_bundles",
    "sources of `caBundleFrom` by state: `current`, `kept` (the object is gone or invalid now, or cannot be "
    "watched: the last valid bundle is in force) or `missing` (there was none yet, and its webhooks fail). "
    "Only with `kubernetes`",
    "state",
)

POLICY_PLACEMENT: Final = _gauge(
    "policy_placement",
    "policies that are to be [evaluated by the API server](policies.md#how-a-policy-moves), by state: "
    "`Gateway`, `Moving`, `APIServer` or `Returning`. In all states but `APIServer` the gateway evaluates "
    "them. Only with `policies.installation`; the smallest of all processes",
    "state",
    is_lowest=True,
)
PLACEMENT_CORRECTIONS: Final = _counter(
    "policy_placement_corrections",
    "objects of such policies, by kind of the policy, that were written again because another program had "
    "changed or deleted them",
    "kind",
)

DECISIONS_LOGGED: Final = _counter("decision_log_records", "records of the decision log")
DECISIONS_DROPPED: Final = _counter(
    "decision_log_dropped",
    "records that were not written: above the rate, or because the sink (`stderr`, `file` or `otlp`) was "
    "blocked or failed",
    "sink",
)
FINDINGS_DROPPED: Final = _counter(
    "findings_dropped",
    "findings and denials that were not written into a [report or Event](reports.md#losses). Only with "
    "`reports`",
)

REVIEWS_RECORDED: Final = _counter(
    "recorded_reviews", "reviews in [recordings](recordings.md). Only with `record`"
)
REVIEWS_NOT_IN_RECORDING: Final = _counter(
    "recording_dropped",
    "reviews that were to be recorded and were not; `reason` is `rate` (`maxPerSecond`), `size` (more than "
    "64 KiB), `queue` (too many at once), `redaction` (too deep, or too many secret values) or `writer` "
    "(files could not be written, or not fast enough). Only with `record`",
    "reason",
)

# -- traces ---------------------------------------------------------------------------------------

SPANS_EXPORTED: Final = _counter("trace_spans_exported", "spans that the collector took. Only with `tracing`")
SPANS_DROPPED: Final = _counter(
    "trace_spans_dropped",
    "spans that were dropped; `reason` is `export_failed` (the collector did not take them) or `queue_full`. "
    "Only with `tracing`",
    "reason",
)
REVIEWS_NOT_RECORDED: Final = _counter(
    "trace_reviews_not_recorded",
    "sampled reviews without spans, because of `maxSpansPerSecond`. Only with `tracing`",
)

# -- processes ------------------------------------------------------------------------------------

BUILD_INFO: Final = _gauge(
    "build_info",
    "always 1; the versions of the gateway and of Python",
    *("version", "python_version"),
    is_lowest=True,
)


def _of_process(name: str, kind: Kind, text: str) -> None:
    """Define a metric of prometheus_client's ProcessCollector. A single process has no label ``process``."""
    _define(Definition(f"process_{name}", kind, text, ("process",)))


_of_process("cpu_seconds_total", "counter", "CPU time, user and system")
_of_process("resident_memory_bytes", "gauge", "resident memory")
_of_process("virtual_memory_bytes", "gauge", "virtual memory")
_of_process("open_fds", "gauge", "open file descriptors")
_of_process("max_fds", "gauge", "limit of open file descriptors")
_of_process("start_time_seconds", "gauge", "when the process started, Unix time")
