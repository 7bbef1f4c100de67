"""The observer of reviews that finds what reports and Events are about."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from gateway.observe.decisions.redaction import Redactors
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.reports.events import EventWriter
from gateway.server.reports.finding import denials, denials_not_enforced, failures
from gateway.server.reports.writer import ReportWriter

if TYPE_CHECKING:
    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.kinds.report_settings import ReportSettings
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.webhook import Phase


class Reporter:
    """Writes reports, and Events if they are configured. Make it on a running event loop."""

    def __init__(self, settings: ReportSettings, cluster: KubernetesSettings, instance: str) -> None:
        self.settings = settings
        self.cluster = cluster
        self._redactors = Redactors()
        self._access = ClusterAccess(cluster)
        self._reports = ReportWriter(self._access, settings)
        self._events = EventWriter(self._access, instance) if settings.events else None
        writers = (self._reports, self._events)
        self._tasks = [asyncio.create_task(writer.run()) for writer in writers if writer is not None]

    @property
    def dropped(self) -> int:
        """Findings and Events that were not written."""
        return self._reports.dropped + (self._events.dropped if self._events is not None else 0)

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """Take the findings of a review."""
        for find in (failures, denials_not_enforced):
            for finding in find(answer, seconds, time.time(), self._redactors):
                self._reports.add(finding)
        if self._events is not None:
            for finding in denials(answer, seconds, time.time(), self._redactors):
                self._events.add(finding)

    def review_cancelled(self, phase: Phase) -> None:
        """Do nothing: a cancelled review has no findings."""

    async def close(self) -> None:
        """Write the findings that wait, for up to a few seconds, and end the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._reports.flush()
        await self._access.close()
