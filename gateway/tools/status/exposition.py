"""An overview from the metrics of a gateway, whose pages cannot be read.

It has the members of the page's JSON. What the metrics do not have, such as the policy of a webhook or why a
configuration was refused, is empty. Rates and percentiles are those since the start of the gateway.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.parser import text_string_to_metric_families

from gateway.base.text import rfc3339
from gateway.observe.telemetry.definitions import PREFIX
from gateway.observe.telemetry.metrics import SECONDS
from gateway.observe.telemetry.window import percentile
from gateway.pure.core.disputes import KINDS, Dispute

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Json = dict[str, Any]
    Labels = Mapping[str, str]

_PHASES: Final = {"admit": "mutate", "validating": "validate"}
_DIFFERENCES: Final = {"newlyDenied": "newly_denied", "newlyAllowed": "newly_allowed", "failed": "failed"}


class _Samples:
    """The samples of an exposition by their names without the prefix."""

    def __init__(self, exposition: str) -> None:
        self._by_name: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                self._by_name[sample.name.removeprefix(PREFIX)].append((sample.labels, sample.value))

    def of(self, name: str) -> list[tuple[Labels, float]]:
        """Return labels and value of each sample of *name*."""
        return self._by_name.get(name, [])

    def sum(self, name: str, /, **labels: str) -> int:
        """Return the sum of the samples of *name* with *labels*."""
        return int(sum(value for found, value in self.of(name) if labels.items() <= found.items()))

    def one(self, name: str) -> float | None:
        """Return the value of the only sample of *name*. None if there is none."""
        found = self.of(name)
        return found[0][1] if found else None

    def label(self, name: str, label: str) -> str:
        """Return a label of the first sample of *name*. Empty if there is none."""
        found = self.of(name)
        return found[0][0].get(label, "") if found else ""


def overview_of_metrics(exposition: str, reason: str, faults: list[str], now: float) -> Json:
    """Return the overview, with *faults*; *reason* says why the gateway is not ready, empty if it is.

    *now* is in seconds since 1970.

    Raises:
        ValueError: *exposition* is not in the Prometheus text format, or not that of a gateway.
    """
    samples = _Samples(exposition)
    if not samples.of("build_info"):
        raise ValueError("no metrics of a gateway")
    started_at = min((value for _, value in samples.of("process_start_time_seconds")), default=now)
    seconds = max(now - started_at, 0.0)
    loaded_at = samples.one("config_last_reload_success_timestamp_seconds") or started_at
    digests = [labels["digest"] for labels, _ in samples.of("config_info")] or [""]
    in_flight = samples.sum("reviews_in_flight")
    is_refused = samples.one("config_last_reload_successful") == 0
    names = {labels.get("process", "") for labels, _ in samples.of("process_start_time_seconds")}
    processes = max(sum(name.isdecimal() for name in names), 1)
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "Overview",
        "time": rfc3339(now),
        "version": samples.label("build_info", "version"),
        "ready": not reason,
        "scope": {"processes": processes, "answered": processes, "note": "From the metrics."},
        "processes": [
            {
                "pid": 0,
                "startedAt": rfc3339(started_at),
                "ready": not reason,
                "reason": reason,
                "digest": digest,
                "reviewsInFlight": in_flight,
            }
            for digest in digests
        ],
        "configuration": {
            "digest": digests[0],
            "loadedAt": rfc3339(loaded_at),
            "ageSeconds": round(now - loaded_at),
            "isSameInAllProcesses": len(digests) == 1,
            "refused": _refused() if is_refused else None,
            "refusedResources": 0,
            "warnings": [],
            "warningsLeftOut": 0,
        },
        "windowSeconds": round(seconds),
        "reviews": {
            "inFlight": in_flight,
            **{
                phase: _counts(samples, "review_duration_seconds", seconds, {"type": kind})
                for kind, phase in _PHASES.items()
            },
        },
        "webhooks": list(_webhooks(samples, seconds)),
        "pools": _pools(samples),
        "servers": [],
        "faults": faults,
        "certificates": list(_certificates(samples, now)),
        "exceptions": list(_exceptions(samples, now)),
        "exceptionsLeftOut": 0,
        "disputes": list(_disputes(samples)),
    }


def _refused() -> Json:
    problem = {"where": "", "field": "", "message": "the log of the gateway has the reason"}
    return {"time": "", "problems": [problem], "problemsLeftOut": 0}


def _webhooks(samples: _Samples, seconds: float) -> Iterator[Json]:
    for labels, timeout_s in samples.of("webhook_timeout_seconds"):
        own = {"name": labels["name"], "type": labels["type"]}
        counts = _counts(samples, "webhook_admission_duration_seconds", seconds, own)
        rollout = _rollout_counts(samples, own)
        yield {
            "phase": _PHASES.get(labels["type"], labels["type"]),
            "configuration": "",
            "name": labels["name"],
            "pool": "",
            "policy": "",
            "url": "",
            "mode": "",
            "failurePolicy": "",
            "timeoutSeconds": int(timeout_s),
            "sideEffects": "",
            **{member: counted | rollout for member, counted in counts.items()},
        }


def _counts(samples: _Samples, histogram: str, seconds: float, labels: dict[str, str]) -> Json:
    """Return the counts of a webhook, or of a phase, as those of the page."""
    by_bound: Counter[float] = Counter()
    for found, value in samples.of(f"{histogram}_bucket"):
        if labels.items() <= found.items():
            by_bound[float(found["le"])] += int(value)
    cumulated = [by_bound[bound] for bound in (*SECONDS, float("inf"))]
    buckets = [count - before for count, before in zip(cumulated, [0, *cumulated], strict=False)]
    count = cumulated[-1]
    rejections = "webhook_rejections_total"
    denied = samples.sum(rejections, error_type="no_error", **labels)
    outcomes = {
        "denied": denied,
        "failedClosed": samples.sum(rejections, **labels) - denied,
        "failedOpen": samples.sum("webhook_fail_open_total", **labels),
    }
    percentiles = {
        name: None if (found_s := percentile(buckets, part)) is None else round(found_s * 1000, 3)
        for name, part in (("p50Ms", 0.5), ("p99Ms", 0.99))
    }
    per_second = round(count / seconds, 3) if seconds else 0.0
    return {
        "recent": {"count": count, "perSecond": per_second, **outcomes, **percentiles},
        "total": {"count": count, **outcomes},
    }


def _rollout_counts(samples: _Samples, labels: dict[str, str]) -> Json:
    return {
        "wouldBeDenied": samples.sum("webhook_not_enforced_total", result="denied", **labels),
        "wouldFailClosed": samples.sum("webhook_not_enforced_total", result="failed", **labels),
        "candidate": {
            "compared": samples.sum("candidate_reviews_total", **labels),
            "different": samples.sum("candidate_different_reviews_total", **labels),
            **{
                name: samples.sum("candidate_differences_total", kind=kind, **labels)
                for name, kind in _DIFFERENCES.items()
            },
        },
    }


def _pools(samples: _Samples) -> list[Json]:
    """Return the pools; the metrics have no addresses, so that each state is one endpoint."""
    pools: dict[str, dict[str, int]] = defaultdict(dict)
    for labels, value in samples.of("worker_endpoints"):
        pools[labels["pool"]][labels["state"]] = int(value)
    return [
        {
            "name": name,
            "ready": states.get("ready", 0),
            "endpoints": [
                {"address": "", "states": {state: count}, "inFlight": 0}
                for state, count in states.items()
                if count
            ],
        }
        for name, states in pools.items()
    ]


def _exceptions(samples: _Samples, now: float) -> Iterator[Json]:
    ends = {
        labels["exception"]: end for labels, end in samples.of("policy_exception_expiry_timestamp_seconds")
    }
    last = {
        labels["exception"]: at for labels, at in samples.of("policy_exception_last_use_timestamp_seconds")
    }
    for labels, number in samples.of("policy_exception_uses_total"):
        name = labels["exception"]
        end = ends.get(name)
        yield {
            "name": name,
            "webhooks": [],
            "reason": "",
            "owner": "",
            "expires": "" if end is None else rfc3339(end),
            "uses": int(number),
            "remainingSeconds": None if end is None else round(end - now),
            "lastUse": rfc3339(last[name]) if name in last else "",
        }


def _disputes(samples: _Samples) -> Iterator[Json]:
    """Yield the webhooks that did not come to rest since the start; the metrics have no times."""
    for labels, number in samples.of("mutation_disputes_total"):
        kinds = [kind for kind in KINDS if kind == labels["kind"]]
        for dispute in (Dispute(kind, labels["name"], labels["other"], labels["path"]) for kind in kinds):
            yield {
                **dispute._asdict(),
                "message": dispute.line(),
                "reviews": int(number),
                "last": "",
                "ageSeconds": None,
                "lastObject": "",
            }


def _certificates(samples: _Samples, now: float) -> Iterator[Json]:
    expiry = samples.one("tls_certificate_expiry_timestamp_seconds")
    if expiry:
        yield {
            "use": "tls.certFile",
            "file": "",
            "subject": "",
            "issuer": "",
            "sha256": "",
            "notAfter": rfc3339(expiry),
            "remainingSeconds": round(expiry - now),
            "problem": "",
        }
