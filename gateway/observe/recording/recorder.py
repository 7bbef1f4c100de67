"""Records reviews and their answers while a gateway serves, see ``GatewaySettings.record``.

The event loop chooses reviews and makes their lines; a thread compresses and writes them. Everything is
bounded: the rate, the reviews whose lines are being made, the lines that wait for the thread, and the files.
Reviews beyond a bound are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.base.credentials import recording_key
from gateway.base.files import UnusableFileError, read_file
from gateway.base.work_queue import WorkQueue
from gateway.observe.decisions.rate import TokenBucket
from gateway.observe.decisions.writer import Writer
from gateway.observe.recording import lines
from gateway.observe.recording.files import RecordingFiles
from gateway.observe.recording.lines import ReviewLines
from gateway.observe.recording.redaction import Marks, paths_by_kind
from gateway.observe.recording.sampling import Sampling
from gateway.pure.core.large import LARGE_BYTES
from gateway.pure.core.stages import changed_payloads

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Thread

    from gateway.config.kinds.record_settings import RecordSettings
    from gateway.observe.telemetry.metrics import RecordingCounts
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.webhook import Phase

log = logging.getLogger(__name__)

KEPT_FOR_RARE: Final = 0.25
"""The part of the rate that the share of all reviews leaves to rare combinations."""
MAX_PENDING: Final = 64
"""Reviews whose lines are being made in steps, of 64 KiB at most."""
LOGGED_EVERY_S: Final = 60.0
CLOSE_S: Final = 2.0
"""How long :meth:`Recorder.close` waits for the last lines."""


class Recorder:
    """Records reviews, by settings that may change. Use it on one event loop."""

    def __init__(self, counts: RecordingCounts, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts = counts
        self._clock = clock
        self._settings: RecordSettings | None = None
        self._recording: Recording | None = None
        self._closing: list[Thread] = []

    def activate(self, settings: RecordSettings | None) -> None:
        """Record by *settings* from now on, or nothing with None."""
        if settings == self._settings:
            return
        self._end()
        self._settings = settings
        if settings is None:
            return
        try:
            key = os.urandom(32) if settings.key_file is None else recording_key(read_file(settings.key_file))
        except UnusableFileError as error:
            log.error("nothing is recorded: record.keyFile %s", error)
            return
        self._recording = Recording(settings, Marks(key), self.counts, self._clock)

    def observer(self, digest: str) -> RecordingObserver | None:
        """Return what records the reviews by the configuration with *digest*. None if nothing is."""
        return None if self._recording is None else RecordingObserver(self._recording, digest)

    def _end(self) -> None:
        self._closing = [thread for thread in self._closing if thread.is_alive()]
        if self._recording is not None:
            self._closing.append(self._recording.close())
            self._recording = None

    async def close(self) -> None:
        """Make and write the last lines, if that takes no longer than ``CLOSE_S``."""
        deadline = time.monotonic() + CLOSE_S
        if self._recording is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._recording.all_made.wait(), CLOSE_S)
        self._settings = None
        self._end()
        for thread in self._closing:
            await asyncio.to_thread(partial(thread.join, max(0.0, deadline - time.monotonic())))


class Recording:
    """The recording of one process by fixed settings, in one file after another."""

    def __init__(
        self,
        settings: RecordSettings,
        marks: Marks,
        counts: RecordingCounts,
        clock: Callable[[], float],
    ) -> None:
        self.marks = marks
        self.paths = paths_by_kind(settings.redact)
        self.sampling = Sampling(settings.sample_percent, settings.per_combination)
        self._counts = counts
        self._clock = clock
        self._rate = TokenBucket(settings.max_per_second, settings.max_per_second)
        self._queue = WorkQueue()
        self._pending = 0
        self.all_made = asyncio.Event()
        """Set while no line is being made in steps."""
        self.all_made.set()
        self._is_closed = False
        self._logged_at = -LOGGED_EVERY_S
        files = RecordingFiles(settings, partial(lines.header, settings, marks))
        self._writer = Writer(files, lines.dropped, partial(self._drop, "writer"), "recording")

    def take(self, answer: Answer, seconds: float, made_by: ReviewLines, *, is_sampled: bool) -> None:
        """Record *answer*, which was given after *seconds*, in a line of *made_by*."""
        if self._is_closed:
            return
        if not self._rate.take(self._clock(), KEPT_FOR_RARE if is_sampled else 0.0):
            self._leave_out("rate")
        elif _is_large(answer.evaluation):
            self._leave_out("size")
        else:
            at = time.time()
            line = made_by.allowed(answer, seconds, at, is_sampled=is_sampled)
            if line is not None:
                self._write(line)
                return
            head = made_by.head(answer, seconds, at, is_sampled=is_sampled)
            line = made_by.plain(answer, head)
            if line is not None:
                self._write(line)
            elif self._pending >= MAX_PENDING:
                self._leave_out("queue")
            else:
                self._pending += 1
                self.all_made.clear()
                self._queue.begin(made_by.redacted(answer, head), self._made, self._failed)

    def _made(self, line: bytes) -> None:
        self._is_made()
        if not self._is_closed:
            self._write(line)

    def _failed(self, error: Exception) -> None:
        self._is_made()
        self._leave_out("redaction")
        if not isinstance(error, lines.NotRecordableError):
            log.error("internal error: a review cannot be recorded", exc_info=error)

    def _is_made(self) -> None:
        self._pending -= 1
        if not self._pending:
            self.all_made.set()

    def _write(self, line: bytes) -> None:
        self._counts.recorded += 1
        self._writer.write((line,))

    def _leave_out(self, reason: str, number: int = 1) -> None:
        self._drop(reason, number)
        self._writer.note_dropped(number)

    def _drop(self, reason: str, number: int) -> None:
        self._counts.dropped[reason] += number
        if self._clock() >= self._logged_at + LOGGED_EVERY_S:
            self._logged_at = self._clock()
            found = ", ".join(f"{name}: {count}" for name, count in self._counts.dropped.items())
            log.warning("recording: reviews are left out; so far, by reason: %s", found)

    def close(self) -> Thread:
        """Stop recording. The returned thread writes the queued lines and closes the file."""
        self._is_closed = True
        if self._pending:
            self._leave_out("queue", self._pending)
        return self._writer.close()


def _is_large(evaluation: Evaluation) -> bool:
    """Whether redaction might take long."""
    return len(evaluation.request.json) > LARGE_BYTES or (
        evaluation.has_changed
        and any(payload.size_bytes > LARGE_BYTES for _, payload in changed_payloads(evaluation))
    )


class RecordingObserver:
    """Records the reviews by one configuration. A ``ReviewObserver``."""

    def __init__(self, recording: Recording, digest: str) -> None:
        self._recording = recording
        self._sampling = recording.sampling
        self._lines = ReviewLines(recording.marks, recording.paths, digest)

    def review_answered(self, answer: Answer, seconds: float) -> None:
        """Record *answer*, which was given after *seconds*, if it is chosen."""
        evaluation = answer.evaluation
        is_sampled = self._sampling.in_sample(evaluation.request.uid)
        if self._sampling.is_rare(evaluation, answer.started_at) or is_sampled:
            self._recording.take(answer, seconds, self._lines, is_sampled=is_sampled)

    def review_cancelled(self, phase: Phase) -> None:
        """A cancelled review has no answer."""
