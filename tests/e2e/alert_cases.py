"""Series for each alert, and when it fires for them: cases of ``promtool test rules``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.alerts import ALERTS, PREFIX
from deploy.monitoring import APART

G: Final = "admission_gateway_"
BY_NAME: Final = {alert.name: alert for alerts in (ALERTS, *APART.values()) for alert in alerts}
POD: Final = {"namespace": "ns", "pod": "a", "job": "ns/admission-gateway", "instance": "10.0.0.1:9090"}
OTHER_POD: Final = {**POD, "pod": "b", "instance": "10.0.0.2:9090"}
JOB: Final = {"namespace": "ns", "job": POD["job"]}
NS: Final = {"namespace": "ns"}
HOOK: Final = {"name": "h.test", "type": "validating"}
SUMMED: Final = {"namespace": "ns", **HOOK}
PLAN: Final = {**HOOK, "configuration": "checks"}
_STEP_S: Final = 60


def series(metric: str, values: str, pod: dict[str, str] = POD, /, **labels: str) -> dict[str, str]:
    """Return one input series; *values* in promtool's notation, one a minute."""
    named = ",".join(f'{key}="{value}"' for key, value in {**pod, **labels}.items())
    name = metric if metric.startswith(("up", "process_")) else G + metric
    return {"series": f"{name}{{{named}}}", "values": values}


@dataclass(frozen=True, slots=True)
class Case:
    """One alert, evaluated at one minute."""

    alert: str
    about: str
    minute: int
    series: list[dict[str, str]] = field(default_factory=list)
    labels: dict[str, str] | None = None
    """Labels of the one alert that fires; None if it does not fire."""
    value: str = ""
    """The value, as the annotations show it."""

    def test(self) -> dict[str, Any]:
        """Return the case as an entry of promtool's file."""
        alert = BY_NAME[self.alert]
        fires = []
        if self.labels is not None:
            annotations: Any = alert.rule["annotations"]
            expected = {key: self._shown(text) for key, text in annotations.items()}
            fires = [{"exp_labels": {**self.labels, "severity": alert.severity}, "exp_annotations": expected}]
        return {
            "name": f"{self.alert}: {self.about}",
            "interval": f"{_STEP_S}s",
            "input_series": self.series,
            "alert_rule_test": [
                {"eval_time": f"{self.minute}m", "alertname": PREFIX + self.alert, "exp_alerts": fires}
            ],
        }

    def _shown(self, text: str) -> str:
        labels = self.labels or {}
        shown = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels.get(found[1], ""), text)
        return re.sub(r"{{ \$value [^}]*}}", self.value, shown)


def latencies(values: str, bound: str) -> list[dict[str, str]]:
    """Return the histogram of a webhook with a timeout of 10 s; all its calls are up to *bound* seconds."""
    metric = "webhook_admission_duration_seconds_bucket"
    names = ("0.5", "5", "10", "+Inf")
    place = names.index(bound)
    return [
        series("webhook_timeout_seconds", "10x60", **HOOK),
        *(
            series(
                metric, values if at >= place else "0x60", **HOOK, operation="CREATE", rejected="false", le=le
            )
            for at, le in enumerate(names)
        ),
    ]


def waits(
    reason: str, values: str, pod: dict[str, str] = POD, configuration: str = PLAN["configuration"]
) -> dict[str, str]:
    """Return the series of a rollout plan that waits for *reason*."""
    labels = {**PLAN, "configuration": configuration, "reason": reason}
    return series("rollout_plan_waiting", values, pod, **labels)


def passes(values: str) -> list[dict[str, str]]:
    """Return the series of a continuous audit with an interval of ten minutes, and passes at *values*."""
    return [series("audit_last_pass_timestamp_seconds", values), series("audit_interval_seconds", "600x90")]


REJECTED: Final = {**HOOK, "operation": "CREATE", "rejection_code": "503"}
DAY_S: Final = 86_400

