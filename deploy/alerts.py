"""The table of alerts: PromQL expressions over the metrics of ``gateway.observe.telemetry.definitions``.

``deploy.monitoring`` makes ``chart/files/prometheus-rule.yaml`` and a table of docs/metrics.md
from it. Each alert has a page in docs/runbooks. Counters are summed over replicas by the target's label
``namespace``, which Prometheus sets for pods; states of one replica keep all labels of their target.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

PREFIX: Final = "AdmissionGateway"
RECORDS: Final = ("decision_log", "findings", "trace_spans")
"""What is counted as ``NAME_dropped_total``."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert."""

    name: str
    """Without the prefix."""
    severity: Literal["critical", "warning"]
    """critical: users' requests fail or are not checked now; warning: they will, or something is degraded."""
    expression: str
    for_minutes: int
    summary: str
    """One line for notifications. It and the description may have labels: ``{{ $labels.NAME }}``."""
    description: str
    """The effect, and what to look at first."""

    @property
    def runbook(self) -> str:
        """The path of the runbook page below ``docs/runbooks``, such as ``fail-open.md``."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", self.name).lower() + ".md"

    @property
    def rule(self) -> dict[str, object]:
        """The alerting rule as Prometheus reads it."""
        return {
            "alert": PREFIX + self.name,
            "expr": " ".join(self.expression.split()),
            **({"for": f"{self.for_minutes}m"} if self.for_minutes else {}),
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"docs/runbooks/{self.runbook}",
            },
        }


def _rises(series: str, *labels: str, minutes: int = 5) -> str:
    """Return the expression for a counter that rose in the last *minutes*, by *labels*.

    An alert that is longer pending than that fires only if the counter rises again and again.
    ``increase`` does not see the first event of a series, which appears with it: hence the second part.
    """
    by = ", ".join(("namespace", *labels))
    return (
        f"sum by ({by}) (increase({series}[{minutes}m])) > 0\n"
        f"or\n"
        f"sum by ({by}) ({series} unless {series} offset {minutes}m) > 0"
    )


_WEBHOOK: Final = "webhook {{ $labels.name }} ({{ $labels.type }})"
_DAY_S: Final = 86_400
_DAY_MINUTES: Final = 24 * 60
_PLAN: Final = "namespace, name, type, configuration"
"""The labels of a rollout plan, whose metrics are the same in all replicas."""
_PLAN_OF: Final = f"the rollout plan of {_WEBHOOK} in {{{{ $labels.configuration }}}}"

ALERTS: Final = (
    Alert(
        "Down",
        "critical",
        "absent(admission_gateway_build_info)",
        2,
        "no admission-gateway is scraped",
        "No replica answers on its admin port, or Prometheus has no target. Requests that a registered "
        "webhook with failurePolicy Fail covers are refused, and others are not checked.",
    ),
    Alert(
        "ReplicaDown",
        "warning",
        'up{job=~".*admission-gateway.*"} == 0',
        10,
        "a replica of admission-gateway cannot be scraped",
        "The target {{ $labels.instance }} does not answer on /metrics. The other replicas serve, with less "
        "room for load and failures.",
    ),
    Alert(
        "FailOpen",
        "warning",
        _rises("admission_gateway_webhook_fail_open_total", "name", "type"),
        0,
        f"{_WEBHOOK} fails open",
        "Its calls fail, and failurePolicy Ignore lets the requests pass unchecked. The audit annotation "
        "failed-open and the decision log name the requests.",
    ),
    Alert(
        "FailClosed",
        "critical",
        _rises(
            'admission_gateway_webhook_rejections_total{error_type!="no_error"}', "name", "type", minutes=2
        ),
        3,
        f"{_WEBHOOK} fails closed",
        "Its calls fail, and failurePolicy Fail refuses the requests of users. Look at its worker pool "
        "first.",
    ),
    Alert(
        "NoWorker",
        "critical",
        'sum without (state) (admission_gateway_worker_endpoints{state="ready"}) == 0',
        1,
        "worker pool {{ $labels.pool }} has no ready endpoint",
        "All calls to the pool fail at once: its webhooks fail open or closed, as their failurePolicy says.",
    ),
    Alert(
        "PoliciesNotServed",
        "critical",
        "max by (namespace, name, type, reason) (admission_gateway_webhook_policy_mismatches) > 0",
        2,
        f"{_WEBHOOK} has a policy that its workers do not serve",
        "All its calls fail, or will fail: {{ $labels.reason }}. The webhook fails open or closed, as its "
        "failurePolicy says.",
    ),
    Alert(
        "PoolFull",
        "warning",
        "admission_gateway_worker_calls_in_flight\n"
        "/ (admission_gateway_worker_calls_in_flight_limit > 0) > 0.8",
        5,
        "worker pool {{ $labels.pool }} has {{ $value | humanizePercentage }} of its calls in flight",
        "Above maxInFlight calls fail with RESOURCE_EXHAUSTED. The workers are too slow or too few.",
    ),
    Alert(
        "WebhookSlow",
        "warning",
        "histogram_quantile(0.99, sum by (namespace, name, type, le) "
        "(rate(admission_gateway_webhook_admission_duration_seconds_bucket[10m])))\n"
        "> on (namespace, name, type)\n"
        "0.8 * max by (namespace, name, type) (admission_gateway_webhook_timeout_seconds)",
        10,
        f"{_WEBHOOK} uses most of its timeout",
        "The 99th percentile of its calls is {{ $value | humanizeDuration }}, more than 80 % of "
        "timeoutSeconds. Calls beyond the timeout fail.",
    ),
    Alert(
        "MatchConditionErrors",
        "warning",
        _rises("admission_gateway_match_condition_evaluation_errors_total", "name", "type"),
        0,
        f"{_WEBHOOK} has a matchCondition that fails",
        "An expression has no value for some requests. These fail open or closed, as failurePolicy says.",
    ),
    Alert(
        "Overloaded",
        "warning",
        _rises('admission_gateway_requests_refused_total{code="503"}', minutes=2),
        3,
        "reviews are refused because of overload",
        "limits.maxConcurrentReviews or limits.maxBytesInFlight is reached, or replicas restart. "
        "kube-apiserver sends such a review again, until the timeout of the registration.",
    ),
    Alert(
        "NearLimit",
        "warning",
        "admission_gateway_reviews_in_flight\n"
        "/ (admission_gateway_reviews_in_flight_limit > 0) > 0.8\n"
        "or\n"
        "admission_gateway_request_bytes_in_flight\n"
        "/ (admission_gateway_request_bytes_in_flight_limit > 0) > 0.8",
        5,
        "a replica has {{ $value | humanizePercentage }} of the reviews in flight that it allows",
        "Above limits.maxConcurrentReviews and limits.maxBytesInFlight reviews are refused with 503.",
    ),
    Alert(
        "Saturated",
        "warning",
        "rate(process_cpu_seconds_total[5m])\n"
        "* on (namespace, pod, job, instance) group_left () admission_gateway_build_info\n"
        "> 0.9",
        10,
        "a gateway process uses a whole CPU",
        "Process {{ $labels.process }} of {{ $labels.instance }} handles reviews in one thread, which is "
        "busy: answers become late.",
    ),
    Alert(
        "InternalErrors",
        "warning",
        _rises('admission_gateway_requests_refused_total{code="500"}'),
        0,
        "reviews are answered with status 500",
        "The gateway has a bug that these reviews show: the log has a traceback. kube-apiserver applies the "
        "failurePolicy of the registration.",
    ),
    Alert(
        "CertificateExpiresSoon",
        "warning",
        f"0 < (admission_gateway_tls_certificate_expiry_timestamp_seconds - time()) < {14 * _DAY_S}",
        60,
        "the serving certificate expires in {{ $value | humanizeDuration }}",
        "After that kube-apiserver cannot call the gateway. It has not been renewed, or the renewed file is "
        "refused.",
    ),
    Alert(
        "CertificateExpired",
        "critical",
        f"(admission_gateway_tls_certificate_expiry_timestamp_seconds > 0) - time() < {_DAY_S}",
        0,
        "the serving certificate has expired, or expires within a day",
        "kube-apiserver cannot call a gateway with an expired certificate: requests are refused or not "
        "checked, as the failurePolicy of the registration says.",
    ),
    Alert(
        "ReloadRefused",
        "warning",
        "admission_gateway_config_last_reload_successful == 0",
        5,
        "a changed configuration, certificate or credential is refused",
        "The configuration before stays in force. A replica that starts with the new files does not become "
        "ready.",
    ),
    Alert(
        "ConfigurationsDiffer",
        "warning",
        "count by (namespace, job) (count by (namespace, job, digest) (admission_gateway_config_info)) > 1",
        15,
        "replicas decide by different configurations",
        "A request is allowed or denied depending on the replica. One of them refuses a change, or does not "
        "get it.",
    ),
    Alert(
        "RecordsDropped",
        "warning",
        " or ".join(_rises(f"admission_gateway_{record}_dropped_total") for record in RECORDS),
        5,
        "records of decisions are dropped",
        "More findings, decisions or spans come up than their limits allow, or where they are sent does not "
        "take them. Reviews are not affected.",
    ),
    Alert(
        "CaBundleNotFollowed",
        "warning",
        'sum by (namespace, job) (admission_gateway_ca_bundles{state=~"kept|missing"}) > 0',
        5,
        "the CA of an HTTPS webhook cannot be followed",
        "The last valid bundle stays in force, and calls fail when the webhook's certificate is replaced. "
        "Without any valid bundle the webhook fails by its failurePolicy.",
    ),
    Alert(
        "WatchDisconnected",
        "warning",
        "admission_gateway_cluster_watch_connected == 0",
        5,
        "a replica gets no changes of the cluster",
        "Labels of namespaces, and custom resources, are those of the time when the connection was lost.",
    ),
    Alert(
        "RolloutPlanStopped",
        "warning",
        f'max by ({_PLAN}, phase) (admission_gateway_rollout_plan_phase{{phase=~"Paused|RolledBack"}})\n'
        f"and on ({_PLAN})\n"
        'admission_gateway_rollout_plan_waiting{reason="gateway"}',
        0,
        f"the gateway stopped {_PLAN_OF}: {{{{ $labels.phase }}}}",
        "A gate failed, or had no data within maxWait. The stage holds until a person resumes the plan.",
    ),
    Alert(
        "RolloutPlansBlocked",
        "warning",
        f"count by (namespace, reason) (max by ({_PLAN}, reason) "
        '(admission_gateway_rollout_plan_waiting{reason=~"store|processes"}))',
        15,
        "{{ $value | humanize }} rollout plans cannot be promoted or rolled back: {{ $labels.reason }}",
        "store: the states of plans cannot be read or written. processes: some replicas have another plan. "
        "All stages stay as they are.",
    ),
    Alert(
        "RolloutPlanWithoutData",
        "warning",
        f'max by ({_PLAN}) (admission_gateway_rollout_plan_waiting{{reason="data"}})',
        _DAY_MINUTES,
        f"{_PLAN_OF} has too little data for a day",
        "The stage has lasted its time, and a gate is still unknown: too few requests, or the evidence of a "
        "replica is missing. The plan pauses after maxWait.",
    ),
    Alert(
        "RolloutPlanHeld",
        "warning",
        f'max by ({_PLAN}) (admission_gateway_rollout_plan_phase{{phase="Held"}})',
        _DAY_MINUTES,
        f"{_PLAN_OF} was removed, and its stage holds",
        "The webhook is not enforced everywhere, and no plan will change that. Write its mode.",
    ),
)

WATCHDOG_ALERTS: Final = (
    Alert(
        "RegistrationRelaxed",
        "critical",
        "max by (namespace, kind, step) (admission_gateway_watchdog_relaxed) > 0",
        0,
        "a registration is relaxed",
        "{{ $labels.kind }} is relaxed ({{ $labels.step }}) while no gateway answers. What is admitted now "
        "has to be audited.",
    ),
    Alert(
        "WatchdogAlerting",
        "critical",
        "max by (namespace) (admission_gateway_watchdog_alerting) > 0",
        0,
        "the API server does not reach the gateway",
        "Requests for webhooks with failurePolicy Fail are refused, unless the registration is relaxed.",
    ),
    Alert(
        "WatchdogSilent",
        "warning",
        "time() - max by (namespace) (admission_gateway_watchdog_last_look_timestamp_seconds) > 120",
        2,
        "no watchdog looks at the gateway",
        "The watchdog cannot reach the API server, or does not run. It relaxes and restores nothing.",
    ),
)
"""Over the metrics of ``gateway.tools.watchdog.run``."""

_AUDIT: Final = "admission_gateway_audit_"
AUDIT_ALERTS: Final = (
    Alert(
        "AuditIncomplete",
        "warning",
        f"min by (namespace) ({_AUDIT}complete) == 0\n"
        "or\n"
        f'sum by (namespace) ({_AUDIT}findings{{finding="failed"}}) > 0',
        30,
        "the audit of stored objects is incomplete",
        "A kind cannot be read, a webhook fails, or an object has no verdict. Findings may be missing.",
    ),
    Alert(
        "AuditStale",
        "warning",
        f"time() - max by (namespace) ({_AUDIT}last_pass_timestamp_seconds)\n"
        f"> 2 * max by (namespace) ({_AUDIT}interval_seconds)\n"
        "or\n"
        f"absent_over_time({_AUDIT}last_pass_timestamp_seconds[1h])",
        15,
        "the audit of stored objects has no result for two intervals",
        "It does not run, is not scraped, or cannot use the configuration or the API server.",
    ),
    Alert(
        "WorkloadsRefusedAtRestart",
        "warning",
        f"max by (namespace) ({_AUDIT}workloads_refused_at_restart) > 0",
        30,
        "{{ $value | humanize }} workloads would be refused at their next restart",
        "Their Pods run, and a policy in force denies the Pods that would replace them: after a failure of a "
        "node, or a deployment, they are down.",
    ),
)
"""Over the metrics of ``gateway.tools.audit.metrics``, of a continuous audit."""
