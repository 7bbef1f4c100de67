"""The table of the dashboard's panels: PromQL over the metrics of ``gateway.observe.telemetry.definitions``.

In a query ``<pods>`` stands for the matchers of the variables namespace and pod, ``<webhooks>`` for these and
the variable webhook.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel."""

    title: str
    queries: dict[str, str]
    """PromQL by legend, in which labels are ``{{NAME}}``."""
    unit: str = "short"
    """A unit of Grafana."""
    kind: str = "timeseries"
    width: int = 8
    text: str = ""
    """The description, shown at the title."""
    bad_from: float | None = None
    """The value from which on it is red, if there is one."""
    bad_below: float | None = None
    """The value below which it is red, if there is one."""
    has_exemplars: bool = False
    is_yes_or_no: bool = False
    """Whether the values are 1, which is good, and 0."""


def _rate(series: str, by: str = "", matchers: str = "<pods>") -> str:
    """Return the rate of *series*, summed by the labels *by*."""
    rate = f"(rate({series}{{{matchers}}}[$__rate_interval]))"
    return f"sum by ({by}) {rate}" if by else f"sum {rate}"


def _count(series: str, by: str, matchers: str) -> str:
    """Return how much *series* rose in the time range of the dashboard, summed by the labels *by*.

    ``increase`` does not see the first event of a series, which appears with it: hence the first value of a
    series that is younger than the range.
    """
    selected = f"{series}{{{matchers}}}"
    rise = f"increase({selected}[$__range])"
    first = f"(min_over_time({selected}[$__range]) unless {selected} offset $__range)"
    return f"sum by ({by}) ({rise} + {first} or {rise})"


def _quantile(quantile: float, histogram: str, by: str = "", matchers: str = "<pods>") -> str:
    """Return the *quantile* of *histogram* by the labels *by*."""
    return (
        f"histogram_quantile({quantile}, {_rate(f'{histogram}_bucket', f'{by}, le'.lstrip(', '), matchers)})"
    )


_G: Final = "admission_gateway_"
_REVIEWS: Final = f"{_G}review_duration_seconds"
_CALLS: Final = f"{_G}webhook_admission_duration_seconds"
_REJECTIONS: Final = f"{_G}webhook_rejections_total"
_DENIED: Final = '<webhooks>, error_type="no_error"'
_FAILED: Final = '<webhooks>, error_type!="no_error"'
_WORKERS: Final = 'namespace=~"$namespace"'
"""Workers and audits can be in any pod; the variable pod has those of the gateway."""
_WEBHOOK: Final = "{{name}} ({{type}})"
_PLAN: Final = f"{_WEBHOOK} {{{{configuration}}}}"
_OF_PLAN: Final = "name, type, configuration"

_AUDIT: Final = f"{_G}audit_"

