"""The decision log of a process: which decisions are logged, how many, and where to.

A record is encoded on the event loop after the answer, those of allowed requests some together, and written
in a thread, see ``gateway.observe.decisions.writer``. Records above the rate, or that a sink does not take,
are dropped and counted, and a record has their number.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from math import inf
from random import random
from typing import TYPE_CHECKING, Any, Final

from gateway.observe.decisions import line
from gateway.observe.decisions.allowed_lines import AllowedLines
from gateway.observe.decisions.rate import TokenBucket
from gateway.observe.decisions.record import record_of
from gateway.observe.decisions.redaction import Redactors
from gateway.observe.decisions.writer import DescriptorSink, FileSink, Writer
from gateway.pure.core.trace import read_traceparent, trace_id_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Thread

    from gateway.config.kinds.logging_settings import LoggingSettings
    from gateway.observe.decisions.line import Document, RefusalResponse, RefusedRequest
    from gateway.observe.decisions.writer import Sink
    from gateway.observe.telemetry.metrics import LogCounts
    from gateway.pure.core.answer import Answer

KEPT_FOR_NOTEWORTHY: Final = 0.25
"""The part of the rate that ordinary decisions leave to denials, failures and fail-opens."""
REFUSALS_PER_SECOND: Final = 10
REFUSALS_AT_ONCE: Final = 50
ALLOWED_WAIT_S: Final = 0.1
"""How long an allowed decision waits for others, with which its line is made."""
CLOSE_S: Final = 2.0
"""How long :meth:`DecisionLog.close` waits for the last records."""


class DecisionLog:
    """The decision log, whose settings may change. Use it on one event loop; it does nothing before the first
    :meth:`use`.
    """

    def __init__(self, counts: LogCounts, clock: Callable[[], float] = time.monotonic) -> None:
        self._counts = counts
        self._clock = clock
        self._settings: LoggingSettings | None = None
        self._outputs: list[tuple[Callable[[Document], Any], Writer[Any]]] = []
        """The form of records and the writer of each sink."""
        self._allowed_lines: AllowedLines | None = None
        """None unless all sinks take JSON."""
        self._timer: asyncio.TimerHandle | None = None
        self._closing: list[Thread] = []
        self._has_noteworthy = self._has_all = self._has_secret_names = False
        self._sampled = 0.0
        self.ordinary_at = inf
        """No decision that is not noteworthy is logged before this time, in monotonic seconds."""
        self._rate = TokenBucket(1, 1)
        self._refusals = TokenBucket(REFUSALS_PER_SECOND, REFUSALS_AT_ONCE)
        self._redactors = Redactors(clock)

    def activate(self, settings: LoggingSettings) -> None:
        """Log by *settings* from now on."""
        if settings == self._settings:
            return
        self._end_outputs()
        self._settings = settings
        chosen = settings.decision_log
        self._has_all = settings.decisions == "All"
        self._has_noteworthy = settings.decisions != "None"
        self._sampled = chosen.sample_percent / 100
        self.ordinary_at = 0.0 if self._has_all or self._sampled else inf
        self._has_secret_names = chosen.secret_names
        self._rate = TokenBucket(chosen.max_per_second, chosen.max_per_second)
        if not self.is_on:
            return
        if chosen.file is not None:
            self._add("file", line.as_json, FileSink(chosen.file))
        if chosen.otlp_endpoint:
            # Imported late: OpenTelemetry takes 20 MB.
            from gateway.observe.decisions.otlp import OtlpSink

            self._add("otlp", dict, OtlpSink(chosen.otlp_endpoint))
        if not self._outputs:
            self._add("stderr", line.as_json if settings.format == "json" else line.as_text, DescriptorSink())

        has_only_json = all(form is line.as_json for form, _ in self._outputs)
        self._allowed_lines = AllowedLines(secret_names=self._has_secret_names) if has_only_json else None

    def _add(self, name: str, form: Callable[[Document], Any], sink: Sink[Any]) -> None:
        def count(number: int) -> None:
            self._counts.dropped[name] += number

        writer = Writer(sink, lambda number: form(line.dropped(time.time(), number)), count)
        self._outputs.append((form, writer))

    @property
    def is_on(self) -> bool:
        """Whether any decision is logged."""
        return self._has_noteworthy or self._sampled > 0

    def offer(self, answer: Answer, seconds: float, digest: str, *, is_noteworthy: bool) -> None:
        """Log *answer*, which was given after *seconds*, if it is one of those that are logged.

        *digest* is that of the configuration; *is_noteworthy* see ``record.is_noteworthy``.
        """
        is_wanted = self._has_all or (is_noteworthy and self._has_noteworthy)
        if not is_wanted and not (self._sampled and random() < self._sampled):  # noqa: S311 - a sample
            return
        if not self._rate.take(self._clock(), 0.0 if is_noteworthy else KEPT_FOR_NOTEWORTHY):
            self._drop()
            return
        at = time.time()
        if not is_noteworthy and self._allowed_lines is not None:
            self._counts.logged += 1
            if self._allowed_lines.add(answer, seconds, at, digest):
                self._write_allowed()
            elif self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(ALLOWED_WAIT_S, self._write_allowed)
            return
        record = record_of(answer, seconds, at, digest)
        if is_noteworthy:
            request = answer.evaluation.request
            record = self._redactors.redacted(record, request, secret_names=self._has_secret_names)
        self._write(line.decision(record, secret_names=self._has_secret_names))

    def found_afterwards(self, document: Document) -> None:
        """Log the *document* of a finding after the answer, without secrets."""
        if self._has_noteworthy and self._rate.take(self._clock(), KEPT_FOR_NOTEWORTHY):
            self._write(document)
        elif self._has_noteworthy:
            self._drop()

    def noted(self, document: Document) -> None:
        """Log the *document* of a decision about the gateway itself, such as that of a rollout plan."""
        if self._has_noteworthy:
            self._write(document)

    def refused(self, request: RefusedRequest, response: RefusalResponse) -> None:
        """Log that the gateway itself answered *request* with *response*, whose status is not 200."""
        if not self._has_noteworthy:
            return
        if not self._refusals.take(self._clock()):
            self._drop()
            return
        traceparent = read_traceparent(request.headers.get(b"traceparent", b""))
        self._write(line.refusal(time.time(), request, response, trace_id_of(traceparent)))

    def _write(self, document: Document) -> None:
        self._write_allowed()
        self._counts.logged += 1
        for form, writer in self._outputs:
            writer.write((form(document),))

    def _write_allowed(self) -> None:
        """Write the lines of the allowed decisions that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        found = [] if self._allowed_lines is None else self._allowed_lines.take()
        if found:
            for _, writer in self._outputs:
                writer.write(found)

    def _drop(self) -> None:
        for _, writer in self._outputs:
            writer.drop(1)

    def _end_outputs(self) -> None:
        self._write_allowed()
        self._closing = [thread for thread in self._closing if thread.is_alive()]
        self._closing += [writer.close() for _, writer in self._outputs]
        self._outputs = []

    async def close(self) -> None:
        """Write the last records, if that takes no longer than ``CLOSE_S``."""
        self._settings = None
        self._has_noteworthy = self._has_all = False
        self._sampled, self.ordinary_at = 0.0, inf
        self._end_outputs()
        deadline = time.monotonic() + CLOSE_S
        for thread in self._closing:
            await asyncio.to_thread(partial(thread.join, max(0.0, deadline - time.monotonic())))
