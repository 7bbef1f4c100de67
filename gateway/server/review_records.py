"""The records of reviews in one process: the decision log, reports, recordings, and what the pages show."""

from __future__ import annotations

import os
from math import inf
from typing import TYPE_CHECKING, Protocol

from gateway.engine.admit import Observers
from gateway.observe.decisions.disputes import DisputeObserver
from gateway.observe.decisions.log import DecisionLog
from gateway.observe.decisions.namespaces import NamespaceCounts
from gateway.observe.decisions.recent import RecentDecisions
from gateway.observe.decisions.record import is_noteworthy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from gateway.config.kinds.gateway_configuration import GatewaySettings
    from gateway.engine.admit import ReviewObserver
    from gateway.engine.engine import Engine
    from gateway.engine.snapshot import Snapshot
    from gateway.observe.recording.recorder import Recorder
    from gateway.observe.telemetry.metrics import Metrics
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.webhook import Phase
    from gateway.server.reports.observer import Reporter


class ReviewRecords:
    """All records of reviews. Make it on a running event loop."""

    def __init__(
        self, metrics: Metrics, engine: Engine, keep: Callable[[Coroutine[object, object, None]], None]
    ) -> None:
        """*keep* runs a coroutine beside the caller."""
        self._metrics = metrics
        self._keep = keep
        self.decision_log = DecisionLog(metrics.decision_log)
        self.recent = RecentDecisions()
        """The recent decisions of this process."""
        self.namespaces = NamespaceCounts()
        self._disputes = DisputeObserver()
        metrics.disputes = self._disputes.found
        self.shadows = engine.calls_apart(self.decision_log.found_afterwards, self.recent.keep_shadowed)
        self._reporter: Reporter | None = None
        self._recorder: Recorder | None = None
        """None if nothing was recorded so far."""

    @property
    def findings_dropped(self) -> int | None:
        """Findings that are in no report or Event. None if no reports are configured."""
        return None if self._reporter is None else self._reporter.dropped

    def observer(
        self, snapshot: Snapshot, collector: ReviewObserver | None, *, has_pages: bool, has_stages: bool
    ) -> ReviewObserver:
        """Return the observer of the reviews by *snapshot*, which pages show if there are any.

        *collector* counts those of rollout plans. None if there are none. *has_stages* is whether a webhook
        may be in a stage of one, also if the plan was removed.
        """
        observers: list[ReviewObserver] = [self._metrics]
        sinks: list[DecisionSink] = [self.decision_log] if self.decision_log.is_on else []
        if has_pages:
            sinks += [self.recent, self.namespaces]
        if sinks:
            observers.append(DecisionObserver(snapshot.digest, sinks))
        if self._reporter is not None:
            observers.append(self._reporter)
        if snapshot.paths["/mutate"].webhooks:
            observers.append(self._disputes)
        recording = None if self._recorder is None else self._recorder.observer(snapshot.digest)
        observers += filter(
            None, (recording, self.shadows.observer(snapshot, has_stages=has_stages), collector)
        )
        return Observers(observers) if len(observers) > 1 else self._metrics

    def activate_reports(self, settings: GatewaySettings) -> None:
        """Write the reports of *settings* from now on."""
        old = self._reporter
        wanted = settings.reports, settings.kubernetes
        if old is not None and (old.settings, old.cluster) == wanted:
            return
        self._reporter = None
        if old is not None:
            self._keep(old.close())
        if settings.reports is not None and settings.kubernetes is not None:
            # Imported late: a gateway without reports does not need the client of the cluster.
            from gateway.server.reports.observer import Reporter

            instance = f"{os.uname().nodename}_{os.getpid()}"
            self._reporter = Reporter(settings.reports, settings.kubernetes, instance)

    def activate_log(self, settings: GatewaySettings) -> None:
        """Log decisions by *settings* from now on."""
        self.recent.secret_names = self.shadows.secret_names = settings.logging.decision_log.secret_names
        self.decision_log.activate(settings.logging)

    def activate_recording(self, settings: GatewaySettings) -> None:
        """Record by *settings* from now on."""
        self._metrics.is_recording = settings.record is not None
        if self._recorder is None:
            if settings.record is None:
                return
            # Imported late: it loads RE2, which a gateway without recordings may not need.
            from gateway.observe.recording.recorder import Recorder

            self._recorder = Recorder(self._metrics.recording)
        self._recorder.activate(settings.record)

    async def close_reports(self) -> None:
        """Write the findings that wait."""
        if self._reporter is not None:
            await self._reporter.close()

    async def close(self) -> None:
        """Write the last records."""
        await self.decision_log.close()
        if self._recorder is not None:
            await self._recorder.close()


class DecisionSink(Protocol):
    """Records some decisions: the decision log, and what the pages show."""

    @property
    def ordinary_at(self) -> float:
        """No decision that is not noteworthy is recorded before this time, in monotonic seconds."""

    def offer(self, answer: Answer, seconds: float, digest: str, *, is_noteworthy: bool) -> None:
        """Record *answer*, which was given after *seconds*, if it is one of those that are recorded.

        *digest* is that of the configuration. A decision is noteworthy if it has a denial, failure or
        fail-open.
        """


class DecisionObserver:
    """Passes the decisions by one configuration on to what records them. A ``ReviewObserver``."""

    def __init__(self, digest: str, sinks: Sequence[DecisionSink]) -> None:
        """*digest* is that of the configuration."""
        self._digest = digest
        self._sinks = sinks
        self._ordinary_at = 0.0

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """Pass *answer* on, which was given after *seconds*."""
        noteworthy, now = is_noteworthy(answer), answer.started_at + seconds
        if not noteworthy and now < self._ordinary_at:
            return
        next_at = inf
        for sink in self._sinks:
            if noteworthy or sink.ordinary_at <= now:
                sink.offer(answer, seconds, self._digest, is_noteworthy=noteworthy)
            if sink.ordinary_at < next_at:
                next_at = sink.ordinary_at
        self._ordinary_at = next_at

    def review_cancelled(self, phase: Phase) -> None:
        """A cancelled review has no decision."""
