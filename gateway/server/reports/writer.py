"""Writes the findings of a process into reports, one report for each namespace.

The processes of all replicas write to the same reports. Each reads a report, merges its own findings into it,
and writes it with the version that it read; after a conflict it merges again. A process writes a report at
most every ``INTERVAL_S``, and only for new findings. Reports whose results are too old are removed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gateway.base.errors import ClusterError
from gateway.server.reports.document import KINDS, LABEL, NAME, is_ours, merged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.config.kinds.report_settings import ReportSettings
    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.server.reports.document import ReportKind
    from gateway.server.reports.finding import Finding

log = logging.getLogger(__name__)

INTERVAL_S: Final = 10.0
EXPIRE_EVERY_S: Final = 600.0
FLUSH_WITHIN_S: Final = 2.0
MAX_PENDING: Final = 2000
"""Findings that wait for the next write; further ones are dropped and counted."""
_PAGE: Final = "100"
_ATTEMPTS: Final = 4
_CONFLICT: Final = 409
_REFUSED: Final = (400, 403, 404, 413, 422)
"""Statuses of a write that would be refused again. 404: the namespace has been deleted."""


async def defined_kinds(api: ApiClient) -> list[ReportKind]:
    """Return the kinds of report that the cluster has.

    Raises:
        ClusterError: it cannot be reached, or refuses.
    """
    return [kind for kind in KINDS if await api.find(f"/apis/{kind.group_version}") is not None]


class ReportWriter:
    """The task that writes reports. Make it on a running event loop."""

    def __init__(self, access: ClusterAccess, settings: ReportSettings) -> None:
        self.dropped = 0
        """Findings that are in no report: too many at once, or refused by the API server."""
        self._access = access
        self._settings = settings
        self._pending: dict[str, list[Finding]] = {}
        """By namespace."""
        self._count = 0
        self._wake = asyncio.Event()
        self._warned_of: tuple[str, str] | None = None

    def add(self, finding: Finding) -> None:
        """Write *finding* at the next opportunity."""
        if self._count >= MAX_PENDING:
            self.dropped += 1
            return
        self._count += 1
        self._pending.setdefault(finding.about.namespace, []).append(finding)
        self._wake.set()

    async def run(self) -> None:
        """Write findings and remove old results, until cancelled."""
        expire_at = 0.0
        while True:
            # Replicas that found the same at the same time write at different times.
            await asyncio.sleep(INTERVAL_S * random.uniform(0.8, 1.2))  # noqa: S311
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout_at(max(expire_at, loop.time())):
                    await self._wake.wait()
            except TimeoutError:
                pass
            try:
                if self._wake.is_set():
                    self._wake.clear()
                    await self.write()
                if loop.time() >= expire_at:
                    expire_at = loop.time() + EXPIRE_EVERY_S * random.uniform(0.8, 1.2)  # noqa: S311
                    await self.expire()
                self._warned_of = None
            except ClusterError as error:
                self._warn(
                    "reports cannot be written now, findings wait for the next attempt: %s", str(error)
                )
                self._wake.set()
            except Exception:
                log.exception("reports cannot be written: internal error")

    async def write(self) -> None:
        """Write the findings that wait.

        Raises:
            ClusterError: the API server cannot be reached; the findings wait for the next call.
        """
        async with self._access.api() as api:
            kinds = await self._kinds(api)
            for namespace in list(self._pending):
                findings = self._pending[namespace]
                number = len(findings)
                written = False
                for kind in kinds:
                    written |= await self._update(api, kind, namespace, findings[:number])
                if not written:
                    self.dropped += number
                # More may have been added meanwhile.
                del findings[:number]
                self._count -= number
                if not findings:
                    del self._pending[namespace]

    async def flush(self) -> None:
        """Write the findings that wait, if the API server answers within ``FLUSH_WITHIN_S``."""
        try:
            async with asyncio.timeout(FLUSH_WITHIN_S):
                if self._count:
                    await self.write()
        except (ClusterError, TimeoutError):
            self.dropped += self._count

    async def expire(self) -> None:
        """Remove the results that are too old from all reports, and the reports without results.

        Raises:
            ClusterError: the API server cannot be reached, or refuses a list.
        """
        async with self._access.api() as api:
            for kind in await self._kinds(api):
                for name in (kind.namespaced, kind.cluster):
                    await self._expire(api, kind, f"/apis/{kind.group_version}/{name.lower()}s")

    async def _expire(self, api: ApiClient, kind: ReportKind, path: str) -> None:
        params = {"labelSelector": f"{LABEL}={NAME}", "limit": _PAGE}
        async for page in api.pages(path, params):
            for report in page.get("items", ()):
                metadata = report["metadata"]
                if metadata.get("name") == NAME:
                    await self._update(api, kind, metadata.get("namespace", ""), ())

    async def _kinds(self, api: ApiClient) -> list[ReportKind]:
        """Return the kinds of report that the cluster has."""
        kinds = await defined_kinds(api)
        if not kinds:
            wanted = " or ".join(kind.group_version for kind in KINDS)
            self._warn(
                "findings are in no report: the cluster has no CustomResourceDefinitions of %s", wanted
            )
        return kinds

    async def _update(
        self, api: ApiClient, kind: ReportKind, namespace: str, findings: Sequence[Finding]
    ) -> bool:
        """Merge *findings* into the report of *namespace*; return False if the API server refuses it."""
        folder = kind.path(quote(namespace, safe=""))
        for _ in range(_ATTEMPTS):
            try:
                before = await api.find(f"{folder}/{NAME}")
                if before is not None and not is_ours(before):
                    found = f"{folder}/{NAME} has no label {LABEL}: {NAME}"
                    self._warn("findings are in no report: %s", found)
                    return False
                after = merged(before, findings, time.time(), self._settings, kind, namespace)
                await self._replace(api, folder, before, after)
            except ClusterError as error:
                if error.status == _CONFLICT:
                    continue
                if error.status not in _REFUSED:
                    raise
                self._warn("findings are in no report: %s", f"{folder}/{NAME}: {error}")
                return False
            return True
        return False

    async def _replace(
        self, api: ApiClient, folder: str, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> None:
        if before is None and after is not None:
            await api.write("POST", folder, after)
        elif before is not None and after is None:
            version = {"resourceVersion": before["metadata"].get("resourceVersion")}
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": version}
            await api.write("DELETE", f"{folder}/{NAME}", options)
        elif after is not None and after != before:
            await api.write("PUT", f"{folder}/{NAME}", after)

    def _warn(self, text: str, detail: str) -> None:
        # Once for each cause: an interval later it is the same.
        if (text, detail) != self._warned_of:
            self._warned_of = text, detail
            log.warning(text, detail)
