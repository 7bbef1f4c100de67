"""Decides which reviews are recorded, and makes their spans.

A review is recorded if the API server's trace context has the sampled flag, and there is room for its spans.
Without a trace context it begins a trace at the configured rate. The API server passes the context of its own
client on, flag included, wherever it does not trace itself; hence the bound on spans per second.

Source: OpenTelemetry specification, "Sampling" (ParentBased, TraceIdRatioBased); k8s.io/apiserver
pkg/server/options/tracing.go.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING

from gateway.config.kinds.tracing_settings import MILLION
from gateway.observe.tracing.recording import RecordedTrace
from gateway.observe.tracing.spans import SpanMaker
from gateway.pure.core.trace import is_sampled, passed_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.kinds.tracing_settings import TracingSettings
    from gateway.observe.tracing.collector import Collector
    from gateway.pure.core.answer import Answer, Origin, Review
    from gateway.pure.core.deadline import Deadline
    from gateway.pure.core.matching import Selection
    from gateway.pure.core.trace import Trace

log = logging.getLogger(__name__)


class SpanBudget:
    """A bound on spans per second, with a burst of one second."""

    def __init__(self, per_second: int, now: Callable[[], float]) -> None:
        self._per_second = per_second
        self._now = now
        self._left = float(per_second)
        self._at = now()

    def has_room(self) -> bool:
        """Whether another review may be recorded. It may overdraw the budget, which delays later ones."""
        now = self._now()
        self._left = min(float(self._per_second), self._left + (now - self._at) * self._per_second)
        self._at = now
        return self._left >= 1

    def take(self, number: int) -> None:
        """Spend *number* spans."""
        self._left -= number


class Tracer:
    """Traces of reviews to one collector."""

    def __init__(
        self,
        settings: TracingSettings,
        collector: Collector,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.collector = collector
        self._now = now
        self._root_rate = settings.sampling_rate_per_million / MILLION
        self._budget = SpanBudget(settings.max_spans_per_second, now)
        self._spans = SpanMaker(collector.resource, now)

    def trace(self, traceparent: str) -> Trace | None:
        """Return the trace of a review whose request has *traceparent*, valid or empty."""
        if traceparent:
            if not is_sampled(traceparent):
                return passed_on(traceparent)
        elif not self._root_rate or random.random() >= self._root_rate:  # noqa: S311
            return None
        if self._budget.has_room():
            return RecordedTrace(traceparent, self._now)
        self.collector.unrecorded()
        return passed_on(traceparent)

    def review(
        self,
        review: Review,
        received_at: float,
        selection: Selection,
        body: bytes,
        deadline: Deadline,
        answered: Callable[[Answer], None],
        failed: Callable[[Exception], None],
        origin: Origin,
    ) -> Callable[[], None]:
        """Do *review*, whose trace in *origin* is recorded, and export its spans at the end.

        The request began at *received_at*, in seconds on the monotonic clock.
        """
        trace = origin.trace
        assert isinstance(trace, RecordedTrace)

        def answer(found: Answer) -> None:
            trace.ended_at = self._now()
            answered(found)
            self._export(trace, received_at, selection, found)

        def fail(error: Exception) -> None:
            trace.ended_at = self._now()
            failed(error)
            self._export(trace, received_at, selection, type(error).__name__)

        cancel_review = review(selection, body, deadline, answer, fail, origin)

        def cancel() -> None:
            trace.ended_at = self._now()
            cancel_review()
            self._export(trace, received_at, selection, "Cancelled")

        return cancel

    def _export(
        self, trace: RecordedTrace, received_at: float, selection: Selection, result: Answer | str
    ) -> None:
        try:
            spans = self._spans.review(trace, received_at, selection.phase, result)
        except Exception:
            # The review has been answered.
            log.exception("internal error: a review has no spans")
            return
        self._budget.take(len(spans))
        self.collector.submit(spans)

    def reloaded(self, began_at: float, source: str, error: str) -> None:
        """Export the span of a reload, see ``SpanMaker.reload``."""
        self.collector.submit([self._spans.reload(began_at, source, error)])
