"""Writes the findings of a pass into the cluster: a report of each namespace with numbers and the first ones.

A report has a bounded number of results, whatever the objects, and says how many are not listed. It is
written only if it differs from the one there in more than its times, so a cluster that does not change gets
no writes. A report without findings is removed.

Source: openreports.io/v1alpha1 and wgpolicyk8s.io/v1alpha2 (report_types.go), as ``gateway.server.reports``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gateway.base.errors import ClusterError
from gateway.server.reports.document import KINDS, LABEL, is_ours, new_report, result_of
from gateway.server.reports.finding import Finding, ObjectRef
from gateway.server.reports.writer import defined_kinds
from gateway.tools.audit.keys import short_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.server.reports.document import ReportKind
    from gateway.server.reports.finding import Result
    from gateway.tools.audit.pace import Pace
    from gateway.tools.audit.store import Store

    Json = dict[str, Any]

NAME: Final = "admission-gateway-audit"
"""The name of the report in each namespace. Those of running gateways have another one."""
_PAGE: Final = "20"
"""Reports of a page: each may have a megabyte."""
_RESULTS: Final[dict[str, Result]] = {"denied": "fail", "notEnforced": "warn", "failed": "error"}
_LISTED: Final = "finding IN ('denied', 'notEnforced', 'failed')"


class AuditReports:
    """The reports on the findings of one pass."""

    def __init__(self, api: ApiClient, store: Store, pace: Pace, max_results: int, now: float) -> None:
        """*now* is the time of the pass, in seconds since 1970."""
        self._api = api
        self._store = store
        self._pace = pace
        self._max_results = max_results
        self._now = now
        self.written = 0
        """Reports that were created, replaced or removed."""

    async def write(self, *, is_complete: bool) -> list[str]:
        """Write what differs, and return what could not be written. Nothing is removed unless *is_complete*.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        problems = []
        kinds = await defined_kinds(self._api)
        if not kinds:
            wanted = " or ".join(kind.group_version for kind in KINDS)
            problems.append(f"--reports: the cluster has no CustomResourceDefinitions of {wanted}")
        for kind in kinds:
            try:
                problems += await self._write(kind, is_complete=is_complete)
            except ClusterError as error:
                if not error.status:
                    raise
                problems.append(f"--reports: {kind.group_version}: {error}")
        return problems

    async def _write(self, kind: ReportKind, *, is_complete: bool) -> list[str]:
        """Write the reports of *kind*."""
        problems = []
        before = await self._existing(kind)
        query = f"SELECT DISTINCT namespace FROM results WHERE pass = :pass AND {_LISTED}"  # noqa: S608
        wanted = [namespace for (namespace,) in self._store.select(query)]
        gone = before.keys() - set(wanted) if is_complete else set()
        for namespace in (*wanted, *sorted(gone)):
            folder = kind.path(quote(namespace, safe=""))
            known = before.get(namespace)
            after = None if namespace in gone else self.document(kind, namespace)
            try:
                if known is not None and not known[2]:
                    raise ClusterError(f"it has no label {LABEL}, so it is not the gateway's", 409)
                await self._replace(folder, known, after)
            except ClusterError as error:
                if not error.status:
                    raise
                problems.append(f"--reports: {folder}/{NAME}: {error}")
        return problems

    async def _replace(self, folder: str, known: tuple[str, bytes, bool] | None, after: Json | None) -> None:
        if after is not None and known is not None and known[1] == _content(after):
            return
        await self._pace.request()
        self.written += 1
        if known is None:
            await self._api.write("POST", folder, after or {})
        elif after is None:
            options = {"apiVersion": "v1", "kind": "DeleteOptions"}
            version = {"preconditions": {"resourceVersion": known[0]}}
            await self._api.write("DELETE", f"{folder}/{NAME}", {**options, **version})
        else:
            after["metadata"]["resourceVersion"] = known[0]
            await self._api.write("PUT", f"{folder}/{NAME}", after)

    async def _existing(self, kind: ReportKind) -> dict[str, tuple[str, bytes, bool]]:
        """Return version and digest of each report by namespace, and whether it is the gateway's."""
        found = {}
        for name in (kind.namespaced, kind.cluster):
            params = {"fieldSelector": f"metadata.name={NAME}", "limit": _PAGE}
            await self._pace.request()
            async for page in self._api.pages(f"/apis/{kind.group_version}/{name.lower()}s", params):
                for report in page.get("items") or ():
                    metadata = report["metadata"]
                    if metadata.get("name") == NAME:
                        version = str(metadata.get("resourceVersion") or "")
                        found[str(metadata.get("namespace") or "")] = (
                            *(version, _content(report)),
                            is_ours(report),
                        )
        return found

    def document(self, kind: ReportKind, namespace: str) -> Json:
        """Return the report of *namespace*, or on cluster-scoped objects if that is empty."""
        rows = self._store.select(
            "SELECT finding, COUNT(*) FROM results WHERE pass = :pass AND namespace = ?"  # noqa: S608
            f" AND {_LISTED} GROUP BY finding",
            namespace,
        )
        counts = {str(finding): int(number) for finding, number in rows}
        ((passed,),) = self._store.select(
            "SELECT COUNT(*) FROM verdicts WHERE pass = :pass AND namespace = ? AND NOT EXISTS"  # noqa: S608
            f" (SELECT 1 FROM findings WHERE uid = verdicts.uid AND part = verdicts.part AND {_LISTED})",
            namespace,
        )
        results = list(self._results(namespace))
        more = sum(counts.values()) - len(results)
        if more:
            message = f"{more:,} more findings are not listed: see the files of the audit"
            timestamp = {"seconds": int(self._now), "nanos": 0}
            about = {"source": NAME, "policy": NAME, "result": "skip", "scored": False}
            results.append({**about, "message": message, "timestamp": timestamp})
        summary = {"pass": passed, "skip": int(more > 0)}
        summary |= {result: counts.get(finding, 0) for finding, result in _RESULTS.items()}
        return new_report(kind, namespace, NAME, summary, results)

    def _results(self, namespace: str) -> Iterator[Json]:
        """Yield the first results: denials, then others."""
        left = self._max_results
        for finding, result in _RESULTS.items():
            rows = self._store.results("namespace = ? AND finding = ?", namespace, finding, limit=left)
            for one in rows:
                left -= 1
                yield self._result(one, result)

    def _result(self, one: Json, result: Result) -> Json:
        is_restart = one["part"] == "restart"
        is_secret = one["resource"] == "secrets"
        about = ObjectRef(
            *(one["apiVersion"], one["kind"], one["namespace"]),
            *("" if is_secret else one["name"], "" if is_secret else one["uid"]),
        )
        found = result_of(
            Finding(
                result,
                one["webhook"],
                one["configuration"],
                one["policy"],
                f"at its next restart: {one['message']}" if is_restart else one["message"],
                "CREATE",
                self._now,
                about,
            )
        )
        alike = {"count": str(one["alike"])}
        owner = {"owner": one["owner"]} if one["owner"] and not is_secret else {}
        return {**found, "properties": {**found["properties"], **alike, **owner}}


def _content(report: Json) -> bytes:
    """Return the digest of what *report* says, without its times."""
    results = report.get("results")
    kept = [
        {name: value for name, value in one.items() if name != "timestamp"} if isinstance(one, dict) else one
        for one in (results if isinstance(results, list) else ())
    ]
    return short_digest([report.get("summary"), kept, report.get("scope"), report.get("source")])