CASES: Final = (
    Case("Down", "nothing is scraped", 3, labels={}),
    Case("Down", "a replica serves", 3, [series("build_info", "1x10", version="1", python_version="3")]),
    Case("ReplicaDown", "for ten minutes", 11, [series("up", "0x20")], POD),
    Case("ReplicaDown", "a restart", 9, [series("up", "0x3 1x20")]),
    Case("ReplicaDown", "another job", 11, [series("up", "0x20", {**POD, "job": "kubelet"})]),
    Case("FailOpen", "once", 6, [series("webhook_fail_open_total", "0x4 1x20", **HOOK)], SUMMED),
    Case("FailOpen", "with the first sample", 2, [series("webhook_fail_open_total", "1x20", **HOOK)], SUMMED),
    Case("FailOpen", "long ago", 30, [series("webhook_fail_open_total", "0x4 1x40", **HOOK)]),
    Case("FailOpen", "never", 10, [series("webhook_fail_open_total", "0x20", **HOOK)]),
    Case(
        "FailClosed",
        "a webhook cannot be called",
        5,
        [
            series("webhook_rejections_total", "1+1x9", **REJECTED, error_type="calling_webhook_error"),
            series(
                "webhook_rejections_total", "1+1x9", OTHER_POD, **REJECTED, error_type="calling_webhook_error"
            ),
        ],
        SUMMED,
    ),
    Case(
        "FailClosed",
        "denials are no failures",
        5,
        [series("webhook_rejections_total", "1+1x9", **REJECTED, error_type="no_error")],
    ),
    Case(
        "FailClosed",
        "once",
        6,
        [series("webhook_rejections_total", "0x3 1x20", **REJECTED, error_type="calling_webhook_error")],
    ),
    Case(
        "NoWorker",
        "all endpoints are down",
        2,
        [
            series("worker_endpoints", "0x9", pool="p", state="ready"),
            series("worker_endpoints", "2x9", pool="p", state="down"),
        ],
        {**POD, "pool": "p"},
    ),
    Case("NoWorker", "one is ready", 2, [series("worker_endpoints", "1x9", pool="p", state="ready")]),
    Case(
        "PoliciesNotServed",
        "at one worker",
        4,
        [
            series("webhook_policy_mismatches", "1x9", **HOOK, reason="not_served"),
            series("webhook_policy_mismatches", "2x9", OTHER_POD, **HOOK, reason="not_served"),
        ],
        {**SUMMED, "reason": "not_served"},
    ),
    Case(
        "PoliciesNotServed",
        "during a rollout",
        6,
        [series("webhook_policy_mismatches", "1x1 stale", **HOOK, reason="not_served")],
    ),
    Case(
        "PoolFull",
        "90 of 100 calls",
        6,
        [
            series("worker_calls_in_flight", "90x9", pool="p"),
            series("worker_calls_in_flight_limit", "100x9", pool="p"),
        ],
        {**POD, "pool": "p"},
        "90%",
    ),
    Case(
        "PoolFull",
        "no endpoints",
        6,
        [
            series("worker_calls_in_flight", "0x9", pool="p"),
            series("worker_calls_in_flight_limit", "0x9", pool="p"),
        ],
    ),
    Case("WebhookSlow", "all calls above 5 s", 25, latencies("0+60x60", "10"), SUMMED, "9.95s"),
    Case("WebhookSlow", "all calls up to 500 ms", 25, latencies("0+60x60", "0.5")),
    Case("WebhookSlow", "no calls", 25, latencies("0x60", "10")),
    Case(
        "MatchConditionErrors",
        "once",
        6,
        [series("match_condition_evaluation_errors_total", "0x4 1x9", **HOOK, operation="CREATE")],
        SUMMED,
    ),
    Case("MatchConditionErrors", "never", 6),
    Case(
        "Overloaded",
        "for some minutes",
        6,
        [series("requests_refused_total", "0+10x20", code="503")],
        {"namespace": "ns"},
    ),
    Case("Overloaded", "once", 6, [series("requests_refused_total", "0x3 10x20", code="503")]),
    Case("Overloaded", "bad requests", 6, [series("requests_refused_total", "0+10x20", code="400")]),
    Case(
        "NearLimit",
        "reviews",
        6,
        [series("reviews_in_flight", "90x9"), series("reviews_in_flight_limit", "100x9")],
        POD,
        "90%",
    ),
    Case(
        "NearLimit",
        "bytes",
        6,
        [
            series("reviews_in_flight", "1x9"),
            series("reviews_in_flight_limit", "100x9"),
            series("request_bytes_in_flight", "81x9"),
            series("request_bytes_in_flight_limit", "100x9"),
        ],
        POD,
        "81%",
    ),
    Case(
        "NearLimit",
        "half",
        6,
        [series("reviews_in_flight", "50x9"), series("reviews_in_flight_limit", "100x9")],
    ),
    Case(
        "Saturated",
        "one of two processes",
        30,
        [
            series("build_info", "1x60", version="1", python_version="3"),
            series("process_cpu_seconds_total", "0+59x60", process="0"),
            series("process_cpu_seconds_total", "0+1x60", process="1"),
        ],
        {**POD, "process": "0"},
    ),
    Case("Saturated", "another program", 30, [series("process_cpu_seconds_total", "0+60x60")]),
    Case(
        "InternalErrors",
        "with the first sample",
        1,
        [series("requests_refused_total", "1x9", code="500")],
        {"namespace": "ns"},
    ),
    Case("InternalErrors", "refusals", 1, [series("requests_refused_total", "1x9", code="404")]),
    Case(
        "CertificateExpiresSoon",
        "in ten days",
        60,
        [series("tls_certificate_expiry_timestamp_seconds", f"{10 * DAY_S + 3600}x90")],
        POD,
        "10d 0h 0m 0s",
    ),
    Case(
        "CertificateExpiresSoon",
        "in 15 days",
        60,
        [series("tls_certificate_expiry_timestamp_seconds", f"{15 * DAY_S + 3600}x90")],
    ),
    Case(
        "CertificateExpired", "it has", 60, [series("tls_certificate_expiry_timestamp_seconds", "60x90")], POD
    ),
    Case(
        "CertificateExpired",
        "there is none yet",
        60,
        [series("tls_certificate_expiry_timestamp_seconds", "0x90")],
    ),
    Case("ReloadRefused", "for five minutes", 6, [series("config_last_reload_successful", "0x9")], POD),
    Case("ReloadRefused", "accepted again", 6, [series("config_last_reload_successful", "0x3 1x9")]),
    Case(
        "ConfigurationsDiffer",
        "two digests",
        16,
        [series("config_info", "1x20", digest="x"), series("config_info", "1x20", OTHER_POD, digest="y")],
        {"namespace": "ns", "job": POD["job"]},
    ),
    Case(
        "ConfigurationsDiffer",
        "two replicas with one",
        16,
        [series("config_info", "1x20", digest="x"), series("config_info", "1x20", OTHER_POD, digest="x")],
    ),
    Case(
        "RecordsDropped",
        "for some minutes",
        9,
        [series("findings_dropped_total", "0+5x20")],
        {"namespace": "ns"},
    ),
    Case(
        "RecordsDropped",
        "decisions",
        9,
        [series("decision_log_dropped_total", "0+5x20", sink="stderr")],
        {"namespace": "ns"},
    ),
    Case(
        "RecordsDropped",
        "spans",
        9,
        [series("trace_spans_dropped_total", "0+5x20", reason="queue_full")],
        {"namespace": "ns"},
    ),
    Case("RecordsDropped", "once", 12, [series("findings_dropped_total", "0x2 5x20")]),
    Case("CaBundleNotFollowed", "kept", 6, [series("ca_bundles", "1x9", state="kept")], JOB),
    Case("CaBundleNotFollowed", "current", 6, [series("ca_bundles", "1x9", state="current")]),
    Case("WatchDisconnected", "for five minutes", 6, [series("cluster_watch_connected", "0x9")], POD),
    Case("WatchDisconnected", "connected", 6, [series("cluster_watch_connected", "1x9")]),
    Case(
        "RolloutPlanStopped",
        "in all replicas",
        1,
        [
            waits("gateway", "1x9"),
            waits("gateway", "1x9", OTHER_POD),
            series("rollout_plan_phase", "1x9", **PLAN, phase="RolledBack"),
            series("rollout_plan_phase", "1x9", OTHER_POD, **PLAN, phase="RolledBack"),
        ],
        {"namespace": "ns", **PLAN, "phase": "RolledBack"},
    ),
    Case(
        "RolloutPlanStopped",
        "by a person",
        1,
        [waits("person", "1x9"), series("rollout_plan_phase", "1x9", **PLAN, phase="Paused")],
    ),
    Case(
        "RolloutPlansBlocked",
        "two plans",
        16,
        [
            waits("store", "1x20"),
            waits("store", "1x20", OTHER_POD),
            waits("store", "1x20", configuration="others"),
        ],
        {"namespace": "ns", "reason": "store"},
        "2",
    ),
    Case("RolloutPlansBlocked", "while replicas are replaced", 16, [waits("processes", "1x10 stale")]),
    Case("RolloutPlansBlocked", "for its time", 16, [waits("time", "1x20")]),
    Case(
        "RolloutPlanWithoutData",
        "for a day",
        DAY_S // 60,
        [waits("data", "1x1500")],
        {"namespace": "ns", **PLAN},
    ),
    Case("RolloutPlanWithoutData", "for less", DAY_S // 60, [waits("data", "_x60 1x1500")]),
    Case(
        "RolloutPlanHeld",
        "for a day",
        DAY_S // 60,
        [series("rollout_plan_phase", "1x1500", **PLAN, phase="Held")],
        {"namespace": "ns", **PLAN},
    ),
    Case(
        "RolloutPlanHeld",
        "until the mode was written",
        DAY_S // 60,
        [series("rollout_plan_phase", "1x1200 stale", **PLAN, phase="Held")],
    ),
    Case(
        "RegistrationRelaxed",
        "by the watchdog",
        1,
        [series("watchdog_relaxed", "1x9", kind="ValidatingWebhookConfiguration", step="Exempt")],
        {"namespace": "ns", "kind": "ValidatingWebhookConfiguration", "step": "Exempt"},
    ),
    Case("RegistrationRelaxed", "never", 1),
    Case("WatchdogAlerting", "in one of two replicas", 1, [series("watchdog_alerting", "1x9")], NS),
    Case("WatchdogAlerting", "no longer", 4, [series("watchdog_alerting", "1x2 0x9")]),
    Case("WatchdogSilent", "for minutes", 6, [series("watchdog_last_look_timestamp_seconds", "0x9")], NS),
    Case(
        "WatchdogSilent",
        "another replica looks",
        6,
        [
            series("watchdog_last_look_timestamp_seconds", "0x9"),
            series("watchdog_last_look_timestamp_seconds", "0+60x9", OTHER_POD),
        ],
    ),
    Case("AuditIncomplete", "for three rounds", 31, [series("audit_complete", "0x40")], NS),
    Case(
        "AuditIncomplete",
        "a webhook fails",
        31,
        [
            series("audit_complete", "1x40"),
            series("audit_findings", "2x40", part="object", finding="failed", webhook="c/h"),
        ],
        NS,
    ),
    Case("AuditIncomplete", "once", 31, [series("audit_complete", "0x10 1x40")]),
    Case(
        "AuditIncomplete",
        "denials are verdicts",
        31,
        [
            series("audit_complete", "1x40"),
            series("audit_findings", "2x40", part="object", finding="denied", webhook="c/h"),
        ],
    ),
    Case("AuditStale", "since the beginning", 60, passes("0x90"), NS),
    Case("AuditStale", "always just below two intervals", 60, passes("-1100+60x90")),
    Case("AuditStale", "there is none", 80, labels={}),
    Case("AuditStale", "half an hour without a pod", 90, passes("0+60x60 _x30 5400+60x30")),
    Case(
        "WorkloadsRefusedAtRestart",
        "three",
        31,
        [series("audit_workloads_refused_at_restart", "3x40")],
        NS,
        "3",
    ),
    Case(
        "WorkloadsRefusedAtRestart", "none", 31, [series("audit_workloads_refused_at_restart", "3x10 0x40")]
    ),
)
