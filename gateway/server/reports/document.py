"""Reports as documents: the results of one namespace, merged with new findings.

Every process merges its findings into the same report. A merge is the same whatever the order of findings,
so a conflict of two writers is resolved by merging again.

Source: openreports.io/v1alpha1 and wgpolicyk8s.io/v1alpha2 (report_types.go), whose results are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.config.kinds.report_settings import ReportSettings
    from gateway.server.reports.finding import Finding

Json = dict[str, Any]

NAME: Final = "admission-gateway"
"""The name of the report in each namespace, and its source."""
LABEL: Final = "app.kubernetes.io/managed-by"
MAX_MESSAGE_CHARS: Final = 512
MAX_COUNT: Final = 1_000_000
_RESULTS: Final = ("pass", "fail", "warn", "error", "skip")


@dataclass(frozen=True, slots=True)
class ReportKind:
    """A kind of report, in a namespace or for the cluster."""

    group_version: str
    namespaced: str
    cluster: str
    has_source: bool
    """Whether the report has ``source``, and not only its results."""

    def kind(self, namespace: str) -> str:
        """The kind of the report of *namespace*, or of cluster-scoped objects if that is empty."""
        return self.namespaced if namespace else self.cluster

    def path(self, namespace: str) -> str:
        """The path of the list of reports in *namespace*."""
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{self.group_version}{scope}/{self.kind(namespace).lower()}s"


KINDS: Final = (
    ReportKind("openreports.io/v1alpha1", "Report", "ClusterReport", has_source=True),
    ReportKind("wgpolicyk8s.io/v1alpha2", "PolicyReport", "ClusterPolicyReport", has_source=False),
)


def is_ours(report: Mapping[str, Any]) -> bool:
    """Whether the gateway made *report*."""
    metadata = report.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return isinstance(labels, dict) and labels.get(LABEL) == NAME


def merged(
    report: Json | None,
    findings: Iterable[Finding],
    now: float,
    settings: ReportSettings,
    kind: ReportKind,
    namespace: str,
) -> Json | None:
    """Return *report* with *findings* at *now* (seconds since 1970); None if no result is left.

    Findings with equal webhook, object and result are one result, with their number and the latest time.
    Results that were last found before the retention are dropped, and of the rest the newest are kept.
    """
    results: dict[object, Json] = {}
    found = report.get("results") if report is not None else None
    known = [result for result in found if _is_valid(result)] if isinstance(found, list) else []
    for result in [*known, *map(result_of, findings)]:
        key = _key(result)
        results[key] = _joined(results[key], result) if key in results else result
    kept = [result for result in results.values() if _seconds(result) >= now - settings.retention_s]
    kept.sort(key=lambda result: (-_seconds(result), repr(_key(result))))
    del kept[settings.max_results :]
    if not kept:
        return None
    summary = {name: sum(one["result"] == name for one in kept) for name in _RESULTS}
    document = new_report(kind, namespace, NAME, summary, kept)
    return document if report is None else {**report, **document, "metadata": report["metadata"]}


def new_report(
    kind: ReportKind, namespace: str, name: str, summary: Mapping[str, int], results: list[Json]
) -> Json:
    """Return the report *name* of *kind* on *namespace*, or on cluster-scoped objects if that is empty."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": {LABEL: NAME}}
    document: Json = {
        "apiVersion": kind.group_version,
        "kind": kind.kind(namespace),
        "metadata": metadata,
        "summary": dict(summary),
        "results": results,
    }
    if namespace:
        document["scope"] = {"apiVersion": "v1", "kind": "Namespace", "name": namespace}
    if kind.has_source:
        document["source"] = NAME
    return document


def result_of(finding: Finding) -> Json:
    """Return *finding* as a result of a report."""
    about = finding.about
    reference = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
    }
    return {
        "source": NAME,
        "policy": finding.webhook,
        **({"rule": finding.policy} if finding.policy else {}),
        "category": finding.configuration,
        "result": finding.result,
        "scored": finding.result == "fail",
        "message": printable(finding.message, MAX_MESSAGE_CHARS),
        "resources": [{name: value for name, value in reference.items() if value}],
        "timestamp": {"seconds": int(finding.time), "nanos": 0},
        "properties": {"count": "1", "operation": finding.operation},
    }


def _is_valid(result: object) -> bool:
    """Whether *result* has the members that the gateway writes: others may have edited the report."""
    match result:
        case {
            "policy": str(),
            "result": str(),
            "timestamp": {"seconds": int()},
            "resources": [dict(reference)],
            "properties": {"count": str(count)},
        }:
            return count.isascii() and count.isdigit() and len(count) < 10 and _are_texts(reference)
    return False


def _are_texts(reference: Mapping[str, object]) -> bool:
    return all(isinstance(value, str) for value in reference.values())


def _key(result: Json) -> object:
    reference = result["resources"][0]
    about = tuple(reference.get(name, "") for name in ("apiVersion", "kind", "namespace", "name"))
    return result.get("category"), result["policy"], result["result"], about


def _seconds(result: Json) -> int:
    seconds: int = result["timestamp"]["seconds"]
    return seconds


def _joined(first: Json, second: Json) -> Json:
    """Return the later of two results with the same key, with their number."""
    # By the message if both have the same time, so that the order does not matter.
    later = max(first, second, key=lambda result: (_seconds(result), str(result.get("message"))))
    count = min(sum(int(result["properties"]["count"]) for result in (first, second)), MAX_COUNT)
    return {**later, "properties": {**later["properties"], "count": str(count)}}