_DISPUTES: Final = (
    f"topk(15, {_count(f'{_G}mutation_disputes_total', 'kind, name, other, path', '<webhooks>')})"
)

ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Overview": (
        Panel(
            "Replicas", {"replicas": f"count({_G}build_info{{<pods>}})"}, kind="stat", width=3, bad_below=1
        ),
        Panel("Reviews", {"reviews": _rate(f"{_REVIEWS}_count")}, "reqps", "stat", 3),
        Panel(
            "Denied",
            {"denied": _rate(f"{_REVIEWS}_count", matchers='<pods>, allowed="false"')},
            *("reqps", "stat", 3),
            text="Reviews that were not allowed: by a denial, or a failure under failurePolicy Fail.",
        ),
        Panel(
            "Failed open",
            {"failed open": f"sum({_count(f'{_G}webhook_fail_open_total', 'name', '<webhooks>')})"},
            kind="stat",
            width=3,
            text="Failures in the time range that failurePolicy Ignore let pass.",
            bad_from=1,
        ),
        Panel(
            "Failed closed",
            {"failed closed": f"sum({_count(_REJECTIONS, 'name', _FAILED)})"},
            kind="stat",
            width=3,
            text="Requests in the time range that a failure under failurePolicy Fail refused.",
            bad_from=1,
        ),
        Panel("99th percentile", {"p99": _quantile(0.99, _REVIEWS)}, "s", "stat", 3, bad_from=5),
        Panel(
            "Endpoints ready",
            {"ready": f'sum({_G}worker_endpoints{{<pods>, state="ready"}})'},
            kind="stat",
            width=3,
            bad_below=1,
        ),
        Panel(
            "Last change accepted",
            {"accepted": f"min({_G}config_last_reload_successful{{<pods>}})"},
            kind="stat",
            width=3,
            text="Whether every replica has the newest files in force. no: one of them refuses a change.",
            is_yes_or_no=True,
        ),
    ),
    "Alerts": (
        Panel(
            "Alerts that fire",
            {"{{alertname}}": 'ALERTS{alertname=~"AdmissionGateway.*", alertstate="firing"}'},
            kind="table",
            width=24,
            text="docs/runbooks has a page for each of them.",
        ),
    ),
    "Denials": (
        Panel(
            "Denials by webhook",
            {_WEBHOOK: _rate(_REJECTIONS, "name, type", _DENIED)},
            "reqps",
            width=12,
            text="Metrics name no users and namespaces: docs/decision-log.md and the page /decisions do.",
        ),
        Panel(
            "Denials in the time range",
            {_WEBHOOK: f"topk(15, {_count(_REJECTIONS, 'name, type', _DENIED)})"},
            kind="bargauge",
            width=12,
        ),
        Panel(
            "Denied requests by operation",
            {
                "{{operation}} ({{type}})": _rate(
                    f"{_REVIEWS}_count", "operation, type", '<pods>, allowed="false"'
                )
            },
            "reqps",
        ),
        Panel(
            "Webhooks excluded by a matchCondition",
            {_WEBHOOK: _rate(f"{_G}match_condition_exclusions_total", "name, type", "<webhooks>")},
            "reqps",
        ),
        Panel(
            "Calls by webhook",
            {_WEBHOOK: _rate(f"{_G}webhook_requests_total", "name, type", "<webhooks>")},
            "reqps",
        ),
    ),
    "Failures": (
        Panel(
            "Fails open, by webhook",
            {_WEBHOOK: _rate(f"{_G}webhook_fail_open_total", "name, type", "<webhooks>")},
            "reqps",
            text="Requests that passed unchecked, because failurePolicy is Ignore.",
        ),
        Panel(
            "Fails closed, by webhook",
            {"{{name}} ({{type}}) {{error_type}}": _rate(_REJECTIONS, "name, type, error_type", _FAILED)},
            "reqps",
            text="Requests that users could not make, because failurePolicy is Fail.",
        ),
        Panel(
            "Calls by gRPC status, without OK",
            {
                "{{pool}} {{code}}": _rate(
                    f"{_G}worker_calls_total", "pool, code", '<pods>, code!~"OK|CANCELLED"'
                )
            },
            "reqps",
        ),
        Panel(
            "matchConditions that cannot be evaluated",
            {_WEBHOOK: _rate(f"{_G}match_condition_evaluation_errors_total", "name, type", "<webhooks>")},
            "reqps",
        ),
        Panel(
            "Requests refused, by HTTP status",
            {"{{code}}": _rate(f"{_G}requests_refused_total", "code")},
            "reqps",
            text="503: overload or restart; 401 and 403: not authenticated; 400: not an AdmissionReview.",
        ),
        Panel(
            "Reviews cancelled by the client",
            {"{{type}}": _rate(f"{_G}reviews_cancelled_total", "type")},
            "reqps",
            text="The timeout of the registration was over, or kube-apiserver closed its connections.",
        ),
        Panel(
            "Mutating webhooks that do not come to rest, in the time range",
            {
                "{{kind}} {{name}} {{other}} {{path}}": _DISPUTES,
            },
            kind="bargauge",
            width=24,
            text="Reviews in which they undo each other, or change what is stored again: docs/mutators.md.",
        ),
    ),
    "Rollout plans": (
        Panel(
            "Stage in force",
            {_PLAN: f"min by ({_OF_PLAN}) ({_G}rollout_plan_stage{{<webhooks>}})"},
            text="From 1; the smallest of all replicas. All panels mark when it changed.",
        ),
        Panel(
            "Phase",
            {f"{_PLAN} {{{{phase}}}}": f"max by ({_OF_PLAN}, phase) ({_G}rollout_plan_phase{{<webhooks>}})"},
            kind="table",
            text="Held: the plan was removed, and its stage holds. Unknown: its state has not been read.",
        ),
        Panel(
            "What plans wait for",
            {
                f"{_PLAN} {{{{reason}}}}": f"max by ({_OF_PLAN}, reason) "
                f'({_G}rollout_plan_waiting{{<webhooks>, reason!="nothing"}})'
            },
            kind="table",
            text="person: an approval, or someone stopped it. gateway: the gateway stopped it. "
            "The page /rollouts says the rest.",
        ),
        Panel(
            "Gates that do not pass",
            {
                f"{_PLAN} {{{{value}}}}": f"max by ({_OF_PLAN}, value) "
                f'({_G}rollout_plan_gates{{<webhooks>, value!="pass"}}) > 0'
            },
            width=12,
        ),
        Panel(
            "Would have been denied, in the time range",
            {
                "{{name}} ({{type}}) {{mode}}": "topk(15, "
                + _count(f"{_G}webhook_not_enforced_total", "name, type, mode", '<webhooks>, result="denied"')
                + ")"
            },
            kind="bargauge",
            width=12,
            text="By webhooks that are not enforced where the request was.",
        ),
    ),
    "Latency": (
        Panel(
            "Reviews",
            {
                "p50 {{type}}": _quantile(0.5, _REVIEWS, "type"),
                "p99 {{type}}": _quantile(0.99, _REVIEWS, "type"),
            },
            "s",
            has_exemplars=True,
            text="From the complete request to the answer. The points are sampled reviews with their traces.",
        ),
        Panel(
            "99th percentile by webhook",
            {_WEBHOOK: _quantile(0.99, _CALLS, "name, type", "<webhooks>")},
            "s",
            has_exemplars=True,
        ),
        Panel(
            "99th percentile, share of the timeout",
            {
                _WEBHOOK: f"{_quantile(0.99, _CALLS, 'name, type', '<webhooks>')} / "
                f"max by (name, type) ({_G}webhook_timeout_seconds{{<webhooks>}})"
            },
            "percentunit",
            bad_from=0.8,
        ),
        Panel("Median by webhook", {_WEBHOOK: _quantile(0.5, _CALLS, "name, type", "<webhooks>")}, "s"),
        Panel(
            "Queue time of calls",
            {
                "p50 {{pool}}": _quantile(0.5, f"{_G}worker_queue_seconds", "pool"),
                "p99 {{pool}}": _quantile(0.99, f"{_G}worker_queue_seconds", "pool"),
            },
            "s",
            text="Time that a call waited in the gateway to be written. High: the process is saturated.",
        ),
        Panel(
            "Distribution of reviews",
            {"{{le}}": f"sum by (le) (increase({_REVIEWS}_bucket{{<pods>}}[$__rate_interval]))"},
            "s",
            "heatmap",
        ),
    ),
    "Workers": (
        Panel(
            "Endpoints by state",
            {"{{pool}} {{state}}": f"sum by (pool, state) ({_G}worker_endpoints{{<pods>}}) > 0"},
            text="Of all replicas. Only ready endpoints get calls while a pool has one.",
        ),
        Panel(
            "Calls by endpoint",
            {"{{pool}} {{endpoint}}": _rate(f"{_G}worker_calls_total", "pool, endpoint")},
            "reqps",
        ),
        Panel(
            "Failed calls by endpoint",
            {
                "{{pool}} {{endpoint}} {{code}}": _rate(
                    f"{_G}worker_calls_total", "pool, endpoint, code", '<pods>, code!~"OK|CANCELLED"'
                )
            },
            "reqps",
        ),
        Panel(
            "Calls in flight, share of maxInFlight",
            {
                "{{pool}}": f"sum by (pool) ({_G}worker_calls_in_flight{{<pods>}}) / "
                f"(sum by (pool) ({_G}worker_calls_in_flight_limit{{<pods>}}) > 0)"
            },
            "percentunit",
            bad_from=0.8,
        ),
        Panel(
            "Retries and hedges",
            {
                "retries {{pool}}": _rate(f"{_G}worker_retries_total", "pool"),
                "hedges {{pool}}": _rate(f"{_G}worker_hedges_total", "pool"),
            },
            "reqps",
        ),
        Panel(
            "Calls in one message",
            {
                "{{pool}}": f"{_rate(f'{_G}worker_batch_size_sum', 'pool')} / "
                f"{_rate(f'{_G}worker_batch_size_count', 'pool')}"
            },
        ),
        Panel(
            "Workers that do not serve a policy",
            {"{{name}} ({{type}}) {{reason}}": f"{_G}webhook_policy_mismatches{{<webhooks>}}"},
            bad_from=1,
        ),
        Panel(
            "Calls ahead of their turn",
            {"{{outcome}}": _rate(f"{_G}speculation_total", "outcome")},
            "reqps",
            text="discarded: the object changed, and the webhook was called again.",
        ),
    ),
    "Policies, as workers count them": (
        Panel(
            "Reviews by policy",
            {
                "{{policy}} {{outcome}}": _rate(
                    f"{_G}worker_policy_reviews_total", "policy, outcome", _WORKERS
                )
            },
            "reqps",
            text="Of workers that run with --metrics-listen. error: the policy failed, or a deadline passed.",
        ),
        Panel(
            "99th percentile by policy",
            {"{{policy}}": _quantile(0.99, f"{_G}worker_policy_duration_seconds", "policy", _WORKERS)},
            "s",
            text="Without network and queues: compare it with the webhook's.",
        ),
        Panel(
            "Policies that run",
            {"{{policy}}": f"sum by (policy) ({_G}worker_policy_in_flight{{{_WORKERS}}})"},
        ),
        Panel(
            "Versions of workers",
            {"{{pod}} {{sdk}} {{version}} {{runtime}}": f"{_G}worker_build_info{{{_WORKERS}}}"},
            kind="table",
            width=24,
        ),
    ),
    "Audits of stored objects": (
        Panel(
            "Findings",
            {
                "{{finding}} {{part}} {{webhook}}": "topk(15, sum by (finding, part, webhook) "
                f"({_AUDIT}findings{{{_WORKERS}}}))"
            },
            kind="bargauge",
            width=12,
            text="restart: of the Pods that workloads would get next. docs/audit.md",
        ),
        Panel(
            "Workloads that would be refused at their next restart",
            {"{{namespace}}": f"max by (namespace) ({_AUDIT}workloads_refused_at_restart{{{_WORKERS}}})"},
            width=12,
            bad_from=1,
        ),
        Panel(
            "Age of the last complete pass",
            {
                "{{namespace}}": "time() - max by (namespace) (max_over_time(("
                f"{_AUDIT}last_pass_timestamp_seconds{{{_WORKERS}}} and {_AUDIT}complete == 1)[7d:5m]))"
            },
            *("s", "stat", 6),
            text="Empty if there was none for a week.",
        ),
        Panel(
            "All objects have a verdict",
            {"{{namespace}}": f"min by (namespace) ({_AUDIT}complete{{{_WORKERS}}})"},
            kind="state-timeline",
            width=6,
            is_yes_or_no=True,
        ),
        Panel(
            "Objects and verdicts",
            {
                "objects that were read": f"sum ({_AUDIT}objects_read{{{_WORKERS}}})",
                "verdicts": f"sum ({_AUDIT}verdicts{{{_WORKERS}}})",
                "new verdicts": f"sum ({_AUDIT}evaluated{{{_WORKERS}}})",
            },
            width=12,
        ),
    ),
    "Configuration, certificates, cluster": (
        Panel(
            "Configuration in force",
            {"{{namespace}} {{pod}} {{digest}}": f"{_G}config_info{{<pods>}}"},
            kind="table",
            width=12,
            text="Replicas with different digests decide differently.",
        ),
        Panel(
            "Versions",
            {
                "{{namespace}} {{pod}} {{version}} Python {{python_version}}": f"{_G}build_info{{<pods>}}",
            },
            kind="table",
            width=12,
        ),
        Panel(
            "Last change accepted",
            {"{{namespace}} {{pod}}": f"{_G}config_last_reload_successful{{<pods>}}"},
            kind="state-timeline",
            is_yes_or_no=True,
        ),
        Panel(
            "Age of the configuration",
            {"{{namespace}} {{pod}}": f"time() - {_G}config_last_reload_success_timestamp_seconds{{<pods>}}"},
            "s",
        ),
        Panel(
            "Time until the certificate expires",
            {
                "{{namespace}} {{pod}}": f"{_G}tls_certificate_expiry_timestamp_seconds{{<pods>}} - time()",
            },
            "s",
            bad_below=14 * 86_400,
        ),
        Panel(
            "Watch of the cluster connected",
            {"{{namespace}} {{pod}}": f"{_G}cluster_watch_connected{{<pods>}}"},
            kind="state-timeline",
            is_yes_or_no=True,
        ),
        Panel(
            "Policies by where they are evaluated",
            {"{{state}}": f"max by (state) ({_G}policy_placement{{<pods>}})"},
        ),
        Panel(
            "Policies in the API server that were corrected",
            {"{{kind}}": _rate(f"{_G}policy_placement_corrections_total", "kind")},
        ),
        Panel("CA bundles followed", {"{{state}}": f"sum by (state) ({_G}ca_bundles{{<pods>}})"}),
        Panel("Namespaces known", {"{{namespace}} {{pod}}": f"{_G}cluster_namespaces{{<pods>}}"}),
    ),
    "Saturation": (
        Panel(
            "Reviews in flight, share of the limit",
            {
                "{{namespace}} {{pod}}": f"{_G}reviews_in_flight{{<pods>}} / "
                f"({_G}reviews_in_flight_limit{{<pods>}} > 0)"
            },
            "percentunit",
            bad_from=0.8,
        ),
        Panel(
            "Request bytes in flight, share of the limit",
            {
                "{{namespace}} {{pod}}": f"{_G}request_bytes_in_flight{{<pods>}} / "
                f"({_G}request_bytes_in_flight_limit{{<pods>}} > 0)"
            },
            "percentunit",
            bad_from=0.8,
        ),
        Panel(
            "CPUs by process",
            {
                "{{pod}} {{process}}": "rate(process_cpu_seconds_total{<pods>}[$__rate_interval]) "
                f"* on (namespace, pod, job, instance) group_left () {_G}build_info"
            },
            bad_from=0.9,
            text="A process handles reviews in one thread: above 0.9 answers become late.",
        ),
        Panel(
            "Memory by process",
            {
                "{{pod}} {{process}}": "process_resident_memory_bytes{<pods>} "
                f"* on (namespace, pod, job, instance) group_left () {_G}build_info"
            },
            "bytes",
        ),
        Panel(
            "Open files, share of the limit",
            {
                "{{pod}} {{process}}": "process_open_fds{<pods>} / process_max_fds "
                f"* on (namespace, pod, job, instance) group_left () {_G}build_info"
            },
            "percentunit",
            bad_from=0.8,
        ),
        Panel(
            "Age of the process",
            {
                "{{pod}} {{process}}": "(time() - process_start_time_seconds{<pods>}) "
                f"* on (namespace, pod, job, instance) group_left () {_G}build_info"
            },
            "s",
        ),
    ),
    "Records": (
        Panel(
            "Records that are dropped",
            {
                "decisions, {{sink}}": _rate(f"{_G}decision_log_dropped_total", "sink"),
                "findings of reports and Events": _rate(f"{_G}findings_dropped_total"),
                "recorded reviews, {{reason}}": _rate(f"{_G}recording_dropped_total", "reason"),
                "spans, {{reason}}": _rate(f"{_G}trace_spans_dropped_total", "reason"),
                "sampled reviews, over maxSpansPerSecond": _rate(f"{_G}trace_reviews_not_recorded_total"),
            },
            "cps",
            width=12,
        ),
        Panel(
            "Records that are written",
            {
                "decisions": _rate(f"{_G}decision_log_records_total"),
                "reviews in recordings": _rate(f"{_G}recorded_reviews_total"),
                "spans": _rate(f"{_G}trace_spans_exported_total"),
            },
            "cps",
            width=12,
        ),
    ),
}
